"""Bad input and hostile behaviour, from sockets without a library."""

import random
import socket
import struct
import threading
import time

from . import frames
from .bystander import raw_case
from .client import Client, message, settle
from .frames import (
    AMQP,
    AMQP091,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    SASL,
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
    nested,
    open_fields,
)
from .harness import Failure, check, equal
from .steps import connect, expect_rest


@raw_case("silence", seconds=90)
def silence(ctx, others):
    """Connections that say nothing, or half of what they must, end after the handshake's time; 300 of them hurt nobody."""
    halves = [b"", b"AMQ", AMQP, SASL, AMQP + struct.pack(">I", 60)]
    silent = [Socket(ctx, header=halves[index % 5]) for index in range(300)]
    others()
    began = time.monotonic()
    for one in silent:
        one.expect_end(25 - (time.monotonic() - began))
    others()


@raw_case("garbage")
def garbage(ctx, others):
    """Whatever is no header is answered with one the broker speaks, and the connection ends."""
    for sent in (
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        b"AMQP\x00\x02\x00\x00",
        b"AMQP\x00\x00\x08\x00",
        b"AMQP\x01\x01\x00\x0a",
        b"AMQP\x02\x01\x00\x00",
        b"AMQP\x07\x01\x00\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"\x00" * 4096,
        b"\xff" * 100_000,
    ):
        one = Socket(ctx, header=None)
        try:
            one.send(sent)
        except OSError:
            pass
        header = one.read(8)
        check(header in (AMQP, SASL, AMQP091), f"{sent[:8]!r} was answered with {header!r}")
        one.expect_end()
    others()


@raw_case("frame-of-4-gib")
def frame_of_4_gib(ctx, others):
    """A frame of 4 GiB by its header, before and after open: a framing error, and no memory for it."""
    huge = struct.pack(">IBBH", 0xFFFFFFFF, 2, 0, 0)
    early = Socket(ctx)
    early.send(huge)
    early.read_header(AMQP)
    early.expect_close("amqp:connection:framing-error")
    late = Socket(ctx)
    late.open()
    late.send(huge + b"x" * 100_000)
    others()
    late.expect_close("amqp:connection:framing-error")
    sasl = Socket(ctx, header=SASL)
    sasl.send(struct.pack(">IBBH", 0xFFFFFFFF, 2, 1, 0))
    sasl.expect_end()


@raw_case("frame-headers")
def frame_headers(ctx, others):
    """Sizes under 8, data offsets that are none, unknown types, more than was announced."""
    for what, sent in (
        ("size 0", struct.pack(">IBBH", 0, 2, 0, 0)),
        ("size 7", struct.pack(">IBBH", 7, 2, 0, 0)),
        ("offset 1", struct.pack(">IBBH", 8, 1, 0, 0)),
        ("offset 255", struct.pack(">IBBH", 16, 255, 0, 0) + b"x" * 8),
    ):
        one = Socket(ctx)
        one.open()
        one.send(sent)
        try:
            one.expect_close("amqp:connection:framing-error")
        except Failure as failure:
            raise Failure(f"{what}: {failure}")
    one = Socket(ctx)
    limit = one.open().field(2)
    one.begin()
    one.attach_sender(ctx.address())
    one.transfer(data(b"x" * limit))
    one.expect_close("amqp:connection:framing-error")
    others()


