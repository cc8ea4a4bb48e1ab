"""AMQP 1.0 by hand: just enough to say what no library would say, and to read the answer."""

import socket
import struct
import time

from .harness import Failure

AMQP = b"AMQP\x00\x01\x00\x00"
SASL = b"AMQP\x03\x01\x00\x00"
AMQP091 = b"AMQP\x00\x00\x09\x01"
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = range(0x40, 0x45)
NAMES = {
    OPEN: "open",
    BEGIN: "begin",
    ATTACH: "attach",
    FLOW: "flow",
    TRANSFER: "transfer",
    DISPOSITION: "disposition",
    DETACH: "detach",
    END: "end",
    CLOSE: "close",
    MECHANISMS: "mechanisms",
    OUTCOME: "outcome",
}
ERROR = 0x1D
SOURCE, TARGET = 0x28, 0x29
SECONDS = 15


class Symbol(str):
    pass


class Uint(int):
    pass


class Ubyte(int):
    pass


class Ushort(int):
    pass


class Raw(bytes):
    """Bytes that are an encoded value already."""


class Described:
    def __init__(self, code, value):
        self.code = code
        self.value = value


def encode(value):
    if isinstance(value, Raw):
        return bytes(value)
    if value is None:
        return b"\x40"
    if isinstance(value, bool):
        return b"\x41" if value else b"\x42"
    if isinstance(value, Ubyte):
        return b"\x50" + bytes([value])
    if isinstance(value, Ushort):
        return b"\x60" + struct.pack(">H", value)
    if isinstance(value, Uint):
        return b"\x70" + struct.pack(">I", value)
    if isinstance(value, int):
        return b"\x80" + struct.pack(">Q", value)
    if isinstance(value, Symbol):
        return b"\xb3" + struct.pack(">I", len(value)) + value.encode()
    if isinstance(value, str):
        return b"\xb1" + struct.pack(">I", len(value.encode())) + value.encode()
    if isinstance(value, bytes):
        return b"\xb0" + struct.pack(">I", len(value)) + value
    if isinstance(value, list):
        body = b"".join(map(encode, value))
        return b"\xd0" + struct.pack(">II", len(body) + 4, len(value)) + body
    if isinstance(value, dict):
        body = b"".join(encode(key) + encode(item) for key, item in value.items())
        return b"\xd1" + struct.pack(">II", len(body) + 4, 2 * len(value)) + body
    if isinstance(value, Described):
        return b"\x00\x53" + bytes([value.code]) + encode(value.value)
    raise TypeError(type(value))


FIXED = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0, 0x45: []}
NUMBERS = {
    0x50: ">B",
    0x51: ">b",
    0x52: ">B",
    0x53: ">B",
    0x54: ">b",
    0x55: ">b",
    0x56: ">?",
    0x60: ">H",
    0x61: ">h",
    0x70: ">I",
    0x71: ">i",
    0x72: ">f",
    0x73: ">i",
    0x80: ">Q",
    0x81: ">q",
    0x82: ">d",
    0x83: ">q",
}


def decode(data, at=0):
    """The value at `at` and the place after it."""
    code = data[at]
    at += 1
    if code == 0:
        descriptor, at = decode(data, at)
        value, at = decode(data, at)
        return Described(descriptor, value), at
    if code in FIXED:
        return FIXED[code], at
    if code in NUMBERS:
        size = struct.calcsize(NUMBERS[code])
        return struct.unpack(NUMBERS[code], data[at : at + size])[0], at + size
    if code == 0x98:
        return data[at : at + 16], at + 16
    wide = code & 0x10
    size = struct.unpack(">I", data[at : at + 4])[0] if wide else data[at]
    at += 4 if wide else 1
    end = at + size
    kind = code & 0xEF
    if kind == 0xA0:
        return data[at:end], end
    if kind in (0xA1, 0xA3):
        return data[at:end].decode(), end
    count = struct.unpack(">I", data[at : at + 4])[0] if wide else data[at]
    at += 4 if wide else 1
    if kind == 0xE0:
        constructor, items = data[at : at + 1], []
        at += 1
        for _ in range(count):
            piece, used = decode(constructor + data[at:end])
            items.append(piece)
            at += used - 1
        return items, end
    items = []
    for _ in range(count):
        item, at = decode(data, at)
        items.append(item)
    return (dict(zip(items[::2], items[1::2])) if kind == 0xC1 else items), end


