"""Between the protocols: what pika publishes proton reads, and the other way round, properties, types and bodies included."""

import datetime
import decimal
import uuid

from proton import Message, symbol, timestamp, ulong

from .client import settle
from .harness import case, check, equal
from .pika_cases import connect as connect_pika
from .pika_cases import library, names, received, wait_for
from .steps import connect


def one(client, address):
    receiver = client.receiver(address, credit=1)
    message, delivery = receiver.take(1)[0]
    settle(delivery)
    receiver.close()
    return message


@case("between/from-pika", own_only=True)
def from_pika(ctx):
    pika = library(ctx)
    client = connect(ctx)
    when = 1_700_000_000
    headers = {
        "text": "Grüße",
        "yes": True,
        "small": 1,
        "large": 2**40,
        "decimal": decimal.Decimal("1.25"),
        "bytes": b"\x00\xff",
        "when": datetime.datetime.fromtimestamp(when, datetime.timezone.utc),
    }
    properties = pika.BasicProperties(
        content_type="application/json",
        content_encoding="utf-8",
        headers=headers,
        delivery_mode=2,
        priority=7,
        correlation_id="correlated",
        reply_to="answers",
        expiration="60000",
        message_id="message 1",
        timestamp=when,
        type="event",
        user_id="guest",
        app_id="app",
    )
    with connect_pika(ctx) as connection:
        channel = connection.channel()
        for queue in names(ctx, 4):
            channel.queue_declare(queue, durable=True)
            channel.basic_publish("", queue, b'{"a": 1}', properties)
            message = one(client, f"/queues/{queue}")
            found = (message.durable, message.priority, message.ttl > 0, message.content_type, message.content_encoding)
            equal(found, (True, 7, True, "application/json", "utf-8"), "header and content")
            found = (message.correlation_id, message.id, bytes(message.user_id))
            equal(found, ("correlated", "message 1", b"guest"), "properties")
            # What has no property of its own there is an annotation.
            annotations = {str(key): value for key, value in message.annotations.items()}
            expected = {"x-exchange": "", "x-routing-key": queue, "x-basic-type": "event"}
            equal({key: annotations.get(key) for key in expected}, expected, "annotations")
            check(str(message.reply_to).endswith("answers"), f"reply-to is {message.reply_to!r}")
            equal(int(message.creation_time), when, "the time")
            equal(bytes(message.body), b'{"a": 1}', "the body")
            given = dict(message.properties)
            for key in ("text", "yes", "small", "large", "bytes"):
                value = bytes(given[key]) if key == "bytes" else given[key]
                equal(value, headers[key], f"header {key}")
            equal(int(given["when"]), when * 1000, "the time of a header")
            channel.queue_delete(queue)


@case("between/to-pika", own_only=True)
def to_pika(ctx):
    client = connect(ctx)
    with connect_pika(ctx) as connection:
        channel = connection.channel()
        for queue in names(ctx, 4):
            channel.queue_declare(queue)
            identity = uuid.uuid4()
            message = Message(
                body=b"binary",
                durable=True,
                priority=3,
                ttl=60,
                id="id",
                correlation_id=ulong(7),
                reply_to="answers",
                content_type=symbol("text/plain"),
                content_encoding=symbol("gzip"),
                creation_time=1_700_000_000,
                properties={
                    "text": "Grüße",
                    "yes": True,
                    "number": -5,
                    "float": 2.5,
                    "when": timestamp(1_700_000_000_000),
                    "uuid": identity,
                },
                inferred=True,
            )
            client.sender(f"/queues/{queue}").send([message])
            found = []
            channel.basic_consume(queue, lambda _c, m, p, b: found.append((m, p, b)), auto_ack=True)
            wait_for([connection], lambda: found)
            method, properties, body = found[0]
            equal((method.exchange, body, method.redelivered), ("", b"binary", False), "the delivery")
            fields = (properties.delivery_mode, properties.priority, properties.content_type, properties.content_encoding)
            equal(fields, (2, 3, "text/plain", "gzip"), "what became of the header")
            fields = (properties.message_id, properties.correlation_id, properties.timestamp)
            equal(fields, ("id", "7", 1_700_000_000), "what became of the properties")
            check(str(properties.reply_to).endswith("answers"), f"reply-to is {properties.reply_to!r}")
            check(0 < int(properties.expiration) <= 60000, f"expiration is {properties.expiration!r}")
            given = properties.headers
            fields = {key: given[key] for key in ("text", "yes", "number", "float")}
            # pika makes whole numbers of those that are none.
            equal(fields, {"text": "Grüße", "yes": True, "number": -5, "float": 2}, "headers")
            equal(given["when"].timestamp(), 1_700_000_000, "the time of a header")
            check(str(identity) in str(given["uuid"]) or identity.bytes == given["uuid"], f"uuid is {given['uuid']!r}")
            channel.queue_delete(queue)


@case("between/exchanges", own_only=True)
def exchanges(ctx):
    """Senders of 1.0 publish through exchanges of 0-9-1, by an address, or by the `to` of each message."""
    client = connect(ctx)
    exchange, fanout = f"{ctx.address()}.topic", f"{ctx.address()}.fanout"
    with connect_pika(ctx) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange, "topic")
        channel.exchange_declare(fanout, "fanout")
        for queue in names(ctx, 4):
            channel.queue_declare(queue)
            channel.queue_bind(queue, exchange, f"{queue}.#")
            client.sender(f"/exchanges/{exchange}/{queue}.one").send([Message(body="by address")])
            client.sender(None).send([Message(body="by to", address=f"/exchanges/{exchange}/{queue}.two")])
            channel.queue_bind(queue, fanout)
            client.sender(f"/exchanges/{fanout}").send([Message(body="without a key")])
            found = received(channel, queue)
            routes = [("topic", f"{queue}.one"), ("topic", f"{queue}.two"), ("fanout", "")]
            equal([(exchange, key) for exchange, key, _ in found], routes, "exchanges and routing keys")
            channel.queue_delete(queue)
        channel.exchange_delete(exchange)
        channel.exchange_delete(fanout)


@case("between/order", own_only=True)
def order(ctx):
    """A queue with consumers of both protocols: each message once, and what one gives back the other gets."""
    queue, count = ctx.address(), 60
    client = connect(ctx)
    with connect_pika(ctx) as connection:
        channel = connection.channel()
        channel.queue_declare(queue)
        channel.basic_qos(prefetch_count=10)
        taken = []

        def take(channel, method, _properties, body):
            taken.append(body)
            channel.basic_nack(method.delivery_tag, requeue=True) if len(taken) <= 10 else channel.basic_ack(
                method.delivery_tag
            )

        for n in range(count):
            channel.basic_publish("", queue, str(n).encode())
        channel.queue_declare(queue, passive=True)
        receiver = client.receiver(f"/queues/{queue}", credit=20)
        other = receiver.take(20)
        channel.basic_consume(queue, take)
        wait_for([connection], lambda: len(taken) == count - 20 + 10)
        for _, delivery in other:
            settle(delivery, "accepted")
        found = sorted({int(body) for body in taken} | {int(bytes(message.body)) for message, _ in other})
        equal(found, list(range(count)), "all messages")
        receiver.close()
        channel.queue_delete(queue)