@raw_case("huge-lists")
def huge_lists(ctx, others):
    """Lists, maps, arrays and strings of 2^31 by their headers, where an open, a begin and an attach have fields."""
    many = 1 << 31
    values = [
        b"\xd0" + struct.pack(">II", 8, many),
        b"\xd0" + struct.pack(">II", many, many),
        b"\xd1" + struct.pack(">II", 4, many),
        b"\xf0" + struct.pack(">II", 5, many) + b"\x40",
        b"\xf0" + struct.pack(">II", 5, many) + b"\x45",
        b"\xb1" + struct.pack(">I", many),
        b"\xb0" + struct.pack(">I", 0xFFFFFFFF),
        b"\xa3\xff",
    ]
    for index, value in enumerate(values):
        for place in ("open", "begin", "attach", "fields"):
            one = Socket(ctx)
            if place == "open":
                one.frame(OPEN, [*open_fields()[:9], Raw(value)])
                one.read_header(AMQP)
            else:
                one.open()
            if place == "begin":
                one.frame(BEGIN, [None, Uint(0), Uint(10), Uint(10), None, Raw(value)])
            elif place == "attach":
                one.begin()
                one.frame(
                    ATTACH,
                    ["name", Uint(0), True, None, None, Described(0x28, [Raw(value)]), Described(0x29, [])],
                )
            elif place == "fields":
                one.send(struct.pack(">IBBH", 11 + len(value), 2, 0, 0) + b"\x00\x53\x11" + value)
            try:
                one.expect_close("amqp:decode-error")
            except Failure as failure:
                raise Failure(f"value {index} ({value[:9]!r}) in {place}: {failure}")
    others()


@raw_case("deep-nesting")
def deep_nesting(ctx, others):
    """Values nested 10,000 deep: in performatives an error; in a message the broker lives, whatever it says."""
    for kind in ("list", "described", "array"):
        value = nested(10_000 if kind != "list" else 6000, kind)
        for place in ("properties", "source"):
            one = Socket(ctx)
            if place == "properties":
                one.open()
                one.frame(BEGIN, [None, Uint(0), Uint(10), Uint(10), None, None, None, Raw(value)])
            else:
                one.open()
                one.begin()
                one.frame(
                    ATTACH,
                    ["name", Uint(0), True, None, None, Described(0x28, [Raw(value)]), Described(0x29, [])],
                )
            if len(value) > 65_000:
                one.expect_close(("amqp:decode-error", "amqp:connection:framing-error"))
                continue
            try:
                one.expect_close("amqp:decode-error")
            except Failure as failure:
                raise Failure(f"{kind} in {place}: {failure}")
        one = Socket(ctx)
        one.open()
        one.begin()
        one.attach_sender(ctx.address(kind))
        one.transfer(
            encode(
                Described(
                    0x72, Raw(b"\xd1" + struct.pack(">II", 11 + len(value), 2) + b"\xa3\x05x-opt" + value)
                )
            )
            + encode(Described(0x77, Raw(value)))[:30_000],
            more=False,
        )
        one.expect(DISPOSITION, CLOSE, DETACH, END)
    others()


@raw_case("wrong-sequence")
def wrong_sequence(ctx, others):
    """Performatives where they may not stand: the smallest thing closes, with the error the specification names."""
    first = Socket(ctx)
    first.frame(BEGIN, [None, Uint(0), Uint(10), Uint(10)])
    first.read_header(AMQP)
    first.expect_close(("amqp:illegal-state", "amqp:not-allowed", "amqp:connection:framing-error"))
    twice = Socket(ctx)
    twice.open()
    twice.frame(OPEN, open_fields())
    twice.expect_close(("amqp:illegal-state", "amqp:not-allowed", "amqp:connection:framing-error"))
    channel = Socket(ctx)
    channel.open()
    channel.frame(
        ATTACH, ["n", Uint(0), True, None, None, Described(0x28, ["q"]), Described(0x29, [])], channel=7
    )
    channel.expect_close(
        ("amqp:illegal-state", "amqp:not-allowed", "amqp:connection:framing-error", "amqp:not-found")
    )
    beyond = Socket(ctx)
    maximum = beyond.open().field(3)
    if maximum is not None and maximum < 65535:
        beyond.frame(BEGIN, [None, Uint(0), Uint(10), Uint(10)], channel=maximum + 1)
        beyond.expect_close(
            ("amqp:not-allowed", "amqp:connection:framing-error", "amqp:resource-limit-exceeded")
        )
    unknown = Socket(ctx)
    unknown.open()
    unknown.frame(0x7F, [])
    unknown.expect_close(("amqp:decode-error", "amqp:not-implemented", "amqp:connection:framing-error"))
    others()


