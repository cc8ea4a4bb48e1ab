"""What is said to clients of AMQP 0-9-1 that ask for what cannot be had: codes, what they end, and what stays as it was."""

from .harness import case, check, equal
from .pika_cases import connect, library, names, received, wait_for

CHANNEL, CONNECTION = "ChannelClosedByBroker", "ConnectionClosedByBroker"


def answer(pika, attempt):
    """What comes of an attempt: None if it is done, else what was closed, and the code."""
    try:
        attempt()
    except (pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosedByBroker) as error:
        return type(error).__name__, error.reply_code
    return None


def asked(ctx, expected, attempt):
    """One attempt on a connection of its own, followed by a request, so that an answer to a publish is heard."""
    pika = library(ctx)
    connection = connect(ctx)
    channel = connection.channel()

    def run():
        attempt(channel)
        channel.queue_declare("", exclusive=True)

    equal(answer(pika, run), expected, "the answer")
    if expected is None or expected[0] == CHANNEL:
        connection.channel().queue_declare("", exclusive=True)
        connection.close()


@case("answers/missing")
def missing(ctx):
    """What is not there: asking for it is a mistake, taking it away is none."""
    for queue in names(ctx, 4):
        asked(ctx, (CHANNEL, 404), lambda channel: channel.queue_declare(queue, passive=True))
        asked(ctx, (CHANNEL, 404), lambda channel: channel.exchange_declare(queue, passive=True))
        asked(ctx, (CHANNEL, 404), lambda channel: channel.queue_purge(queue))
        asked(ctx, (CHANNEL, 404), lambda channel: channel.basic_get(queue))
        asked(ctx, (CHANNEL, 404), lambda channel: channel.basic_consume(queue, print))
        asked(ctx, (CHANNEL, 404), lambda channel: channel.basic_publish(queue, "key", b"lost"))
        asked(ctx, None, lambda channel: channel.queue_delete(queue))
        asked(ctx, None, lambda channel: channel.exchange_delete(queue))
        asked(ctx, None, lambda channel: channel.basic_cancel(queue))
        asked(ctx, (CHANNEL, 404), lambda channel: channel.queue_bind(queue, "amq.direct", "key"))

        def unbind(channel):
            channel.queue_declare(queue)
            channel.queue_unbind(queue, "amq.direct", "never bound")
            channel.queue_delete(queue)

        asked(ctx, None, unbind)

        def bind(channel):
            channel.queue_declare(queue, exclusive=True)
            channel.queue_bind(queue, f"{queue}.missing", "key")

        asked(ctx, (CHANNEL, 404), bind)


@case("answers/reserved")
def reserved(ctx):
    asked(ctx, (CHANNEL, 403), lambda channel: channel.queue_declare("amq.mine"))
    asked(ctx, (CHANNEL, 403), lambda channel: channel.exchange_declare("amq.mine", "direct"))
    asked(ctx, (CHANNEL, 403), lambda channel: channel.exchange_delete("amq.direct"))
    # They are there, of their kinds.
    for kind in ("direct", "fanout", "topic", "headers"):
        asked(ctx, None, lambda channel: channel.exchange_declare(f"amq.{kind}", kind, durable=True))


