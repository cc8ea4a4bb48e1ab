"""Bad input, and correct input no library would send, from sockets without a library.

In each case another connection works before and after, and the broker's memory stays bounded.
"""

import random
import socket
import struct
import threading
import time

from . import frames
from .client import Client, message, messages, seqs, settle
from .frames import (AMQP, ATTACH, BEGIN, CLOSE, DETACH, DISPOSITION, END, FLOW, OPEN, SASL, TRANSFER, Described, Raw, Socket,
                     Symbol, Ubyte, Uint, data, encode, frame, nested, open_fields)
from .harness import Failure, case, check, equal
from .proton_cases import expect_rest

MEMORY_MAX = 64 << 20


def raw_case(name, **options):
    """A case around which a bystander works and the memory is watched."""
    def declare(body):
        @case(f"raw/{name}", own_only=True, **options)
        def run(ctx):
            bystander = Client(ctx.url)
            ctx.later(bystander.close)
            ping(bystander, ctx)
            before = ctx.broker.resident_bytes()
            body(ctx, lambda: ping(bystander, ctx))
            ping(bystander, ctx)
            grown = ctx.broker.resident_bytes() - before
            check(grown < MEMORY_MAX, f"the broker grew by {grown >> 20} MiB")
        run.__doc__ = body.__doc__
        return body
    return declare


def ping(client, ctx):
    """A message there and back, soon."""
    address = ctx.address("ping")
    began = time.monotonic()
    client.sender(address).send([message(0)])
    receiver = client.receiver(address, credit=1)
    settle(receiver.take(1, 5)[0][1])
    receiver.close()
    took = time.monotonic() - began
    check(took < 3, f"a bystander's message took {took:.1f} s")


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
    """Whatever is no header is answered with the header the broker speaks, and the connection ends."""
    for sent in (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", b"AMQP\x00\x02\x00\x00", b"AMQP\x00\x00\x09\x01", b"AMQP\x01\x01\x00\x0a",
                 b"AMQP\x02\x01\x00\x00", b"AMQP\x07\x01\x00\x00", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"\x00" * 4096,
                 b"\xff" * 100_000):
        one = Socket(ctx, header=None)
        try:
            one.send(sent)
        except OSError:
            pass
        header = one.read(8)
        check(header in (AMQP, SASL), f"{sent[:8]!r} was answered with {header!r}")
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
    for what, sent in (("size 0", struct.pack(">IBBH", 0, 2, 0, 0)), ("size 7", struct.pack(">IBBH", 7, 2, 0, 0)),
                       ("offset 1", struct.pack(">IBBH", 8, 1, 0, 0)), ("offset 255", struct.pack(">IBBH", 16, 255, 0, 0) + b"x" * 8)):
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
    values = [b"\xd0" + struct.pack(">II", 8, many), b"\xd0" + struct.pack(">II", many, many), b"\xd1" + struct.pack(">II", 4, many),
              b"\xf0" + struct.pack(">II", 5, many) + b"\x40", b"\xf0" + struct.pack(">II", 5, many) + b"\x45",
              b"\xb1" + struct.pack(">I", many), b"\xb0" + struct.pack(">I", 0xFFFFFFFF), b"\xa3\xff"]
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
                one.frame(ATTACH, ["name", Uint(0), True, None, None, Described(0x28, [Raw(value)]), Described(0x29, [])])
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
                one.frame(ATTACH, ["name", Uint(0), True, None, None, Described(0x28, [Raw(value)]), Described(0x29, [])])
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
        one.transfer(encode(Described(0x72, Raw(b"\xd1" + struct.pack(">II", 11 + len(value), 2) + b"\xa3\x05x-opt" + value)))
                     + encode(Described(0x77, Raw(value)))[:30_000], more=False)
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
    channel.frame(ATTACH, ["n", Uint(0), True, None, None, Described(0x28, ["q"]), Described(0x29, [])], channel=7)
    channel.expect_close(("amqp:illegal-state", "amqp:not-allowed", "amqp:connection:framing-error", "amqp:not-found"))
    beyond = Socket(ctx)
    maximum = beyond.open().field(3)
    if maximum is not None and maximum < 65535:
        beyond.frame(BEGIN, [None, Uint(0), Uint(10), Uint(10)], channel=maximum + 1)
        beyond.expect_close(("amqp:not-allowed", "amqp:connection:framing-error", "amqp:resource-limit-exceeded"))
    unknown = Socket(ctx)
    unknown.open()
    unknown.frame(0x7F, [])
    unknown.expect_close(("amqp:decode-error", "amqp:not-implemented", "amqp:connection:framing-error"))
    others()


