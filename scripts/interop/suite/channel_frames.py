"""AMQP 0-9-1 by hand: just enough to say what no library would say, and to read the answer."""

import struct

from .frames import AMQP091, SECONDS, Socket
from .harness import Failure, equal

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = b"\xce"

CONNECTION_START, CONNECTION_START_OK, CONNECTION_TUNE = (10, 10), (10, 11), (10, 30)
CONNECTION_TUNE_OK, CONNECTION_OPEN, CONNECTION_OPEN_OK = (10, 31), (10, 40), (10, 41)
CONNECTION_CLOSE, CONNECTION_CLOSE_OK = (10, 50), (10, 51)
CHANNEL_OPEN, CHANNEL_OPEN_OK, CHANNEL_CLOSE, CHANNEL_CLOSE_OK = (20, 10), (20, 11), (20, 40), (20, 41)
QUEUE_DECLARE, QUEUE_DECLARE_OK = (50, 10), (50, 11)
BASIC_PUBLISH, BASIC_CONSUME, BASIC_GET, BASIC_GET_OK = (60, 40), (60, 20), (60, 70), (60, 71)
BASIC_GET_EMPTY = (60, 72)


def frame(kind, channel, payload):
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + END


def short(text):
    data = text.encode()
    return bytes([len(data)]) + data


def long(data):
    return struct.pack(">I", len(data)) + data


def method(identity, arguments=b""):
    return struct.pack(">HH", *identity) + arguments


def declare(queue, table=b"", flags=0):
    return method(QUEUE_DECLARE, struct.pack(">H", 0) + short(queue) + bytes([flags]) + long(table))


def publish(key, exchange="", flags=0):
    return method(BASIC_PUBLISH, struct.pack(">H", 0) + short(exchange) + short(key) + bytes([flags]))


def header(size, flags=0, properties=b"", of=60):
    return struct.pack(">HHQH", of, 0, size, flags) + properties


def get(queue):
    return method(BASIC_GET, struct.pack(">H", 0) + short(queue) + b"\x01")


class ChannelSocket(Socket):
    """A connection that is open, unless it is told otherwise."""

    def __init__(self, ctx, heartbeat=0, frame_max=131072, channel_max=2047, opened=True):
        super().__init__(ctx, header=AMQP091)
        self.expect(CONNECTION_START)
        if opened:
            answer = long(b"") + short("PLAIN") + long(b"\0guest\0guest") + short("en_US")
            self.method(0, CONNECTION_START_OK, answer)
            self.expect(CONNECTION_TUNE)
            self.method(0, CONNECTION_TUNE_OK, struct.pack(">HIH", channel_max, frame_max, heartbeat))
            self.method(0, CONNECTION_OPEN, short("/") + b"\0\0")
            self.expect(CONNECTION_OPEN_OK)

    def put(self, kind, channel, payload):
        self.send(frame(kind, channel, payload))

    def method(self, channel, identity, arguments=b""):
        self.put(METHOD, channel, method(identity, arguments))

    def open_channel(self, channel=1):
        self.method(channel, CHANNEL_OPEN, b"\0")
        self.expect(CHANNEL_OPEN_OK)

    def take(self, seconds=SECONDS):
        """The next frame: its type, channel and payload."""
        kind, channel, size = struct.unpack(">BHI", self.read(7, seconds))
        payload = self.read(size + 1, seconds)
        equal(payload[-1:], END, "the end of a frame")
        return kind, channel, payload[:-1]

    def expect(self, identity, seconds=SECONDS):
        """The arguments of the next method, which is this one; heartbeats may come before it."""
        while True:
            kind, channel, payload = self.take(seconds)
            if kind == HEARTBEAT:
                continue
            found = struct.unpack(">HH", payload[:4]) if kind == METHOD else kind
            if found != identity:
                raise Failure(f"expected the method {identity}, found {found} on channel {channel}: {payload[:200]!r}")
            return payload[4:]

    def expect_code(self, identity, code):
        found = struct.unpack(">H", self.expect(identity)[:2])[0]
        equal(found, code, "the reply code")

    def expect_close(self, code):
        """The connection is closed, and ends when that is answered."""
        self.expect_code(CONNECTION_CLOSE, code)
        self.method(0, CONNECTION_CLOSE_OK)
        self.expect_end()

    def expect_channel_close(self, code, channel=1):
        """The channel is closed; the connection goes on, and its number can be used again."""
        self.expect_code(CHANNEL_CLOSE, code)
        self.method(channel, CHANNEL_CLOSE_OK)
        self.open_channel(channel)
