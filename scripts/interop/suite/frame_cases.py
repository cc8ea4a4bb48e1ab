"""Correct input that no library sends, frame by frame."""

import socket
import struct
import time

from .bystander import raw_case
from .client import message, messages, seqs
from .frames import (
    AMQP,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    TRANSFER,
    Described,
    Raw,
    Socket,
    Symbol,
    Ubyte,
    Uint,
    data,
    encode,
    frame,
    open_fields,
)
from .harness import Failure, check, equal
from .steps import connect, expect_rest


@raw_case("half-messages")
def half_messages(ctx, others):
    """Two of three frames and then aborted, detached, or gone: nothing is enqueued, and the credit is still right."""
    address = ctx.address()
    for ending in ("aborted", "detached", "ended", "gone"):
        one = Socket(ctx)
        one.open()
        one.begin()
        one.attach_sender(address)
        one.transfer(data(b"x" * 1000)[:500], more=True)
        one.transfer(data(b"x" * 1000)[500:800], more=True, first=False)
        if ending == "aborted":
            one.transfer(b"", aborted=True, first=False)
            one.transfer(data(b"after"))
            found = one.expect(DISPOSITION)
            equal(
                (found.field(1), found.field(2) in (None, 1)),
                (1, True),
                "the disposition after an aborted delivery",
            )
        elif ending == "detached":
            one.frame(DETACH, [Uint(0), True])
            equal(one.expect(DETACH).condition(), None, "the answer to a detach in the middle of a message")
        elif ending == "ended":
            one.frame(END, [])
            one.expect(END)
        else:
            one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.socket.close()
    others()
    client = connect(ctx)
    taken = client.receiver(address).drain(10)
    equal([bytes(received.body) for received, _ in taken], [b"after"], "what was enqueued")


@raw_case("interleaved")
def interleaved(ctx, others):
    """Frames of messages on two links of a session, in turns, later ones without id and tag: each is joined on its own."""
    one = Socket(ctx)
    one.open()
    one.begin()
    names = [ctx.address(f"q{index}") for index in range(2)]
    for handle, address in enumerate(names):
        one.attach_sender(address, handle=handle)
    bodies = [bytes([65 + index]) * 30_000 for index in range(2)]
    whole = [data(body) for body in bodies]
    for step in range(0, len(whole[0]), 5000):
        for handle in range(2):
            last = step + 5000 >= len(whole[handle])
            one.transfer(whole[handle][step : step + 5000], handle=handle, more=not last, first=step == 0)
    settled = set()
    while len(settled) < 2:
        found = one.expect(DISPOSITION)
        settled |= set(range(found.field(1), (found.field(2) or found.field(1)) + 1))
    equal(settled, {0, 1}, "deliveries settled")
    client = connect(ctx)
    for address, body in zip(names, bodies):
        received = client.receiver(address, credit=1).take(1)[0][0]
        check(bytes(received.body) == body, f"the message of {address} is not what was sent")


@raw_case("small-writes")
def small_writes(ctx, others):
    """A whole conversation byte by byte, and another one in a single write before anything was read."""
    address = ctx.address()
    conversation = (
        AMQP
        + frame(0, OPEN, open_fields())
        + frame(0, BEGIN, [None, Uint(0), Uint(2048), Uint(2048)])
        + frame(
            0,
            ATTACH,
            [
                "s",
                Uint(0),
                False,
                None,
                None,
                Described(0x28, []),
                Described(0x29, [address]),
                None,
                None,
                Uint(0),
            ],
        )
        + frame(0, ATTACH, ["r", Uint(1), True, None, None, Described(0x28, [address]), Described(0x29, [])])
        + frame(0, FLOW, [Uint(0), Uint(2048), Uint(0), Uint(2048), Uint(1), Uint(0), Uint(10)])
    )
    for step in (1, len(conversation)):
        one = Socket(ctx, header=None)
        for at in range(0, len(conversation), step):
            one.send(conversation[at : at + step])
        one.read_header(AMQP)
        for code in (OPEN, BEGIN, ATTACH, ATTACH):
            one.expect(code)
        one.transfer(data(b"hello"), settled=True)
        found = one.expect(TRANSFER)
        check(found.payload.endswith(b"hello"), f"received {found.payload!r}")
        one.frame(DISPOSITION, [True, Uint(found.field(1)), None, True, Described(0x24, [])])
        one.frame(CLOSE, [])
        one.expect(CLOSE)
        one.expect_end()
    others()