@raw_case("session-faults")
def session_faults(ctx, others):
    """Faults of a session end it with their error and leave the connection and its other session alone."""
    for fault, condition in (("unattached", "amqp:session:unattached-handle"), ("in-use", "amqp:session:handle-in-use"),
                             ("window", "amqp:session:window-violation")):
        one = Socket(ctx)
        one.open()
        one.begin(channel=0)
        one.begin(channel=1)
        one.attach_sender(ctx.address(fault), channel=1)
        if fault == "unattached":
            one.transfer(data(b"x"), handle=5, channel=1)
        elif fault == "in-use":
            one.frame(ATTACH, ["other", Uint(0), False, None, None, Described(0x28, []), Described(0x29, ["q"])], channel=1)
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
    one.frame(ATTACH, ["s", Uint(0), False, None, None, Described(0x28, []), Described(0x29, [ctx.address()]), None, None, Uint(0)])
    one.expect(ATTACH)
    credit = one.expect(FLOW).field(6)
    piece = b"".join(frame(0, TRANSFER, [Uint(0), Uint(index), struct.pack(">I", index), Uint(0), True], data(b"x"))
                     for index in range(credit * 4))
    # In one piece, so that the broker sees them all before it may grant more; it grants on storing, so this may be legal.
    one.send(piece)
    others()
    one.next_delivery = credit * 4
    receiver = Client(ctx.url)
    ctx.later(receiver.close)
    found = 0
    inbox = receiver.receiver(ctx.address())
    while True:
        taken = inbox.drain(1000)
        if not taken:
            break
        found += len(taken)
        for _, delivery in taken:
            settle(delivery)
    check(found >= credit, f"of {credit * 4} messages with a credit of {credit}, {found} were stored")


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
            equal((found.field(1), found.field(2) in (None, 1)), (1, True), "the disposition after an aborted delivery")
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
    client = Client(ctx.url)
    ctx.later(client.close)
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
            one.transfer(whole[handle][step:step + 5000], handle=handle, more=not last, first=step == 0)
    settled = set()
    while len(settled) < 2:
        found = one.expect(DISPOSITION)
        settled |= set(range(found.field(1), (found.field(2) or found.field(1)) + 1))
    equal(settled, {0, 1}, "deliveries settled")
    client = Client(ctx.url)
    ctx.later(client.close)
    for address, body in zip(names, bodies):
        received = client.receiver(address, credit=1).take(1)[0][0]
        check(bytes(received.body) == body, f"the message of {address} is not what was sent")


@raw_case("small-writes")
def small_writes(ctx, others):
    """A whole conversation byte by byte, and another one in a single write before anything was read."""
    address = ctx.address()
    conversation = (AMQP + frame(0, OPEN, open_fields()) + frame(0, BEGIN, [None, Uint(0), Uint(2048), Uint(2048)])
                    + frame(0, ATTACH, ["s", Uint(0), False, None, None, Described(0x28, []), Described(0x29, [address]),
                                        None, None, Uint(0)])
                    + frame(0, ATTACH, ["r", Uint(1), True, None, None, Described(0x28, [address]), Described(0x29, [])])
                    + frame(0, FLOW, [Uint(0), Uint(2048), Uint(0), Uint(2048), Uint(1), Uint(0), Uint(10)]))
    for step in (1, len(conversation)):
        one = Socket(ctx, header=None)
        for at in range(0, len(conversation), step):
            one.send(conversation[at:at + step])
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


@raw_case("too-large")
def too_large(ctx, others):
    """A message that never ends: the link is detached with message-size-exceeded at the announced size, and no memory is left."""
    broker = ctx.tools.broker(ctx.broker.shards, "small", config='in-memory = true\nmax-message-size = "1MiB"\n')
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


