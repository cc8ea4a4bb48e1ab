"""Bad input in AMQP 0-9-1, from sockets without a library: each mistake has its code and ends no more than it has to."""

import struct
import time

from .bystander import raw_case
from .channel_frames import (
    BASIC_CONSUME,
    BASIC_GET_EMPTY,
    BASIC_GET_OK,
    BODY,
    CHANNEL_CLOSE,
    CHANNEL_OPEN,
    CONNECTION_CLOSE_OK,
    CONNECTION_OPEN,
    CONNECTION_START_OK,
    CONNECTION_TUNE_OK,
    END,
    HEADER,
    HEARTBEAT,
    METHOD,
    QUEUE_DECLARE_OK,
    ChannelSocket,
    declare,
    frame,
    get,
    header,
    long,
    method,
    publish,
    short,
)
from .harness import Failure, check, equal

FRAME_ERROR, COMMAND_INVALID, CHANNEL_ERROR, UNEXPECTED_FRAME = 501, 503, 504, 505
SYNTAX_ERROR = 502


def closes(ctx, codes, *frames, channel=True):
    """A fresh connection says this, and is closed for it with one of these codes."""
    one = ChannelSocket(ctx)
    if channel:
        one.open_channel()
    try:
        one.send(b"".join(frames))
    except OSError:
        pass
    found = struct.unpack(">H", one.expect((10, 50))[:2])[0]
    check(found in codes, f"closed with {found}, expected one of {codes}, for {frames[0][:60]!r}")
    one.method(0, CONNECTION_CLOSE_OK)
    one.expect_end()


@raw_case("channels/frames")
def frames(ctx, others):
    """Frames of unknown types, without their end, larger than agreed, on channels that are not open."""
    closes(ctx, (FRAME_ERROR,), frame(9, 0, b"?"))
    closes(ctx, (FRAME_ERROR,), frame(METHOD, 1, declare("q"))[:-1] + b"\x00")
    closes(ctx, (FRAME_ERROR,), struct.pack(">BHI", METHOD, 1, 0xFFFFFFFF) + b"x" * 100)
    closes(ctx, (FRAME_ERROR,), struct.pack(">BHI", BODY, 1, 131072 - 7))
    closes(ctx, (CHANNEL_ERROR,), frame(METHOD, 5, declare("q")))
    closes(ctx, (CHANNEL_ERROR,), frame(METHOD, 1, method(CHANNEL_OPEN, b"\0")))
    closes(ctx, (CHANNEL_ERROR, COMMAND_INVALID), frame(METHOD, 0, declare("q")))
    closes(ctx, (CHANNEL_ERROR, COMMAND_INVALID, UNEXPECTED_FRAME, FRAME_ERROR), frame(HEADER, 0, header(1)))
    closes(ctx, (FRAME_ERROR, UNEXPECTED_FRAME, COMMAND_INVALID, CHANNEL_ERROR), frame(HEARTBEAT, 1, b""))
    others()


@raw_case("channels/content")
def content(ctx, others):
    """Content that nobody announced, that is not what was announced, or that stops in the middle."""
    put = frame(METHOD, 1, publish("q"))
    closes(ctx, (UNEXPECTED_FRAME,), frame(HEADER, 1, header(1)))
    closes(ctx, (UNEXPECTED_FRAME,), frame(BODY, 1, b"x"))
    closes(ctx, (UNEXPECTED_FRAME,), put, frame(BODY, 1, b"x"))
    closes(ctx, (UNEXPECTED_FRAME,), put, put)
    closes(ctx, (UNEXPECTED_FRAME,), put, frame(HEADER, 1, header(5)), put)
    # More than the header says.
    closes(ctx, (FRAME_ERROR, UNEXPECTED_FRAME), put, frame(HEADER, 1, header(3)), frame(BODY, 1, b"12345"))
    # A content of another class, and properties that are cut short, which is seen when the message is whole.
    closes(ctx, (UNEXPECTED_FRAME, FRAME_ERROR), put, frame(HEADER, 1, header(1, of=50)))
    closes(ctx, (SYNTAX_ERROR, FRAME_ERROR), put, frame(HEADER, 1, header(1, 0x8000, b"\xffshort")), frame(BODY, 1, b"x"))
    others()


@raw_case("channels/sizes")
def sizes(ctx, others):
    """Sizes beyond what there is, or negative ones: no memory for them, and an error."""
    negative = struct.pack(">i", -1)
    closes(ctx, (SYNTAX_ERROR, FRAME_ERROR), frame(METHOD, 1, declare("q")[:-4] + negative))
    closes(ctx, (SYNTAX_ERROR, FRAME_ERROR), frame(METHOD, 1, declare("q")[:-4] + struct.pack(">I", 5000)))
    for value in (b"S" + negative, b"A" + negative, b"F" + negative, b"x" + negative, b"?", b"I\x00"):
        closes(ctx, (SYNTAX_ERROR, FRAME_ERROR), frame(METHOD, 1, declare("q", short("key") + value)))
    # A body of 2^63 and of 2^64 - 1 bytes.
    for size in (1 << 63, (1 << 64) - 1):
        one = ChannelSocket(ctx)
        one.open_channel()
        one.send(frame(METHOD, 1, publish("q")) + frame(HEADER, 1, header(size)))
        found = struct.unpack(">HH", one.take()[2][:4])
        check(found in ((20, 40), (10, 50)), f"a body of {size} bytes was answered by {found}")
    others()


