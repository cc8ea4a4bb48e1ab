"""What lives as long as something else: queues with their connections, exchanges with what they are bound to."""

import socket
import struct
import time

from .channel_frames import (
    BASIC_GET_OK,
    BODY,
    HEADER,
    METHOD,
    QUEUE_DECLARE_OK,
    ChannelSocket,
    declare,
    frame,
    get,
    header,
    publish,
)
from .harness import case, check, equal
from .pika_cases import connect, library

EXCLUSIVE = 4
OWNERS = 200


def owner(ctx, queue):
    """A connection with a queue that nobody else may have."""
    one = ChannelSocket(ctx)
    one.open_channel()
    one.put(METHOD, 1, declare(queue, flags=EXCLUSIVE))
    one.expect(QUEUE_DECLARE_OK)
    return one


def reset(one):
    """The connection is gone, and nothing was said before."""
    one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.socket.close()


@case("owners/reset")
def owner_reset(ctx):
    """Whoever lost its connection has its exclusive queue again at once, and empty."""
    for n in range(40):
        queue = f"{ctx.address()}.{n % 8}"
        one = owner(ctx, queue)
        one.send(frame(METHOD, 1, publish(queue)) + frame(HEADER, 1, header(0)))
        reset(one)
        again = ChannelSocket(ctx)
        again.open_channel()
        again.put(METHOD, 1, declare(queue, flags=EXCLUSIVE))
        messages = struct.unpack(">I", again.expect(QUEUE_DECLARE_OK)[-8:-4])[0]
        equal(messages, 0, "messages of the queue that was made anew")
        reset(again)


@case("owners/many")
def many_owners(ctx):
    """Hundreds of clients lose their connections together, and have their queues again when they come back."""
    queues = [f"{ctx.address()}.{n}" for n in range(OWNERS)]
    owners = [owner(ctx, queue) for queue in queues]
    for _ in range(2):
        for one in owners:
            reset(one)
        owners = [owner(ctx, queue) for queue in queues]
    for one, queue in zip(owners, queues):
        one.send(frame(METHOD, 1, publish(queue)) + frame(HEADER, 1, header(0)))
        one.put(METHOD, 1, get(queue))
        one.expect(BASIC_GET_OK)
        reset(one)


@case("owners/large-body")
def large_body(ctx):
    """A client that agreed on a heartbeat of 2 s and sends nothing but a body of 30 MB for longer than that is there."""
    queue, size, piece = ctx.address(), 30_000_000, 131072 - 8
    one = ChannelSocket(ctx, heartbeat=2)
    one.open_channel()
    one.put(METHOD, 1, declare(queue))
    one.expect(QUEUE_DECLARE_OK)
    one.send(frame(METHOD, 1, publish(queue)) + frame(HEADER, 1, header(size)))
    pieces = [min(piece, size - start) for start in range(0, size, piece)]
    for length in pieces:
        one.put(BODY, 1, b"x" * length)
        time.sleep(6.0 / len(pieces))
    one.put(METHOD, 1, get(queue))
    one.expect(BASIC_GET_OK)
    _, _, payload = one.take()
    equal(struct.unpack(">Q", payload[4:12])[0], size, "the size of the body")


@case("owners/cascade")
def cascade(ctx):
    """Exchanges that go with their last binding go one after another when the queue at the end goes."""
    pika = library(ctx)
    names = [f"{ctx.address()}.exchange.{n}" for n in range(5)]
    with connect(ctx) as connection:
        channel = connection.channel()
        for name in names:
            channel.exchange_declare(name, "fanout", auto_delete=True)
        queue = ctx.address()
        channel.queue_declare(queue)
        for source, destination in zip(names, names[1:]):
            channel.exchange_bind(destination, source)
        channel.queue_bind(queue, names[-1])
        channel.basic_publish(names[0], "", b"x")
        deadline = time.monotonic() + 10
        while channel.basic_get(queue, auto_ack=True)[0] is None:
            check(time.monotonic() < deadline, "the message did not come through the exchanges")
        channel.queue_delete(queue)
        for name in names:
            asking = connection.channel()
            try:
                asking.exchange_declare(name, passive=True)
            except pika.exceptions.ChannelClosedByBroker as closed:
                equal(closed.reply_code, 404, f"why {name} was not found")
            else:
                check(False, f"{name} is there without a binding")