def frame(channel, code, fields, payload=b"", kind=0):
    body = encode(Described(code, fields)) + payload
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


class Frame:
    def __init__(self, kind, channel, code, fields, payload):
        self.kind = kind
        self.channel = channel
        self.code = code
        self.fields = fields
        self.payload = payload

    def field(self, index):
        return self.fields[index] if self.fields and index < len(self.fields) else None

    def condition(self):
        """The error's condition of a close, an end or a detach."""
        error = self.field({CLOSE: 0, END: 0, DETACH: 2}[self.code])
        return error.value[0] if error else None

    def __repr__(self):
        return f"{NAMES.get(self.code, self.code)}({self.fields})" if self.code else "empty frame"


class Socket:
    """A connection without a library."""

    def __init__(self, ctx, header=AMQP):
        self.socket = socket.create_connection((ctx.broker.host, ctx.broker.port), SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""
        self.next_delivery = 0
        ctx.later(self.socket.close)
        if header:
            self.send(header)

    def send(self, data):
        self.socket.sendall(data)

    def frame(self, code, fields, payload=b"", channel=0):
        self.send(frame(channel, code, fields, payload))

    def read(self, count, seconds=SECONDS):
        deadline = time.monotonic() + seconds
        while len(self.data) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Failure(f"nothing more from the broker within {seconds} s (it said {self.data!r})")
            self.socket.settimeout(left)
            try:
                piece = self.socket.recv(1 << 20)
            except TimeoutError:
                continue
            if not piece:
                raise Failure(f"the broker ended the connection (it had said {self.data!r})")
            self.data += piece
        piece, self.data = self.data[:count], self.data[count:]
        return piece

    def read_header(self, expected, seconds=SECONDS):
        header = self.read(8, seconds)
        if header != expected:
            raise Failure(f"expected the header {expected!r}, found {header!r}")

    def read_frame(self, seconds=SECONDS):
        size, doff, kind, channel = struct.unpack(">IBBH", self.read(8, seconds))
        body = self.read(size - 8, seconds)[4 * doff - 8 :]
        if not body:
            return Frame(kind, channel, None, None, b"")
        performative, used = decode(body)
        return Frame(kind, channel, performative.code, performative.value, body[used:])

    def expect(self, *codes, seconds=SECONDS):
        """The next frame of one of these kinds. Empty frames and flows may come before it, anything else may not."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.read_frame(max(0.01, deadline - time.monotonic()))
            if found.code in codes:
                return found
            if found.code not in (None, FLOW):
                raise Failure(f"expected {' or '.join(NAMES[code] for code in codes)}, found {found!r}")

    def expect_end(self, seconds=SECONDS):
        """The broker ends the connection, having said no more than heartbeats."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.socket.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                piece = self.socket.recv(65536)
            except TimeoutError:
                break
            except ConnectionResetError:
                return
            if not piece:
                return
            self.data += piece
        raise Failure(f"the broker did not end the connection within {seconds} s")

    def expect_close(self, condition, seconds=SECONDS):
        """An open if there was none, then close with its error, then the end of the connection."""
        conditions = (condition,) if isinstance(condition, str) else condition
        deadline = time.monotonic() + seconds
        while True:
            found = self.read_frame(max(0.01, deadline - time.monotonic()))
            if found.code == CLOSE:
                break
            if found.code not in (None, OPEN, BEGIN, FLOW, ATTACH, DISPOSITION):
                raise Failure(f"expected close, found {found!r}")
        if found.condition() not in conditions:
            raise Failure(f"expected the error {' or '.join(conditions)}, found {found!r}")
        # The peer answers the close (§2.4.3), here with an end of the connection; the broker must not wait for more.
        try:
            self.frame(CLOSE, [])
        except OSError:
            pass
        self.expect_end(seconds)

    def open(self, seconds=SECONDS, **fields):
        """Opens the connection; the broker's open."""
        self.frame(OPEN, open_fields(**fields))
        self.read_header(AMQP, seconds)
        return self.expect(OPEN, seconds=seconds)

    def begin(self, channel=0, window=2048):
        self.frame(BEGIN, [None, Uint(0), Uint(window), Uint(window), Uint(100)], channel=channel)
        return self.expect(BEGIN)

    def attach_sender(self, address, handle=0, settle=None, channel=0, name=None, credit=True):
        """Attaches a sender and waits for credit; the broker's attach."""
        self.frame(
            ATTACH,
            [
                name or f"sender-{channel}-{handle}",
                Uint(handle),
                False,
                settle,
                None,
                Described(SOURCE, ["here"]),
                Described(TARGET, [address]),
                None,
                None,
                Uint(0),
            ],
            channel=channel,
        )
        answer = self.expect(ATTACH)
        if credit:
            self.expect_flow()
        return answer

    def attach_receiver(self, address, handle=1, channel=0, name=None):
        self.frame(
            ATTACH,
            [
                name or f"receiver-{channel}-{handle}",
                Uint(handle),
                True,
                None,
                None,
                Described(SOURCE, [address]),
                Described(TARGET, ["here"]),
            ],
            channel=channel,
        )
        return self.expect(ATTACH)

    def expect_flow(self, seconds=SECONDS):
        found = self.expect(FLOW, seconds=seconds)
        return found

    def flow(self, handle, credit, drain=False, channel=0, delivery_count=0, incoming=0, window=2048):
        self.frame(
            FLOW,
            [
                Uint(incoming),
                Uint(window),
                Uint(0),
                Uint(window),
                Uint(handle),
                Uint(delivery_count),
                Uint(credit),
                None,
                drain,
            ],
            channel=channel,
        )

    def transfer(
        self, body, handle=0, more=False, aborted=False, settled=False, first=True, channel=0, tag=None
    ):
        """One frame of a message; only the first one of a delivery carries its id and tag."""
        fields = [Uint(handle)]
        if first:
            tag = tag or struct.pack(">I", self.next_delivery)
            fields += [Uint(self.next_delivery), tag, Uint(0), settled, more]
            self.next_delivery += 1
        else:
            fields += [None, None, None, settled, more]
        if aborted:
            fields += [None, None, None, True]
        self.frame(TRANSFER, fields, body, channel=channel)


def open_fields(
    container="raw", hostname=None, max_frame_size=None, channel_max=None, idle_timeout=None, properties=None
):
    return [
        container,
        hostname,
        None if max_frame_size is None else Uint(max_frame_size),
        None if channel_max is None else Ushort(channel_max),
        None if idle_timeout is None else Uint(idle_timeout),
        None,
        None,
        None,
        None,
        properties,
    ]


def data(body):
    """A message that is one data section."""
    return encode(Described(0x75, body))


def nested(depth, kind="list"):
    """A list in a list in a list; or values described by described descriptors."""
    if kind == "described":
        return b"\x00" * depth + b"\x40" * (depth + 1)
    if kind == "array":
        # An array of one array of one array: the constructor comes first, the sizes follow.
        body = b"\x40"
        for _ in range(depth):
            body = b"\xf0" + struct.pack(">II", len(body) + 4, 1) + body
        return body
    parts = []
    size = 1
    for _ in range(depth):
        parts.append(b"\xd0" + struct.pack(">II", size + 4, 1))
        size += 9
    return b"".join(reversed(parts)) + b"\x40"