@case("answers/arguments")
def arguments(ctx):
    """Each argument is of its type and within its bounds; one that is declared again is the same in value, whatever its width."""
    pika, queue = library(ctx), ctx.address()
    wrong = (
        {"x-message-ttl": "100"},
        {"x-message-ttl": -1},
        {"x-expires": 0},
        {"x-expires": "soon"},
        {"x-max-length": -1},
        {"x-max-priority": 256},
        {"x-max-priority": -1},
        {"x-overflow": "explode"},
        {"x-dead-letter-routing-key": "alone"},
        {"x-dead-letter-exchange": 1},
        {"x-queue-type": "stream"},
        {"x-single-active-consumer": "yes"},
    )
    for one in wrong:
        asked(ctx, (CHANNEL, 406), lambda channel: channel.queue_declare(f"{queue}.wrong", arguments=one))
    connection = connect(ctx)
    channel = connection.channel()
    channel.queue_declare(queue, arguments={"x-message-ttl": 60000, "unknown": {"nested": [1, None]}})
    # pika sends the smallest type that holds a number; one of 64 bits is its `long`.
    channel.queue_declare(queue, arguments={"x-message-ttl": pika.compat.long(60000)})
    for differs in ({"x-message-ttl": 2**40}, {}, {"x-message-ttl": 60000, "x-max-length": 5}):
        asked(ctx, (CHANNEL, 406), lambda channel: channel.queue_declare(queue, arguments=differs))
    asked(ctx, (CHANNEL, 406), lambda channel: channel.queue_declare(queue, durable=True))
    asked(ctx, (CHANNEL, 406), lambda channel: channel.queue_declare(queue, auto_delete=True))
    channel.queue_delete(queue)
    connection.close()


@case("answers/conditions")
def conditions(ctx):
    """A deletion on a condition that does not hold leaves the queue as it is."""
    for queue in names(ctx, 4):
        with connect(ctx) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare(queue)
            channel.basic_publish("", queue, b"kept")
            asked(ctx, (CHANNEL, 406), lambda channel: channel.queue_delete(queue, if_empty=True))
            channel.basic_consume(queue, lambda *_: None)
            asked(ctx, (CHANNEL, 406), lambda channel: channel.queue_delete(queue, if_unused=True))
            wait_for([connection], lambda: channel.queue_declare(queue, passive=True).method.message_count == 0)
            found = connection.channel().queue_declare(queue, passive=True).method
            equal(found.consumer_count, 1, "consumers after a deletion that was refused")
            # What is held does not count.
            equal(channel.queue_delete(queue, if_empty=True).method.message_count, 0, "what was deleted")


@case("answers/exclusive")
def exclusive(ctx):
    """A queue of another connection: it can be published to, and nothing else; it goes with its connection, also a killed one."""
    for queue in names(ctx, 4):
        owner = connect(ctx)
        owner.channel().queue_declare(queue, exclusive=True)
        asked(ctx, (CHANNEL, 405), lambda channel: channel.queue_declare(queue, passive=True))
        asked(ctx, (CHANNEL, 405), lambda channel: channel.queue_declare(queue, exclusive=True))
        asked(ctx, (CHANNEL, 405), lambda channel: channel.basic_consume(queue, print))
        asked(ctx, (CHANNEL, 405), lambda channel: channel.basic_get(queue))
        asked(ctx, (CHANNEL, 405), lambda channel: channel.queue_bind(queue, "amq.direct", "key"))
        asked(ctx, (CHANNEL, 405), lambda channel: channel.queue_purge(queue))
        asked(ctx, (CHANNEL, 405), lambda channel: channel.queue_delete(queue))

        def publish(channel):
            channel.confirm_delivery()
            channel.basic_publish("", queue, b"from outside", mandatory=True)

        asked(ctx, None, publish)
        owner.close()
        asked(ctx, (CHANNEL, 404), lambda channel: channel.queue_declare(queue, passive=True))
        with connect(ctx) as connection:
            channel = connection.channel()
            channel.queue_declare(queue)
            channel.basic_consume(queue, lambda *_: None, exclusive=True)
            asked(ctx, (CHANNEL, 403), lambda channel: channel.basic_consume(queue, print))
            channel.queue_delete(queue)