@raw_case("idle")
def idle(ctx, others):
    """A peer that falls silent is closed with an error after the announced time; a client's own time is kept by heartbeats."""
    broker = ctx.tools.broker(ctx.broker.shards, "idle", config='in-memory = true\nidle-timeout = "2s"\n')
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
    attach = b"".join(frame(0, ATTACH, [f"l{index}", Uint(index), False, None, None, Described(0x28, []),
                                        Described(0x29, [f"{ctx.address('many')}.{index % 20}"]), None, None, Uint(0)])
                      for index in range(101))
    links.send(attach)
    for _ in range(101):
        links.expect(ATTACH)
    others()
    links.frame(ATTACH, ["beyond", Uint(200), False, None, None, Described(0x28, []), Described(0x29, ["q"]), None, None, Uint(0)])
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
    for response in (b"", b"guest", b"\0guest\0wrong", b"\0\0", b"\0guest", b"a\0b\0c\0d", b"\xff\0\xfe\0\xfd"):
        one = Socket(ctx, header=SASL)
        mechanisms(one)
        one.send(frame(0, frames.INIT, [Symbol("PLAIN"), response], kind=1))
        found = one.expect(frames.OUTCOME, frames.CHALLENGE)
        if found.code == frames.CHALLENGE:
            one.send(frame(0, frames.RESPONSE, [b"nonsense"], kind=1))
            found = one.expect(frames.OUTCOME)
        check(found.field(0) != 0, f"PLAIN with {response!r} was let in")
        one.expect_end()
    for wrong in (frame(0, OPEN, open_fields()), frame(0, frames.RESPONSE, [b"early"], kind=1), AMQP,
                  struct.pack(">IBBH", 8, 2, 1, 0), frame(0, frames.INIT, [Symbol("PLAIN"), b"x" * 100_000], kind=1),
                  frame(0, frames.INIT, [Raw(nested(5000))], kind=1)):
        one = Socket(ctx, header=SASL)
        mechanisms(one)
        try:
            one.send(wrong)
        except OSError:
            pass
        one.expect_end()
    # In one write, as libraries do.
    one = Socket(ctx, header=None)
    one.send(SASL + frame(0, frames.INIT, [Symbol("PLAIN"), b"\0guest\0guest"], kind=1) + AMQP + frame(0, OPEN, open_fields()))
    mechanisms(one)
    equal(one.expect(frames.OUTCOME).field(0), 0, "the outcome of guest/guest on loopback")
    one.read_header(AMQP)
    one.expect(OPEN)
    others()


@raw_case("flow-arithmetic")
def flow_arithmetic(ctx, others):
    """Credit is what the receiver said last: granted 10, got 4, granted 10 again is 10, not 16; and credit 0 stops."""
    client = Client(ctx.url)
    ctx.later(client.close)
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
    equal((answer.field(5), answer.field(6) or 0, answer.field(8)), (27, 0, True), "delivery-count, link-credit, drain")
    sender.send([message(99)])
    one.send(frame(0, FLOW, [Uint(24), Uint(2048), Uint(0), Uint(2048), Uint(1), Uint(27), Uint(0), None, False, True]))
    answer = one.expect(FLOW)
    equal((answer.field(4), answer.field(6) or 0), (handle, 0), "handle and link-credit in the echo")
    others()


@raw_case("window")
def window(ctx, others):
    """A session window of two transfers: the broker stops there though the link has credit, and goes on when it opens."""
    client = Client(ctx.url)
    ctx.later(client.close)
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
    client = Client(ctx.url)
    ctx.later(client.close)
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


@raw_case("unfinished-answers")
def unfinished_answers(ctx, others):
    """A consumer that takes credit and reads nothing: it blocks nobody, and its end returns all."""
    client = Client(ctx.url)
    ctx.later(client.close)
    count = 400
    client.sender(ctx.address()).send([message(seq, 50_000) for seq in range(count)], 40)
    one = Socket(ctx)
    one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.open()
    one.begin()
    one.attach_receiver(ctx.address())
    one.flow(1, 1000, window=0x7FFFFFFF)
    time.sleep(0.5)
    for _ in range(5):
        others()
    one.socket.close()
    time.sleep(0.3)
    expect_rest(client, ctx.address(), range(count), "after a consumer that never read")


def conversation(address):
    """A valid session with everything in it, as one piece."""
    return (AMQP + frame(0, OPEN, open_fields(properties={Symbol("product"): "x"}))
            + frame(0, BEGIN, [None, Uint(0), Uint(100), Uint(100), Uint(10)])
            + frame(0, ATTACH, ["s", Uint(0), False, Ubyte(2), Ubyte(0), Described(0x28, ["a"]), Described(0x29, [address]), None,
                                None, Uint(0)])
            + frame(0, ATTACH, ["r", Uint(1), True, None, None,
                                Described(0x28, [address, None, None, None, None, None, Symbol("copy"),
                                                 {Symbol("f"): Described(0x75, "x")}]), Described(0x29, [])])
            + frame(0, FLOW, [Uint(0), Uint(100), Uint(0), Uint(100), Uint(1), Uint(0), Uint(10), None, True, True])
            + frame(0, TRANSFER, [Uint(0), Uint(0), b"t", Uint(0), False, False],
                    encode(Described(0x70, [True, Ubyte(4), Uint(1000)])) + encode(Described(0x72, {Symbol("x-opt-a"): [1, 2]}))
                    + encode(Described(0x73, ["id", None, None, "subject"])) + encode(Described(0x74, {"k": 1})) + data(b"body"))
            + frame(0, DISPOSITION, [True, Uint(0), Uint(5), True, Described(0x27, [True, True])])
            + frame(0, DETACH, [Uint(0), True]) + frame(0, END, []) + frame(0, CLOSE, []))