@raw_case("channels/nested")
def nested(ctx, others):
    """Tables nested 10,000 deep, in arguments and in headers, and one that is as deep as any client's."""

    def table(depth):
        inner = b""
        for _ in range(depth):
            inner = short("k") + b"F" + long(inner)
        return inner

    deep = table(10_000)
    closes(ctx, (SYNTAX_ERROR, FRAME_ERROR), frame(METHOD, 1, declare("q", deep)))
    headers = frame(HEADER, 1, header(0, 0x2000, long(deep)))
    arrays = b""
    for _ in range(10_000):
        arrays = b"A" + long(arrays)
    closes(ctx, (SYNTAX_ERROR, FRAME_ERROR), frame(METHOD, 1, declare("q", short("k") + arrays)))
    one = ChannelSocket(ctx)
    one.open_channel()
    queue = ctx.address()
    one.put(METHOD, 1, declare(queue))
    one.expect(QUEUE_DECLARE_OK)
    one.send(frame(METHOD, 1, publish(queue)) + frame(HEADER, 1, header(0, 0x2000, long(table(20)))))
    one.put(METHOD, 1, get(queue))
    one.expect(BASIC_GET_OK)
    # As headers, they are refused or kept as they are, but they hurt nobody.
    other = ChannelSocket(ctx)
    other.open_channel()
    other.send(frame(METHOD, 1, publish(queue)) + headers + frame(METHOD, 1, get(queue)))
    kind, _, payload = other.take()
    found = struct.unpack(">HH", payload[:4])
    check(kind == METHOD and found in (BASIC_GET_OK, (20, 40), (10, 50)), f"headers were answered by {found}")
    others()


@raw_case("channels/order")
def order(ctx, others):
    """Methods before the connection is open, or out of turn: it ends, with its reason where one can be said."""
    early = (
        frame(METHOD, 1, method(CHANNEL_OPEN, b"\0")),
        frame(METHOD, 0, method(CONNECTION_OPEN, short("/") + b"\0\0")),
        frame(METHOD, 0, method(CONNECTION_TUNE_OK, struct.pack(">HIH", 0, 0, 0))),
        frame(METHOD, 1, publish("q")),
        frame(BODY, 1, b"x"),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 1000,
        b"\xff" * 1000,
    )
    for sent in early:
        one = ChannelSocket(ctx, opened=False)
        try:
            one.send(sent)
            one.method(0, CONNECTION_CLOSE_OK)
        except OSError:
            pass
        one.expect_end()
    # The login once more, and a method of the server's.
    closes(ctx, (COMMAND_INVALID, CHANNEL_ERROR), frame(METHOD, 0, method(CONNECTION_START_OK, long(b"") + short("PLAIN") + long(b"") + short("en_US"))))
    closes(ctx, (COMMAND_INVALID, 540), frame(METHOD, 1, method(QUEUE_DECLARE_OK, short("q") + b"\0" * 8)))
    closes(ctx, (COMMAND_INVALID, 540), frame(METHOD, 1, method((999, 10))))
    others()


@raw_case("channels/tune")
def tune(ctx, others):
    """What is agreed holds: no frames below the minimum, no more channels or larger frames than there are."""
    for terms in ((2047, 100, 0), (2048, 131072, 0), (2047, 131073, 0)):
        one = ChannelSocket(ctx, opened=False)
        answer = long(b"") + short("PLAIN") + long(b"\0guest\0guest") + short("en_US")
        one.method(0, CONNECTION_START_OK, answer)
        one.expect((10, 30))
        one.method(0, CONNECTION_TUNE_OK, struct.pack(">HIH", *terms))
        one.expect_code((10, 50), 530)
    others()


@raw_case("channels/many")
def many(ctx, others):
    """As many channels as were agreed are there, whatever their numbers are; one more ends the connection."""
    one = ChannelSocket(ctx)
    one.open_channel(65535)
    queue = ctx.address()
    one.put(METHOD, 65535, declare(queue))
    one.expect(QUEUE_DECLARE_OK)
    numbers = [*range(1, 2000), *range(10_000, 10_047)]
    one.send(b"".join(frame(METHOD, n, method(CHANNEL_OPEN, b"\0")) for n in numbers))
    for _ in numbers:
        one.expect((20, 11))
    others()
    one.method(20_000, CHANNEL_OPEN, b"\0")
    one.expect_code((10, 50), 530)
    others()