@raw_case("session-faults")
def session_faults(ctx, others):
    """Faults of a session end it with their error and leave the connection and its other session alone."""
    for fault, condition in (
        ("unattached", "amqp:session:unattached-handle"),
        ("in-use", "amqp:session:handle-in-use"),
        ("window", "amqp:session:window-violation"),
    ):
        one = Socket(ctx)
        one.open()
        one.begin(channel=0)
        one.begin(channel=1)
        one.attach_sender(ctx.address(fault), channel=1)
        if fault == "unattached":
            one.transfer(data(b"x"), handle=5, channel=1)
        elif fault == "in-use":
            one.frame(
                ATTACH,
                ["other", Uint(0), False, None, None, Described(0x28, []), Described(0x29, ["q"])],
                channel=1,
            )
        else:
            # Far more than any window, in one piece. A broker that reopens its window in the middle is not overrun.
            piece = frame(1, TRANSFER, [Uint(0), None, None, None, None, True])
            one.transfer(b"", more=True, channel=1)
            one.send(piece * 20_000)
            try:
                equal(one.expect(END, seconds=2).condition(), condition, fault)
                one.send(frame(1, END, []))
            except Failure as nothing:
                check("nothing more" in str(nothing), str(nothing))
            one.attach_sender(ctx.address(fault + "-other"), channel=0, credit=False)
            continue
        ended = one.expect(END, DETACH)
        if ended.code == DETACH:
            ended = one.expect(END)
        equal(ended.condition(), condition, fault)
        one.send(frame(1, END, []))
        one.attach_sender(ctx.address(fault + "-other"), channel=0)
        one.next_delivery = 0
        one.transfer(data(b"x"), channel=0)
        one.expect(DISPOSITION)
    others()


@raw_case("over-credit")
def over_credit(ctx, others):
    """More transfers than credit: the link, not more, is detached with its error."""
    one = Socket(ctx)
    one.open()
    one.begin()
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
            Uint(0),
        ],
    )
    one.expect(ATTACH)
    credit = one.expect(FLOW).field(6)
    piece = b"".join(
        frame(0, TRANSFER, [Uint(0), Uint(index), struct.pack(">I", index), Uint(0), True], data(b"x"))
        for index in range(credit * 4)
    )
    # In one piece, so that the broker sees them all before it may grant more; it grants on storing, so this may be legal.
    one.send(piece)
    others()
    one.next_delivery = credit * 4
    client = connect(ctx)
    found = 0
    inbox = client.receiver(ctx.address())
    while True:
        taken = inbox.drain(1000)
        if not taken:
            break
        found += len(taken)
        for _, delivery in taken:
            settle(delivery)
    check(found >= credit, f"of {credit * 4} messages with a credit of {credit}, {found} were stored")


@raw_case("too-large")
def too_large(ctx, others):
    """A message that never ends: the link is detached with message-size-exceeded at the announced size, and no memory is left."""
    broker = ctx.tools.broker(ctx.broker.shards, "small", config='max-message-size = "1MiB"\n')
    ctx.later(broker.stop)
    inner = type(ctx)(broker, ctx.case, ctx.full, ctx.folder, ctx.tools)
    ctx.later(lambda: [cleanup() for cleanup in inner.cleanups])
    one = Socket(inner)
    one.open()
    one.begin()
    limit = one.attach_sender(ctx.address()).field(10)
    equal(limit, 1 << 20, "the announced max-message-size")
    one.transfer(b"\x00\x53\x75\xb0" + struct.pack(">I", 1 << 30), more=True)
    block = b"x" * 60_000
    for _ in range(20):
        one.transfer(block, more=True, first=False)
    equal(one.expect(DETACH).condition(), "amqp:link:message-size-exceeded", "the error")
    one.frame(DETACH, [Uint(0), True])
    one.next_delivery = 1
    one.attach_sender(ctx.address("small"), handle=0, name="again")
    one.transfer(data(b"y" * 1000))
    one.expect(DISPOSITION)