@case("answers/deliveries")
def deliveries(ctx):
    """Acknowledging what is not there closes the channel: an unknown tag, one twice, all of nothing."""
    queue = ctx.address()

    def twice(channel):
        channel.queue_declare(queue)
        channel.basic_publish("", queue, b"once")
        tag = channel.basic_get(queue)[0].delivery_tag
        channel.basic_ack(tag)
        channel.basic_ack(tag)

    asked(ctx, (CHANNEL, 406), lambda channel: channel.basic_ack(99))
    asked(ctx, (CHANNEL, 406), lambda channel: channel.basic_nack(99))
    asked(ctx, (CHANNEL, 406), lambda channel: channel.basic_reject(99))
    asked(ctx, (CHANNEL, 406), twice)
    asked(ctx, (CHANNEL, 406), lambda channel: channel.basic_ack(0, multiple=False))
    asked(ctx, None, lambda channel: channel.basic_ack(0, multiple=True))
    with connect(ctx) as connection:
        # A tag of a channel that was closed is none of the next one's.
        channel = connection.channel(7)
        channel.basic_publish("", queue, b"again")
        tag = channel.basic_get(queue)[0].delivery_tag
        channel.close()
        channel = connection.channel(7)
        channel.basic_ack(tag)
        pika = library(ctx)
        equal(answer(pika, lambda: channel.queue_declare(queue)), (CHANNEL, 406), "the old tag")
        channel = connection.channel()
        method, _, body = channel.basic_get(queue)
        equal((method.redelivered, body), (True, b"again"), "what the closed channel had")
        channel.queue_delete(queue)


@case("answers/recover")
def recover(ctx):
    for queue in names(ctx, 4):
        with connect(ctx) as connection:
            channel = connection.channel()
            channel.queue_declare(queue)
            for body in (b"A", b"B", b"C"):
                channel.basic_publish("", queue, body)
            first, _ = channel.basic_get(queue)[0], channel.basic_get(queue)[0]
            equal(first.delivery_tag, 1, "the first tag")
            channel.basic_recover(requeue=True)
            found = [channel.basic_get(queue) for _ in range(3)]
            equal(
                [(method.redelivered, body) for method, _, body in found],
                [(True, b"A"), (True, b"B"), (False, b"C")],
                "what is there after a recover",
            )
            channel.queue_delete(queue)


@case("answers/not-implemented")
def not_implemented(ctx):
    """What no broker does today ends the connection."""
    pika = library(ctx)
    queue = ctx.address()
    publish = pika.spec.Basic.Publish(exchange="", routing_key=queue, immediate=True)
    content = (pika.BasicProperties(), b"now or never")
    asked(ctx, (CONNECTION, 540), lambda channel: channel._impl._send_method(publish, content))
    asked(ctx, (CONNECTION, 540), lambda channel: channel._impl.basic_recover(requeue=False))
    asked(ctx, (CONNECTION, 540), lambda channel: channel.basic_qos(prefetch_size=10, prefetch_count=1))


@case("answers/properties")
def properties(ctx):
    pika = library(ctx)
    queue = ctx.address()
    connection = connect(ctx)
    connection.channel().queue_declare(queue)

    def publish(**fields):
        return lambda channel: channel.basic_publish("", queue, b"x", pika.BasicProperties(**fields))

    asked(ctx, (CHANNEL, 406), publish(expiration="soon"))
    asked(ctx, (CHANNEL, 406), publish(expiration="-1"))
    asked(ctx, (CHANNEL, 406), publish(user_id="somebody else"))
    asked(ctx, None, publish(user_id="guest", expiration="60000", delivery_mode=0))
    equal(received(connection.channel(), queue), [("", queue, b"x")], "what was taken")
    connection.channel().queue_delete(queue)
    connection.close()


@case("answers/login")
def login(ctx):
    """A virtual host that is not there, and a wrong password."""
    pika = library(ctx)

    def attempt(**parameters):
        terms = pika.ConnectionParameters(ctx.broker.host, ctx.broker.port, socket_timeout=10, **parameters)
        try:
            pika.BlockingConnection(terms)
        except pika.exceptions.AMQPConnectionError as error:
            return str(error) or repr(error)
        check(False, f"{parameters} was let in")

    check("530" in attempt(virtual_host="nowhere"), "a virtual host that is not there is not refused with 530")
    wrong = pika.PlainCredentials("guest", "wrong")
    check("403" in attempt(credentials=wrong), "a wrong password is not refused with 403")