@raw_case("channels/heartbeats")
def heartbeats(ctx, others):
    """Who agreed on heartbeats and says nothing is closed after two of them; anything that comes counts as one."""
    one = ChannelSocket(ctx, heartbeat=1)
    beating = ChannelSocket(ctx, heartbeat=1)
    beating.open_channel()
    began = time.monotonic()
    # A message in many small pieces, over longer than the time allowed.
    queue = ctx.address()
    beating.put(METHOD, 1, declare(queue))
    beating.expect(QUEUE_DECLARE_OK)
    message = frame(METHOD, 1, publish(queue)) + frame(HEADER, 1, header(40)) + frame(BODY, 1, b"x" * 40)
    beats = ended = 0
    for at in range(len(message)):
        beating.send(message[at : at + 1])
        time.sleep(4.0 / len(message))
        if not ended and at % 10 == 0:
            try:
                one.read(1, 0.001)
            except Failure as failure:
                ended = time.monotonic() if "ended" in str(failure) else 0
    took = (ended or time.monotonic()) - began
    one.expect_end(5)
    check(took > 1.5, f"a silent connection was closed after {took:.1f} s, at 1 s a heartbeat")
    beating.put(METHOD, 1, get(queue))
    while True:
        kind, channel, payload = beating.take()
        if kind != HEARTBEAT:
            break
        equal((channel, payload), (0, b""), "a heartbeat")
        beats += 1
    equal((kind, struct.unpack(">HH", payload[:4])), (METHOD, BASIC_GET_OK), "what answers the get")
    check(beats >= 2, f"{beats} heartbeats came in four seconds at one a second")
    others()


@raw_case("channels/soft-errors")
def soft_errors(ctx, others):
    """What ends a channel leaves its connection, and what was on its way behind the mistake is passed over."""
    one = ChannelSocket(ctx)
    one.open_channel(1)
    one.open_channel(2)
    queue = ctx.address()
    one.send(
        frame(METHOD, 1, publish("key", exchange="missing"))
        + frame(HEADER, 1, header(1))
        + frame(BODY, 1, b"x")
        + frame(METHOD, 1, declare(queue))
    )
    one.expect_channel_close(404, 1)
    one.put(METHOD, 2, declare(queue, flags=1))
    one.expect_channel_close(404, 2)
    one.put(METHOD, 2, declare(queue))
    one.expect(QUEUE_DECLARE_OK)
    one.put(METHOD, 2, get(queue))
    one.expect(BASIC_GET_EMPTY)
    others()


@raw_case("channels/interleaved")
def interleaved(ctx, others):
    """Bodies in pieces of channels that take turns: each is put together, one of 1 MiB and an empty one too."""
    one = ChannelSocket(ctx)
    queues = [f"{ctx.address()}.{n}" for n in range(4)]
    bodies = [bytes([65 + n]) * size for n, size in enumerate((1 << 20, 0, 131064, 131065))]
    for n, queue in enumerate(queues, 1):
        one.open_channel(n)
        one.put(METHOD, n, declare(queue))
        one.expect(QUEUE_DECLARE_OK)
        one.put(METHOD, n, publish(queue))
        one.put(HEADER, n, header(len(bodies[n - 1])))
    step = 131072 - 8
    for start in range(0, 1 << 20, step):
        for n, body in enumerate(bodies, 1):
            if start < len(body):
                one.put(BODY, n, body[start : start + step])
    for n, (queue, body) in enumerate(zip(queues, bodies), 1):
        one.put(METHOD, n, get(queue))
        one.expect(BASIC_GET_OK)
        kind, channel, payload = one.take()
        equal((kind, channel, struct.unpack(">HHQ", payload[:12])[2]), (HEADER, n, len(body)), "a header")
        found = b""
        while len(found) < len(body):
            kind, channel, piece = one.take()
            equal((kind, channel), (BODY, n), "a body")
            found += piece
        check(found == body, f"the body of channel {n} came back as another one")
        one.put(METHOD, n, get(queue))
        one.expect(BASIC_GET_EMPTY)
    others()


@raw_case("channels/killed")
def killed(ctx, others):
    """A socket that breaks while deliveries are on their way: each message comes back once, in order."""
    queue, count = ctx.address(), 200
    one = ChannelSocket(ctx)
    one.open_channel()
    one.put(METHOD, 1, declare(queue))
    one.expect(QUEUE_DECLARE_OK)
    for n in range(count):
        body = str(n).encode()
        one.send(frame(METHOD, 1, publish(queue)) + frame(HEADER, 1, header(len(body))) + frame(BODY, 1, body))
    other = ChannelSocket(ctx)
    other.open_channel()
    other.put(METHOD, 1, method(BASIC_CONSUME, struct.pack(">H", 0) + short(queue) + short("tag") + b"\0" + long(b"")))
    other.expect((60, 21))
    other.expect((60, 60))
    other.socket.setsockopt(1, 13, struct.pack("ii", 1, 0))
    other.socket.close()
    found = []
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        one.put(METHOD, 1, get(queue))
        kind, _, payload = one.take()
        if struct.unpack(">HH", payload[:4]) == BASIC_GET_EMPTY:
            continue
        one.take()
        found.append(int(one.take()[2]))
    # What was not yet taken may be got before the broken socket is noticed.
    equal(sorted(found), list(range(count)), "what came back")
    one.put(METHOD, 1, get(queue))
    one.expect(BASIC_GET_EMPTY)
    others()