@raw_case("idle")
def idle(ctx, others):
    """A peer that falls silent is closed with an error after the announced time; a client's own time is kept by heartbeats."""
    broker = ctx.tools.broker(ctx.broker.shards, "idle", config='idle-timeout = "2s"\n')
    ctx.later(broker.stop)
    inner = type(ctx)(broker, ctx.case, ctx.full, ctx.folder, ctx.tools)
    ctx.later(lambda: [cleanup() for cleanup in inner.cleanups])
    one = Socket(inner)
    began = time.monotonic()
    equal(one.open().field(4), 1000, "the announced idle-time-out, half of the real one")
    one.expect_close("amqp:resource-limit-exceeded", seconds=6)
    took = time.monotonic() - began
    check(1.5 < took < 4.5, f"closed after {took:.1f} s instead of 2 s")
    # Ours: an empty frame at the latest after half of what we announced, for as long as we send some ourselves.
    other = Socket(inner)
    other.open(idle_timeout=1000)
    last = time.monotonic()
    for _ in range(12):
        other.send(struct.pack(">IBBH", 8, 2, 0, 0))
        equal(other.read_frame(2).code, None, "a heartbeat")
        now = time.monotonic()
        check(now - last < 0.9, f"{now - last:.2f} s without a heartbeat, 1 s was announced")
        last = now


@raw_case("flow-arithmetic")
def flow_arithmetic(ctx, others):
    """Credit is what the receiver said last: granted 10, got 4, granted 10 again is 10, not 16; and credit 0 stops."""
    client = connect(ctx)
    sender = client.sender(ctx.address())
    sender.send(messages(4))
    one = Socket(ctx)
    one.open()
    one.begin()
    handle = one.attach_receiver(ctx.address()).field(1)
    one.flow(1, 10)
    for _ in range(4):
        one.expect(TRANSFER)
    one.flow(1, 10, delivery_count=4, incoming=4)
    sender.send(messages(20))
    for _ in range(10):
        one.expect(TRANSFER)
    try:
        extra = one.expect(TRANSFER, seconds=0.5)
        raise Failure(f"beyond the credit came {extra!r}")
    except Failure as nothing:
        check("nothing more" in str(nothing), str(nothing))
    one.flow(1, 3, delivery_count=14, incoming=14)
    for _ in range(3):
        one.expect(TRANSFER)
    # A drain with more credit than messages: three transfers, then the flow that gives the credit back.
    one.flow(1, 10, drain=True, delivery_count=17, incoming=17)
    for _ in range(7):
        one.expect(TRANSFER)
    answer = one.expect(FLOW)
    equal(
        (answer.field(5), answer.field(6) or 0, answer.field(8)),
        (27, 0, True),
        "delivery-count, link-credit, drain",
    )
    sender.send([message(99)])
    one.send(
        frame(
            0,
            FLOW,
            [Uint(24), Uint(2048), Uint(0), Uint(2048), Uint(1), Uint(27), Uint(0), None, False, True],
        )
    )
    answer = one.expect(FLOW)
    equal((answer.field(4), answer.field(6) or 0), (handle, 0), "handle and link-credit in the echo")
    others()


@raw_case("window")
def window(ctx, others):
    """A session window of two transfers: the broker stops there though the link has credit, and goes on when it opens."""
    client = connect(ctx)
    client.sender(ctx.address()).send(messages(7))
    one = Socket(ctx)
    one.open()
    one.begin(window=2)
    one.attach_receiver(ctx.address())
    one.flow(1, 100, window=2)
    seen = 0
    while seen < 6:
        for _ in range(2):
            one.expect(TRANSFER)
        seen += 2
        try:
            raise Failure(f"beyond the window came {one.expect(TRANSFER, seconds=0.3)!r}")
        except Failure as nothing:
            check("nothing more" in str(nothing), str(nothing))
        # The window alone, without a word of the link.
        one.send(frame(0, FLOW, [Uint(seen), Uint(2), Uint(0), Uint(2048)]))
    one.expect(TRANSFER)
    others()