@case("answers/confirm-mode")
def confirm_mode(ctx):
    """A publish to an exchange that is not there closes its channel: what follows on it is dropped, other channels go on."""
    pika = library(ctx)
    for queue in names(ctx, 4):
        with connect(ctx) as connection:
            channel, other = connection.channel(), connection.channel()
            other.confirm_delivery()
            channel.queue_declare(queue)
            for exchange, body in (("", b"good"), (f"{queue}.bad", b"lost"), ("", b"late"), ("", b"later")):
                # All of them are on their way before an answer is read.
                channel._impl.basic_publish(exchange, queue, body)
            equal(answer(pika, lambda: channel.queue_declare(queue)), (CHANNEL, 404), "the answer")
            other.basic_publish("", queue, b"beside", mandatory=True)
            equal([body for _, _, body in received(other, queue)], [b"good", b"beside"], "what was taken")
            other.queue_delete(queue)


@case("answers/qos")
def qos(ctx):
    """The prefetch of a consumer is what was said before it came; one for the whole channel holds at once."""
    for queue in names(ctx, 4):
        with connect(ctx) as connection, connect(ctx) as publishing:
            channel = connection.channel()
            channel.queue_declare(queue)
            taken = {"first": [], "second": []}

            def consume(name):
                def take(_channel, method, _properties, _body):
                    taken[name].append(method.delivery_tag)

                channel.basic_consume(queue, take, consumer_tag=name)

            channel.basic_qos(prefetch_count=2)
            consume("first")
            channel.basic_qos(prefetch_count=4)
            consume("second")
            sender = publishing.channel()
            sender.confirm_delivery()
            for n in range(20):
                sender.basic_publish("", queue, str(n).encode())
            wait_for([connection], lambda: len(taken["second"]) == 4 and len(taken["first"]) == 2)
            # An answer behind it: no more has come.
            channel.basic_qos(prefetch_count=7, global_qos=True)
            wait_for([connection], lambda: True)
            equal({name: len(tags) for name, tags in taken.items()}, {"first": 2, "second": 4}, "what came")
            channel.basic_ack(0, multiple=True)
            wait_for([connection], lambda: sum(map(len, taken.values())) == 12)
            channel.queue_delete(queue)


@case("answers/cancel")
def cancel(ctx):
    """A consumer that is cancelled keeps what it has; one whose queue is deleted is told."""
    for queue in names(ctx, 4):
        with connect(ctx) as connection, connect(ctx) as other:
            channel = connection.channel()
            channel.queue_declare(queue)
            for body in (b"A", b"B", b"C"):
                channel.basic_publish("", queue, body)
            taken, told = [], []
            channel.basic_qos(prefetch_count=2)
            channel.add_on_cancel_callback(lambda frame: told.append(frame.method.consumer_tag))

            def take(_channel, method, _properties, body):
                taken.append((method.redelivered, body))

            tag = channel.basic_consume(queue, take)
            wait_for([connection], lambda: len(taken) == 2)
            channel.basic_cancel(tag)
            channel.basic_ack(1)
            channel.basic_publish("", queue, b"D")
            equal(channel.queue_declare(queue, passive=True).method.message_count, 2, "what waits")
            channel.basic_recover(requeue=True)
            equal(channel.queue_declare(queue, passive=True).method.message_count, 3, "with what came back")
            again = channel.basic_consume(queue, take, auto_ack=True)
            wait_for([connection], lambda: len(taken) == 5)
            equal(taken[2:], [(True, b"B"), (False, b"C"), (False, b"D")], "what came after it")
            other.channel().queue_delete(queue)
            wait_for([connection], lambda: told)
            equal(told, [again], "who was told")