@raw_case("empty-frames")
def empty_frames(ctx, others):
    """A flood of empty frames, opens of sessions, attaches and detaches: bounded work, others go on."""
    one = Socket(ctx)
    one.open()
    empty = struct.pack(">IBBH", 8, 2, 0, 0)
    stop = threading.Event()

    def flood():
        try:
            while not stop.is_set():
                one.send(empty * 10_000)
        except OSError:
            pass

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    for _ in range(10):
        others()
    stop.set()
    thread.join(5)
    links = Socket(ctx)
    links.open()
    links.begin()
    attach = b"".join(
        frame(
            0,
            ATTACH,
            [
                f"l{index}",
                Uint(index),
                False,
                None,
                None,
                Described(0x28, []),
                Described(0x29, [f"{ctx.address('many')}.{index % 20}"]),
                None,
                None,
                Uint(0),
            ],
        )
        for index in range(101)
    )
    links.send(attach)
    for _ in range(101):
        links.expect(ATTACH)
    others()
    links.frame(
        ATTACH,
        [
            "beyond",
            Uint(200),
            False,
            None,
            None,
            Described(0x28, []),
            Described(0x29, ["q"]),
            None,
            None,
            Uint(0),
        ],
    )
    found = links.expect(ATTACH, CLOSE, END, DETACH)
    if found.code == ATTACH:
        # A handle above the peer's handle-max is an error; within it, this link is simply one more.
        check(found.field(0) == "beyond", f"unexpected {found!r}")


@raw_case("sasl")
def sasl(ctx, others):
    """SASL that goes wrong: an outcome that says no, or the end of the connection; never a way in."""

    def mechanisms(one):
        one.read_header(SASL)
        return one.expect(frames.MECHANISMS).field(0)

    one = Socket(ctx, header=SASL)
    offered = mechanisms(one)
    offered = offered if isinstance(offered, list) else [offered]
    check("ANONYMOUS" in offered and "PLAIN" in offered, f"offered {offered}")
    one.send(frame(0, frames.INIT, [Symbol("GSSAPI"), b"x"], kind=1))
    equal(one.expect(frames.OUTCOME).field(0), 1, "the outcome of an unknown mechanism")
    one.expect_end()
    for response in (
        b"",
        b"guest",
        b"\0guest\0wrong",
        b"\0\0",
        b"\0guest",
        b"a\0b\0c\0d",
        b"\xff\0\xfe\0\xfd",
    ):
        one = Socket(ctx, header=SASL)
        mechanisms(one)
        one.send(frame(0, frames.INIT, [Symbol("PLAIN"), response], kind=1))
        found = one.expect(frames.OUTCOME, frames.CHALLENGE)
        if found.code == frames.CHALLENGE:
            one.send(frame(0, frames.RESPONSE, [b"nonsense"], kind=1))
            found = one.expect(frames.OUTCOME)
        check(found.field(0) != 0, f"PLAIN with {response!r} was let in")
        one.expect_end()
    for wrong in (
        frame(0, OPEN, open_fields()),
        frame(0, frames.RESPONSE, [b"early"], kind=1),
        AMQP,
        struct.pack(">IBBH", 8, 2, 1, 0),
        frame(0, frames.INIT, [Symbol("PLAIN"), b"x" * 100_000], kind=1),
        frame(0, frames.INIT, [Raw(nested(5000))], kind=1),
    ):
        one = Socket(ctx, header=SASL)
        mechanisms(one)
        try:
            one.send(wrong)
        except OSError:
            pass
        one.expect_end()
    # In one write, as libraries do.
    one = Socket(ctx, header=None)
    one.send(
        SASL
        + frame(0, frames.INIT, [Symbol("PLAIN"), b"\0guest\0guest"], kind=1)
        + AMQP
        + frame(0, OPEN, open_fields())
    )
    mechanisms(one)
    equal(one.expect(frames.OUTCOME).field(0), 0, "the outcome of guest/guest on loopback")
    one.read_header(AMQP)
    one.expect(OPEN)
    others()


