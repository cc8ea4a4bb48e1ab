"""pika (Python), which speaks AMQP 0-9-1: the first of RabbitMQ's tutorials, and what its users rely on beyond."""

import importlib
import sys
import time

from .harness import case, check, equal, in_order


def library(ctx):
    if ctx.tools.pika_folder not in sys.path:
        sys.path.insert(0, ctx.tools.pika_folder)
    return importlib.import_module("pika")


def connect(ctx, vhost="/", user="guest", password="guest"):
    pika = library(ctx)
    parameters = pika.ConnectionParameters(
        ctx.broker.host,
        ctx.broker.port,
        vhost,
        pika.PlainCredentials(user, password),
        socket_timeout=10,
        blocked_connection_timeout=10,
    )
    return pika.BlockingConnection(parameters)


def names(ctx, count=8):
    """Of queues on different shards."""
    return [f"{ctx.address()}.{n}" for n in range(count)]


def wait_for(connections, done, seconds=20):
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        for connection in connections:
            connection.process_data_events(0.05)
    check(done(), "nothing more came")


@case("pika/hello-world")
def hello_world(ctx):
    for queue in names(ctx):
        with connect(ctx) as connection:
            channel = connection.channel()
            channel.queue_declare(queue=queue)
            channel.basic_publish(exchange="", routing_key=queue, body=b"Hello World!")
        with connect(ctx) as connection:
            channel = connection.channel()
            channel.queue_declare(queue=queue)
            bodies = []
            channel.basic_consume(
                queue=queue,
                on_message_callback=lambda _channel, _method, _properties, body: bodies.append(body),
                auto_ack=True,
            )
            wait_for([connection], lambda: bodies)
            equal(bodies, [b"Hello World!"], "what was said")


@case("pika/work-queues")
def work_queues(ctx):
    pika = library(ctx)
    queue, count = ctx.address(), 40
    with connect(ctx) as connection:
        channel = connection.channel()
        channel.queue_declare(queue=queue, durable=True)
        persistent = pika.BasicProperties(delivery_mode=2, headers={"n": 1, "s": "text"})
        for n in range(count):
            channel.basic_publish("", queue, str(n).encode(), properties=persistent)
    workers, done, dead = [], [], []

    def work(number):
        connection = connect(ctx)
        channel = connection.channel()
        channel.queue_declare(queue=queue, durable=True)
        channel.basic_qos(prefetch_count=1)

        def take(channel, method, properties, body):
            equal((properties.delivery_mode, properties.headers), (2, {"n": 1, "s": "text"}), "properties")
            if number == 0 and not dead:
                # This worker dies with what it has.
                dead.append(int(body))
                return
            done.append((int(body), method.redelivered))
            channel.basic_ack(delivery_tag=method.delivery_tag)

        channel.basic_consume(queue=queue, on_message_callback=take)
        workers.append(connection)

    for number in range(3):
        work(number)
    wait_for(workers, lambda: dead and len(done) == count - 1)
    workers.pop(0).close()
    wait_for(workers, lambda: len(done) == count)
    equal(sorted(n for n, _ in done), list(range(count)), "what was done")
    equal([n for n, redelivered in done if redelivered], dead, "what was delivered again")
    for connection in workers:
        connection.close()


@case("pika/confirms")
def confirms(ctx):
    pika = library(ctx)
    with connect(ctx) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for queue in names(ctx):
            channel.queue_declare(queue=queue, durable=True)
            for n in range(20):
                properties = pika.BasicProperties(delivery_mode=1 + n % 2)
                channel.basic_publish("", queue, str(n).encode(), properties=properties, mandatory=True)
            found = channel.queue_declare(queue=queue, passive=True).method.message_count
            equal(found, 20, "messages that were confirmed")
            try:
                channel.basic_publish("", f"{queue}.missing", b"lost", mandatory=True)
                check(False, "a message that goes nowhere was not returned")
            except pika.exceptions.UnroutableError as error:
                equal(error.messages[0].method.reply_code, 312, "why it was returned")
            # Nobody asked for it back: that is no failure.
            channel.basic_publish("", f"{queue}.missing", b"lost")


