"""What beginners do with pika, from publish and subscribe to confirms: programs of the shape that is taught everywhere."""

import threading
import uuid

from .harness import case, check, equal
from .pika_cases import connect, library, wait_for


def subscribe(connection, exchange, kind, keys):
    """A temporary queue that is bound, and what comes to it."""
    channel = connection.channel()
    channel.exchange_declare(exchange=exchange, exchange_type=kind)
    queue = channel.queue_declare(queue="", exclusive=True).method.queue
    check(queue.startswith("amq.gen-"), f"a queue that the broker names is called {queue!r}")
    for key in keys:
        channel.queue_bind(exchange=exchange, queue=queue, routing_key=key)
    found = []

    def take(_channel, method, _properties, body):
        found.append((method.routing_key, body.decode()))

    channel.basic_consume(queue=queue, on_message_callback=take, auto_ack=True)
    return found


def compare(ctx, kind, bindings, said):
    """Each subscriber has its connection, its keys and what it is to get of what one publisher says."""
    exchange = f"{ctx.address()}.{kind}"
    connections = [connect(ctx) for _ in bindings]
    boxes = [
        subscribe(connection, exchange, kind, keys)
        for connection, (keys, _) in zip(connections, bindings)
    ]
    with connect(ctx) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange=exchange, exchange_type=kind)
        for key, body in said:
            channel.basic_publish(exchange=exchange, routing_key=key, body=body)
    wanted = [[(key, body) for key, body in said if key in keys] for _, keys in bindings]
    wait_for(connections, lambda: all(len(box) >= len(each) for box, each in zip(boxes, wanted)))
    equal(boxes, wanted, f"what subscribers of a {kind} exchange got")
    for connection in connections:
        connection.close()


@case("tutorial/publish-and-subscribe")
def publish_and_subscribe(ctx):
    said = [("", f"line {n}") for n in range(20)]
    compare(ctx, "fanout", [([""], {""})] * 3, said)


@case("tutorial/routing")
def routing(ctx):
    levels = ("info", "warning", "error")
    said = [(levels[n % 3], f"{levels[n % 3]} {n}") for n in range(30)]
    compare(ctx, "direct", [(["error"], {"error"}), (levels, set(levels)), (["info"], {"info"})], said)


@case("tutorial/topics")
def topics(ctx):
    keys = ("kern.critical", "kern.info", "cron.critical", "kern", "a.kern.critical", "quick.orange.rabbit")
    said = [(key, f"{key} {n}") for n in range(4) for key in keys]
    bindings = [
        (["#"], set(keys)),
        (["kern.*"], {"kern.critical", "kern.info"}),
        (["*.critical"], {"kern.critical", "cron.critical"}),
        # Twice the same message is once.
        (["kern.#", "#.critical"], set(keys) - {"quick.orange.rabbit"}),
        (["*.orange.*"], {"quick.orange.rabbit"}),
    ]
    compare(ctx, "topic", bindings, said)


@case("tutorial/rpc")
def rpc(ctx):
    """Fibonacci numbers from a server, which answers to the queue that a request names."""
    pika, queue = library(ctx), ctx.address()
    failures, stopping = [], threading.Event()

    def fibonacci(n):
        low, high = 0, 1
        for _ in range(n):
            low, high = high, low + high
        return low

    def serve():
        try:
            connection = connect(ctx)
            channel = connection.channel()
            channel.queue_declare(queue=queue)
            channel.basic_qos(prefetch_count=1)

            def answer(channel, method, properties, body):
                channel.basic_publish(
                    exchange="",
                    routing_key=properties.reply_to,
                    properties=pika.BasicProperties(correlation_id=properties.correlation_id),
                    body=str(fibonacci(int(body))),
                )
                channel.basic_ack(delivery_tag=method.delivery_tag)

            channel.basic_consume(queue=queue, on_message_callback=answer)
            while not stopping.is_set():
                connection.process_data_events(0.05)
            connection.close()
        except Exception as error:  # Told by the case's own thread.
            failures.append(error)

    server = threading.Thread(target=serve)
    server.start()
    try:
        with connect(ctx) as connection:
            channel = connection.channel()
            channel.queue_declare(queue=queue)
            replies = channel.queue_declare(queue="", exclusive=True).method.queue
            answers = {}

            def take(_channel, _method, properties, body):
                answers[properties.correlation_id] = int(body)

            channel.basic_consume(queue=replies, on_message_callback=take, auto_ack=True)
            for n in (0, 1, 10, 30, 90):
                request = str(uuid.uuid4())
                channel.basic_publish(
                    exchange="",
                    routing_key=queue,
                    properties=pika.BasicProperties(reply_to=replies, correlation_id=request),
                    body=str(n),
                )
                wait_for([connection], lambda: request in answers or failures)
                equal(failures, [], "what went wrong at the server")
                equal(answers[request], fibonacci(n), f"fibonacci of {n}")
    finally:
        stopping.set()
        server.join(10)


@case("tutorial/confirms")
def confirms(ctx):
    """Publishing faster than one confirm at a time: each number is confirmed once, alone or with those before it."""
    pika, queue, count = library(ctx), ctx.address(), 500
    parameters = pika.ConnectionParameters(ctx.broker.host, ctx.broker.port, socket_timeout=10)
    outstanding, doubled, refused, opened = set(), [], [], []

    def on_confirm(frame):
        if not isinstance(frame.method, pika.spec.Basic.Ack):
            refused.append(frame.method)
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            outstanding.difference_update([one for one in outstanding if one <= tag])
        elif tag in outstanding:
            outstanding.remove(tag)
        else:
            doubled.append(tag)
        if not outstanding:
            connection.close()

    def publish(_frame):
        channel = opened[0]
        outstanding.update(range(1, count + 1))
        for n in range(count):
            # Durable ones are confirmed when they are synced, the others at once.
            properties = pika.BasicProperties(delivery_mode=1 + n % 2)
            channel.basic_publish("", queue, str(n), properties)

    def on_channel(channel):
        opened.append(channel)
        channel.confirm_delivery(on_confirm)
        channel.queue_declare(queue, durable=True, callback=publish)

    connection = pika.SelectConnection(
        parameters,
        on_open_callback=lambda connection: connection.channel(on_open_callback=on_channel),
        on_close_callback=lambda connection, _reason: connection.ioloop.stop(),
    )
    connection.ioloop.call_later(30, connection.ioloop.stop)
    connection.ioloop.start()
    equal((doubled, refused, len(outstanding)), ([], [], 0), "numbers twice, refusals, and what is not confirmed")
    with connect(ctx) as other:
        found = other.channel().queue_delete(queue).method.message_count
        equal(found, count, "messages that were confirmed")