@raw_case("unfinished-answers")
def unfinished_answers(ctx, others):
    """Consumers of several queues on a connection that reads nothing: they block nobody, and their end returns all."""
    client = connect(ctx)
    count = 150
    names = [ctx.address(f"q{index}") for index in range(4)]
    for name in names:
        client.sender(name).send([message(seq, 50_000) for seq in range(count)], 40)
    one = Socket(ctx)
    one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.open()
    one.begin()
    for handle, name in enumerate(names, 1):
        one.attach_receiver(name, handle=handle)
    for handle in range(1, 5):
        one.flow(handle, 1000, window=0x7FFFFFFF)
    time.sleep(0.5)
    for _ in range(5):
        others()
    # Who shares a queue with it gets what it has not been sent.
    shared = client.receiver(names[0])
    check(len(shared.drain(10)) == 10, "nothing is left for another consumer of the queue")
    shared.close()
    one.socket.close()
    time.sleep(0.3)
    for name in names:
        expect_rest(client, name, range(count), "after a consumer that never read")


def conversation(address):
    """A valid session with everything in it, as one piece."""
    return (
        AMQP
        + frame(0, OPEN, open_fields(properties={Symbol("product"): "x"}))
        + frame(0, BEGIN, [None, Uint(0), Uint(100), Uint(100), Uint(10)])
        + frame(
            0,
            ATTACH,
            [
                "s",
                Uint(0),
                False,
                Ubyte(2),
                Ubyte(0),
                Described(0x28, ["a"]),
                Described(0x29, [address]),
                None,
                None,
                Uint(0),
            ],
        )
        + frame(
            0,
            ATTACH,
            [
                "r",
                Uint(1),
                True,
                None,
                None,
                Described(
                    0x28,
                    [
                        address,
                        None,
                        None,
                        None,
                        None,
                        None,
                        Symbol("copy"),
                        {Symbol("f"): Described(0x75, "x")},
                    ],
                ),
                Described(0x29, []),
            ],
        )
        + frame(
            0, FLOW, [Uint(0), Uint(100), Uint(0), Uint(100), Uint(1), Uint(0), Uint(10), None, True, True]
        )
        + frame(
            0,
            TRANSFER,
            [Uint(0), Uint(0), b"t", Uint(0), False, False],
            encode(Described(0x70, [True, Ubyte(4), Uint(1000)]))
            + encode(Described(0x72, {Symbol("x-opt-a"): [1, 2]}))
            + encode(Described(0x73, ["id", None, None, "subject"]))
            + encode(Described(0x74, {"k": 1}))
            + data(b"body"),
        )
        + frame(0, DISPOSITION, [True, Uint(0), Uint(5), True, Described(0x27, [True, True])])
        + frame(0, DETACH, [Uint(0), True])
        + frame(0, END, [])
        + frame(0, CLOSE, [])
    )


@raw_case("mutations", seconds=150)
def mutations(ctx, others):
    """A valid conversation cut at each place, and with bytes changed: connections end, the broker does not."""
    whole = conversation(ctx.address())
    chance = random.Random(7)
    pieces = [whole[:at] for at in range(0, len(whole), 3 if ctx.full else 11)]
    for _ in range(3000 if ctx.full else 400):
        changed = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 8))):
            changed[chance.randrange(8, len(changed))] = chance.choice(
                (0, 1, 0x40, 0x45, 0x7F, 0x80, 0xC0, 0xD0, 0xFF, chance.randrange(256))
            )
        pieces.append(bytes(changed))
    for index, piece in enumerate(pieces):
        with socket.create_connection((ctx.broker.host, ctx.broker.port), 5) as one:
            one.settimeout(5)
            try:
                one.sendall(piece)
                if index % 2:
                    # All was said: the broker ends the connection, whatever it made of it.
                    one.shutdown(socket.SHUT_WR)
                    while one.recv(65536):
                        pass
                else:
                    # The broker answers, or waits for more; what it is in the middle of is then cut off.
                    one.settimeout(0.02)
                    while one.recv(65536):
                        pass
            except TimeoutError:
                if index % 2:
                    raise Failure(f"piece {index} left the broker silent: {piece!r}")
            except OSError:
                pass
        if index % 100 == 0:
            others()