@raw_case("dispositions")
def dispositions(ctx, others):
    """A range with holes and ids long settled, or never seen: each delivery is settled once, in order, unknown ones ignored."""
    client = connect(ctx)
    client.sender(ctx.address()).send(messages(20))
    one = Socket(ctx)
    one.open()
    one.begin()
    one.attach_receiver(ctx.address())
    one.flow(1, 20)
    ids = [one.expect(TRANSFER).field(1) for _ in range(20)]
    accepted, released = Described(0x24, []), Described(0x26, [])
    one.frame(DISPOSITION, [True, Uint(ids[3]), None, True, accepted])
    one.frame(DISPOSITION, [True, Uint(ids[5]), Uint(ids[6]), True, accepted])
    one.frame(DISPOSITION, [True, Uint(ids[2]), Uint(ids[9]), True, released])
    one.frame(DISPOSITION, [True, Uint(ids[0]), Uint(ids[9]), True, accepted])
    one.frame(DISPOSITION, [True, Uint(ids[19] + 5), Uint(ids[19] + 1000), True, accepted])
    one.frame(DISPOSITION, [True, Uint(0), Uint(0xFFFFFFF0), True, Raw(encode(accepted))])
    one.frame(DETACH, [Uint(1), True])
    one.expect(DETACH, END, CLOSE)
    others()
    found = seqs(client.receiver(ctx.address()).drain(100))
    check(found[:5] == [2, 4, 7, 8, 9], f"left in the queue: {found}")


@raw_case("serial-numbers")
def serial_numbers(ctx, others):
    """Delivery-ids, transfer-ids and delivery-counts that pass 2^32, both ways."""
    near = 0xFFFFFFFD
    one = Socket(ctx)
    one.open()
    one.frame(BEGIN, [None, Uint(near), Uint(2048), Uint(2048), Uint(100)])
    one.expect(BEGIN)
    one.frame(
        ATTACH,
        [
            "s",
            Uint(0),
            False,
            None,
            None,
            Described(0x28, []),
            Described(0x29, [ctx.address()]),
            None,
            None,
            Uint(near),
        ],
    )
    one.expect(ATTACH)
    credit = one.expect(FLOW)
    equal(credit.field(5), near, "delivery-count in the grant")
    count = 20
    for index in range(count):
        number = (near + index) & 0xFFFFFFFF
        one.frame(
            TRANSFER,
            [Uint(0), Uint(number), struct.pack(">I", index), Uint(0), False, False],
            data(b"%d" % index),
        )
    settled = []
    while len(settled) < count:
        found = one.expect(DISPOSITION)
        first = found.field(1)
        last = first if found.field(2) is None else found.field(2)
        settled += [(first + step) & 0xFFFFFFFF for step in range(((last - first) & 0xFFFFFFFF) + 1)]
    equal(settled, [(near + index) & 0xFFFFFFFF for index in range(count)], "deliveries settled")
    handle = one.attach_receiver(ctx.address()).field(1)
    for index in range(count):
        one.flow(1, 1, delivery_count=index, incoming=index)
        found = one.expect(TRANSFER)
        equal(found.field(0), handle, "handle")
        check(found.payload.endswith(b"%d" % index), f"transfer {index}: {found.payload!r}")
    # All the credit there is.
    one.flow(1, 0xFFFFFFFF, delivery_count=count, incoming=count)
    one.transfer(data(b"more"), settled=True, tag=b"more")
    others()