@raw_case("mutations", seconds=150)
def mutations(ctx, others):
    """A valid conversation cut at each place, and with bytes changed: connections end, the broker does not."""
    whole = conversation(ctx.address())
    chance = random.Random(7)
    pieces = [whole[:at] for at in range(0, len(whole), 3 if ctx.full else 11)]
    for _ in range(3000 if ctx.full else 400):
        changed = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 8))):
            changed[chance.randrange(8, len(changed))] = chance.choice((0, 1, 0x40, 0x45, 0x7F, 0x80, 0xC0, 0xD0, 0xFF,
                                                                         chance.randrange(256)))
        pieces.append(bytes(changed))
    for index, piece in enumerate(pieces):
        with socket.create_connection((ctx.broker.host, ctx.broker.port), 5) as one:
            one.settimeout(5)
            try:
                one.sendall(piece)
                one.shutdown(socket.SHUT_WR)
                while one.recv(65536):
                    pass
            except TimeoutError:
                raise Failure(f"piece {index} left the broker silent: {piece!r}")
            except OSError:
                pass
        if index % 100 == 0:
            others()


@raw_case("serial-numbers")
def serial_numbers(ctx, others):
    """Delivery-ids, transfer-ids and delivery-counts that pass 2^32, both ways."""
    near = 0xFFFFFFFD
    one = Socket(ctx)
    one.open()
    one.frame(BEGIN, [None, Uint(near), Uint(2048), Uint(2048), Uint(100)])
    one.expect(BEGIN)
    one.frame(ATTACH, ["s", Uint(0), False, None, None, Described(0x28, []), Described(0x29, [ctx.address()]), None, None,
                       Uint(near)])
    one.expect(ATTACH)
    credit = one.expect(FLOW)
    equal(credit.field(5), near, "delivery-count in the grant")
    count = 20
    for index in range(count):
        number = (near + index) & 0xFFFFFFFF
        one.frame(TRANSFER, [Uint(0), Uint(number), struct.pack(">I", index), Uint(0), False, False], data(b"%d" % index))
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
    one.frame(ATTACH, ["s", Uint(0), False, Ubyte(0), Ubyte(1), Described(0x28, []), Described(0x29, [ctx.address()]), None, None,
                       Uint(0)])
    answer = one.expect(ATTACH)
    one.expect(FLOW)
    one.transfer(data(b"one"))
    found = one.expect(DISPOSITION)
    if answer.field(4) == 1:
        equal((found.field(3) or False, found.field(4).code), (False, 0x24), "the outcome, not settled yet")
        one.frame(DISPOSITION, [False, Uint(0), None, True, Described(0x24, [])])
    one.frame(ATTACH, ["r", Uint(1), True, Ubyte(0), Ubyte(1), Described(0x28, [ctx.address()]), Described(0x29, [])])
    equal(one.expect(ATTACH).field(4), 1, "rcv-settle-mode in the answer")
    one.flow(1, 10)
    found = one.expect(TRANSFER)
    check(not found.field(4), "a transfer to a receiver that settles second is settled")
    number = found.field(1)
    one.frame(DISPOSITION, [True, Uint(number), None, False, Described(0x24, [])])
    found = one.expect(DISPOSITION)
    equal((found.field(0) or False, found.field(1), found.field(3)), (False, number, True), "role, delivery and settled")
    one.frame(DISPOSITION, [True, Uint(number), None, True, Described(0x24, [])])
    one.frame(DETACH, [Uint(1), True])
    one.expect(DETACH)
    others()
    client = Client(ctx.url)
    ctx.later(client.close)
    expect_rest(client, ctx.address(), [])


@raw_case("session-end")
def session_end(ctx, others):
    """A session ended, and a link detached without being closed, with unsettled deliveries: they come back in order."""
    client = Client(ctx.url)
    ctx.later(client.close)
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


@raw_case("reconnect-storm", seconds=90)
def reconnect_storm(ctx, others):
    """2,000 connections that come and go, many without a word: the memory comes back, others go on."""
    for turn in range(3):
        for index in range(700):
            one = socket.create_connection((ctx.broker.host, ctx.broker.port), 5)
            if index % 3:
                one.sendall(AMQP + frame(0, OPEN, open_fields()) + frame(0, BEGIN, [None, Uint(0), Uint(10), Uint(10)])
                            + frame(0, ATTACH, ["r", Uint(0), True, None, None, Described(0x28, [f"{ctx.address()}.{index % 50}"]),
                                                Described(0x29, [])])
                            + frame(0, FLOW, [Uint(0), Uint(10), Uint(0), Uint(10), Uint(0), Uint(0), Uint(10)]))
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
    check(refused > 0 and stored > 50, f"{stored} messages of 100 kB were stored, {refused} refused, in 64 MiB")
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