@case("pika/get-and-requeue")
def get_and_requeue(ctx):
    with connect(ctx) as connection:
        channel = connection.channel()
        for queue in names(ctx):
            channel.queue_declare(queue=queue)
            equal(channel.basic_get(queue), (None, None, None), "what an empty queue has")
            for body in (b"A", b"B", b"C"):
                channel.basic_publish("", queue, body)
            got = [channel.basic_get(queue) for _ in range(3)]
            equal([method.message_count for method, _, _ in got], [2, 1, 0], "what is left")
            for n in (0, 2, 1):
                channel.basic_nack(got[n][0].delivery_tag)
            channel.basic_publish("", queue, b"D")
            again = [channel.basic_get(queue) for _ in range(4)]
            expected = [(b"A", True), (b"B", True), (b"C", True), (b"D", False)]
            found = [(body, method.redelivered) for method, _, body in again]
            in_order(found, expected, "what was given back")
            channel.basic_ack(0, multiple=True)
            equal(channel.queue_delete(queue, if_empty=True).method.message_count, 0, "what was deleted")


@case("pika/refusals")
def refusals(ctx):
    pika = library(ctx)
    with connect(ctx) as connection, connect(ctx) as other:
        for queue in names(ctx):
            channel = connection.channel()
            channel.queue_declare(queue=queue, exclusive=True)
            attempts = (
                (404, lambda channel: channel.queue_declare(f"{queue}.missing", passive=True)),
                (404, lambda channel: channel.queue_purge(f"{queue}.missing")),
                (404, lambda channel: channel.basic_publish("missing", queue, b"lost") or channel.basic_get(queue)),
                (403, lambda channel: channel.queue_declare("amq.mine")),
                (405, lambda channel: channel.queue_declare(queue, passive=True)),
                (405, lambda channel: channel.queue_delete(queue)),
                (405, lambda channel: channel.basic_consume(queue, print)),
                (406, lambda channel: channel.queue_declare(f"{queue}.ttl", arguments={"x-message-ttl": "1"})),
            )
            for code, attempt in attempts:
                channel = other.channel()
                try:
                    attempt(channel)
                    check(False, f"nothing was said, expected {code}")
                except pika.exceptions.ChannelClosedByBroker as error:
                    equal(error.reply_code, code, f"what is said of {queue}")


def received(channel, queue):
    """What is in a queue: each message's exchange without the case's name, its routing key and its body."""
    found = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append((method.exchange.rsplit(".", 1)[-1], method.routing_key, body))


@case("pika/exchanges")
def exchanges(ctx):
    pika = library(ctx)
    address = ctx.address()
    with connect(ctx) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        fanout, topic, headers, direct = kinds = [f"{address}.{kind}" for kind in ("fanout", "topic", "headers", "direct")]
        for name in kinds:
            channel.exchange_declare(name, name.rsplit(".", 1)[-1], durable=True)
        queues = names(ctx, 4)
        for queue in queues:
            channel.queue_declare(queue)
            channel.queue_bind(queue, fanout)
        channel.queue_bind(queues[0], topic, "a.*")
        channel.queue_bind(queues[1], topic, "#.z")
        channel.queue_bind(queues[2], headers, "", {"x-match": "all", "k": 1, "s": "v"})
        channel.queue_bind(queues[3], direct, "key")
        channel.exchange_bind(fanout, direct, "all")

        def check_routes(exchange, key, to, properties=None):
            channel.basic_publish(exchange, key, b"routed", properties)
            one = [(exchange.rsplit(".", 1)[-1], key, b"routed")]
            found = [received(channel, queue) for queue in queues]
            equal(found, [one if n in to else [] for n in range(4)], f"what {key!r} brings")

        check_routes(fanout, "", {0, 1, 2, 3})
        check_routes(topic, "a.z", {0, 1})
        check_routes(topic, "b.c.z", {1})
        check_routes(headers, "", {2}, pika.BasicProperties(headers={"k": 1, "s": "v", "more": None}))
        check_routes(headers, "", set(), pika.BasicProperties(headers={"k": 2, "s": "v"}))
        check_routes(direct, "key", {3})
        check_routes(direct, "all", {0, 1, 2, 3})
        try:
            channel.basic_publish(direct, "none", b"lost", mandatory=True)
            check(False, "a message that nobody gets came back to nobody")
        except pika.exceptions.UnroutableError as error:
            equal(error.messages[0].method.reply_code, 312, "why it came back")
        dying = f"{address}.dying"
        channel.queue_declare(dying, arguments={"x-dead-letter-exchange": fanout, "x-message-ttl": 1})
        channel.basic_publish("", dying, b"late")
        for queue in queues:
            wait_for([connection], lambda: channel.queue_declare(queue, passive=True).method.message_count == 1)
            equal(received(channel, queue), [("fanout", dying, b"late")], "the dead letter")
        for queue in [*queues, dying]:
            channel.queue_delete(queue)
        for name in kinds:
            channel.exchange_delete(name)