@raw_case("reconnect-storm", seconds=90)
def reconnect_storm(ctx, others):
    """2,000 connections that come and go, many without a word: the memory comes back, others go on."""
    for turn in range(3):
        for index in range(700):
            one = socket.create_connection((ctx.broker.host, ctx.broker.port), 5)
            if index % 3:
                one.sendall(
                    AMQP
                    + frame(0, OPEN, open_fields())
                    + frame(0, BEGIN, [None, Uint(0), Uint(10), Uint(10)])
                    + frame(
                        0,
                        ATTACH,
                        [
                            "r",
                            Uint(0),
                            True,
                            None,
                            None,
                            Described(0x28, [f"{ctx.address()}.{index % 50}"]),
                            Described(0x29, []),
                        ],
                    )
                    + frame(0, FLOW, [Uint(0), Uint(10), Uint(0), Uint(10), Uint(0), Uint(0), Uint(10)])
                )
            if index % 2:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()
        others()


@raw_case("memory", seconds=90)
def memory(ctx, others):
    """A queue that fills the memory there is for messages: refused with an error, and taken again when there is room."""
    broker = ctx.tools.broker(ctx.broker.shards, "memory", arguments=["--memory", "64MiB"])
    ctx.later(broker.stop)
    client = Client(broker.url)
    ctx.later(client.close)
    before = broker.resident_bytes()
    sender = client.sender("full")
    sender.start(message(seq, 100_000) for seq in range(1200))
    client.wait(lambda: sender.step() or sender.done() or sender.box.error, "outcomes of all", 40)
    check(not sender.box.error, f"the link was closed: {sender.box.error}")
    stored = len(sender.box.accepted)
    refused = len(sender.box.rejected) + len(sender.box.released) + len(sender.box.modified)
    check(
        refused > 0 and stored > 50, f"{stored} messages of 100 kB were stored, {refused} refused, in 64 MiB"
    )
    grown = broker.resident_bytes() - before
    check(grown < 160 << 20, f"the broker grew by {grown >> 20} MiB for 64 MiB of messages")
    receiver = client.receiver("full")
    taken = receiver.drain(stored)
    equal(len(taken), stored, "messages that were stored")
    for _, delivery in taken:
        settle(delivery)
    again = client.sender("full")
    again.send([message(seq, 100_000) for seq in range(50)])
    equal(len(again.box.accepted), 50, "messages accepted when there was room again")


@raw_case("partial-messages", seconds=90)
def partial_messages(ctx, others):
    """Large messages that are never completed, on many links: bounded in sum, and an error for who goes beyond."""
    broker = ctx.tools.broker(ctx.broker.shards, "partial", arguments=["--memory", "64MiB"])
    ctx.later(broker.stop)
    inner = type(ctx)(broker, ctx.case, ctx.full, ctx.folder, ctx.tools)
    ctx.later(lambda: [cleanup() for cleanup in inner.cleanups])
    before = broker.resident_bytes()
    block = frame(0, TRANSFER, [Uint(0), None, None, None, False, True], b"x" * 60_000) * 20
    ended = 0
    for index in range(20):
        one = Socket(inner)
        one.open()
        one.begin()
        one.attach_sender(ctx.address(str(index)))
        one.transfer(b"\x00\x53\x75\xb0" + struct.pack(">I", 1 << 27), more=True)
        try:
            # Less than the largest message of a shard with so little memory.
            for _ in range(8):
                one.send(block)
            found = one.expect(DETACH, END, CLOSE, DISPOSITION, seconds=0.5)
            ended += 1
            if found.code != DISPOSITION:
                equal(found.condition(), "amqp:resource-limit-exceeded", "the error")
        except OSError:
            ended += 1
        except Failure as nothing:
            if "nothing more" not in str(nothing):
                raise
    grown = broker.resident_bytes() - before
    check(grown < 200 << 20, f"the broker grew by {grown >> 20} MiB, and {ended} of 20 were told")
    check(ended > 0, "nobody was told")
    # Small messages still pass.
    client = Client(broker.url)
    ctx.later(client.close)
    client.sender("small").send([message(0)])