@raw_case("settle-second")
def settle_second(ctx, others):
    """rcv-settle-mode second, both ways: the outcome first, settled only when the other side has settled."""
    one = Socket(ctx)
    one.open()
    one.begin()
    one.frame(
        ATTACH,
        [
            "s",
            Uint(0),
            False,
            Ubyte(0),
            Ubyte(1),
            Described(0x28, []),
            Described(0x29, [ctx.address()]),
            None,
            None,
            Uint(0),
        ],
    )
    answer = one.expect(ATTACH)
    one.expect(FLOW)
    one.transfer(data(b"one"))
    found = one.expect(DISPOSITION)
    if answer.field(4) == 1:
        equal((found.field(3) or False, found.field(4).code), (False, 0x24), "the outcome, not settled yet")
        one.frame(DISPOSITION, [False, Uint(0), None, True, Described(0x24, [])])
    one.frame(
        ATTACH,
        ["r", Uint(1), True, Ubyte(0), Ubyte(1), Described(0x28, [ctx.address()]), Described(0x29, [])],
    )
    equal(one.expect(ATTACH).field(4), 1, "rcv-settle-mode in the answer")
    one.flow(1, 10)
    found = one.expect(TRANSFER)
    check(not found.field(4), "a transfer to a receiver that settles second is settled")
    number = found.field(1)
    one.frame(DISPOSITION, [True, Uint(number), None, False, Described(0x24, [])])
    found = one.expect(DISPOSITION)
    equal(
        (found.field(0) or False, found.field(1), found.field(3)),
        (False, number, True),
        "role, delivery and settled",
    )
    one.frame(DISPOSITION, [True, Uint(number), None, True, Described(0x24, [])])
    one.frame(DETACH, [Uint(1), True])
    one.expect(DETACH)
    others()
    client = connect(ctx)
    expect_rest(client, ctx.address(), [])


@raw_case("session-end")
def session_end(ctx, others):
    """A session ended, and a link detached without being closed, with unsettled deliveries: they come back in order."""
    client = connect(ctx)
    sender = client.sender(ctx.address())
    sender.send(messages(30))
    one = Socket(ctx)
    one.open()
    for ending in ("end", "detach"):
        one.begin(channel=0)
        one.begin(channel=1)
        one.attach_receiver(ctx.address(), channel=1)
        one.flow(1, 20, channel=1)
        for _ in range(20):
            one.expect(TRANSFER)
        if ending == "end":
            one.send(frame(1, END, []))
            one.expect(END)
        else:
            one.send(frame(1, DETACH, [Uint(1), False]))
            one.expect(DETACH)
        inbox = client.receiver(ctx.address(), credit=30)
        equal(seqs(inbox.take(30)), list(range(30)), f"after {ending}")
        inbox.close()
        if ending == "detach":
            one.send(frame(1, END, []))
            one.expect(END)
        one.send(frame(0, END, []))
        one.expect(END)
    others()


@raw_case("quiet", seconds=40)
def quiet(ctx, others):
    """With connections that do nothing the broker does nothing."""
    idle = [Socket(ctx) for _ in range(50)]
    for one in idle:
        one.open()
    time.sleep(0.5)
    before = ctx.broker.processor_seconds()
    time.sleep(3)
    used = ctx.broker.processor_seconds() - before
    check(used < 0.15, f"{used:.2f} s of processor time in 3 idle seconds")


@raw_case("refused-attaches")
def refused_attaches(ctx, others):
    """What an attach lacks, or asks for and cannot have: no terminus in the answer, a detach that says why, and the session lives."""
    source, target = Described(0x28, [ctx.address()]), Described(0x29, [ctx.address()])
    unknown_mode = Described(0x28, [ctx.address(), *[None] * 5, Symbol("browse")])
    no_address = Described(0x28, [])
    one = Socket(ctx)
    one.open()
    one.begin()
    for name, is_receiver, source_of, target_of, condition in (
        ("no source", True, None, target, "amqp:not-found"),
        ("no target", False, source, None, "amqp:not-found"),
        ("no address", True, no_address, target, "amqp:invalid-field"),
        ("an unknown distribution mode", True, unknown_mode, target, "amqp:invalid-field"),
    ):
        one.frame(ATTACH, [name, Uint(0), is_receiver, None, None, source_of, target_of, None, None, Uint(0)])
        answer = one.expect(ATTACH)
        equal(answer.field(5 if is_receiver else 6), None, f"our terminus in the answer to {name}")
        found = one.expect(DETACH)
        equal((found.condition(), found.field(1)), (condition, True), f"error and closed after {name}")
        one.frame(DETACH, [Uint(0), True])
    one.attach_sender(ctx.address())
    others()


@raw_case("unreasonable-idle-timeout")
def unreasonable_idle_timeout(ctx, others):
    """A peer that wants to hear something every millisecond is told that it will not."""
    one = Socket(ctx)
    one.frame(OPEN, open_fields(idle_timeout=1))
    one.read_header(AMQP)
    one.expect_close("amqp:invalid-field")
    others()
