"""qpid-proton for Python, driven step by step: every wait has a deadline and says what it waited for."""

import logging
import time
import uuid

from proton import ConnectionException, Delivery, Endpoint, Message, Terminus, Timeout
from proton.handlers import MessagingHandler
from proton.reactor import Container, LinkOption
from proton.utils import BlockingConnection

from .harness import Failure
from .load import BLOCK

# What goes wrong is recorded and judged by the cases; the library's own log would only repeat it.
logging.getLogger("proton").setLevel(logging.CRITICAL)

SECONDS = 20


class Refused(Failure):
    """An attach was answered with a detach."""

    def __init__(self, condition):
        super().__init__(f"the link was refused: {condition}")
        self.condition = condition


class Outbox(MessagingHandler):
    """Counts what became of messages that were sent."""

    def __init__(self):
        super().__init__(prefetch=0, auto_accept=False, auto_settle=True, peer_close_is_error=False)
        self.accepted = []
        self.rejected = []
        self.released = []
        self.modified = []
        self.error = None

    def on_accepted(self, event):
        self.accepted.append(event.delivery.tag)

    def on_rejected(self, event):
        condition = event.delivery.remote.condition
        self.rejected.append((event.delivery.tag, condition.name if condition else None))

    def on_released(self, event):
        modified = event.delivery.remote_state == Delivery.MODIFIED
        (self.modified if modified else self.released).append(event.delivery.tag)

    def on_link_error(self, event):
        self.error = event.link.remote_condition.name if event.link.remote_condition else "closed"
        event.link.close()

    def settled(self):
        return len(self.accepted) + len(self.rejected) + len(self.released) + len(self.modified)


class Inbox(MessagingHandler):
    """Keeps what arrived, settled by the case, or at once when `each` says how."""

    def __init__(self, each=None):
        super().__init__(prefetch=0, auto_accept=False, auto_settle=True, peer_close_is_error=False)
        self.items = []
        self.each = each
        self.error = None
        self.closed = False
        self.detached = False

    def on_link_remote_detach(self, event):
        self.detached = True

    def on_message(self, event):
        if self.each:
            self.each(event.message, event.delivery)
        else:
            self.items.append((event.message, event.delivery))

    def on_link_error(self, event):
        self.error = event.link.remote_condition.name if event.link.remote_condition else "closed"
        event.link.close()

    def on_link_closed(self, event):
        self.closed = True


class Source(LinkOption):
    """Sets anything of a link before it is attached."""

    def __init__(self, change):
        self.change = change

    def apply(self, link):
        self.change(link)


def settle(delivery, outcome="accepted"):
    """Gives a delivery its outcome and settles it."""
    if outcome == "undeliverable":
        delivery.local.undeliverable = True
    elif outcome == "failed":
        delivery.local.failed = True
    states = {
        "accepted": Delivery.ACCEPTED,
        "rejected": Delivery.REJECTED,
        "released": Delivery.RELEASED,
        "failed": Delivery.MODIFIED,
        "undeliverable": Delivery.MODIFIED,
    }
    delivery.update(states[outcome])
    delivery.settle()


class Steady(BlockingConnection):
    """The library's own, but its waits end on time: it would sleep its whole time-out anew after each event. And it keeps
    the error of the broker's close, which the library forgets when the socket has ended."""

    closed_with = None

    def on_connection_remote_close(self, event):
        self.closed_with = (
            event.connection.remote_condition.name if event.connection.remote_condition else "no error"
        )
        super().on_connection_remote_close(event)

    def wait(self, condition, timeout=False, msg=None):
        seconds = self.timeout if timeout is False else timeout
        deadline = time.monotonic() + seconds
        before = self.container.timeout
        try:
            while not condition() and not self.disconnected:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Timeout(f"{self.url}: no {msg} within {seconds} s")
                self.container.timeout = min(left, 0.1)
                self.container.process()
        finally:
            self.container.timeout = before
        if self.disconnected and not self.closing:
            raise ConnectionException(f"{self.url}: disconnected: {self.disconnected}")


class Client:
    """One connection. Several may share a container: while one waits, all of them go on."""

    def __init__(self, url, beside=None, timeout=SECONDS, container_id=None, **options):
        container = beside.container if beside else Container()
        # Connections that share a container have names of their own all the same, and so have all links: the library would
        # name links by container and address.
        container.container_id = container_id or str(uuid.uuid4())
        self.connection = Steady(url, timeout=timeout, container=container, **options)
        self.container = container

    def wait(self, condition, what, timeout=SECONDS):
        try:
            self.connection.wait(condition, timeout=timeout, msg=what)
        except Timeout:
            raise Failure(f"no {what} within {timeout} s")

    def pause(self, seconds):
        """Lets the network go on for a while; only where nothing that happens could be waited for."""
        try:
            self.connection.wait(lambda: False, timeout=seconds)
        except Timeout:
            pass

    def sender(self, address, options=None, name=None):
        return Sender(self, address, options, name)

    def receiver(self, address, credit=0, options=None, name=None, each=None):
        return Receiver(self, address, credit, options, name, each)

    def attached(self, link, box):
        """Waits for the answer to an attach. One without a terminus is a refusal, and its error comes with the detach."""
        self.wait(lambda: box.error or not link.state & Endpoint.REMOTE_UNINIT, "answer to attach")
        terminus = link.remote_target if link.is_sender else link.remote_source
        if not box.error and terminus.type == Terminus.UNSPECIFIED:
            self.wait(lambda: box.error, "detach after an attach without terminus", 5)
        if box.error:
            raise Refused(box.error)

    def close(self):
        """The library's own would run until every connection of the container has ended."""
        if self.connection.closing:
            return
        self.connection.closing = True
        self.remote.close()
        self.wait(
            lambda: self.connection.disconnected or self.remote.state & Endpoint.REMOTE_CLOSED,
            "answer to close",
        )

    def abandon(self):
        """Closes the socket under the connection, without a word of AMQP."""
        self.connection.closing = True
        self.remote.transport.close_head()
        self.remote.transport.close_tail()
        self.pause(0.05)

    @property
    def remote(self):
        return self.connection.conn


class Sender:
    def __init__(self, client, address, options, name):
        self.client = client
        self.box = Outbox()
        self.link = client.container.create_sender(
            client.remote, address, name=name or str(uuid.uuid4()), handler=self.box, options=options
        )
        client.attached(self.link, self.box)
        self.sent = 0

    def send(self, messages, timeout=SECONDS):
        """Sends all and waits until each has its outcome."""
        self.start(messages)
        self.client.wait(
            lambda: self.step() or self.done() or self.box.error, "outcome of all messages sent", timeout
        )
        if self.box.error:
            raise Failure(f"the sender's link was closed: {self.box.error}")
        return self

    def start(self, messages):
        self.queue = iter(messages)
        self.exhausted = False
        self.held = None

    def step(self):
        """Sends what credit and the session's buffer have room for; to be called from a wait's condition."""
        while not self.exhausted and self.link.credit > 0 and self.link.session.outgoing_bytes < 4 << 20:
            message = next(self.queue, None)
            if message is None:
                self.exhausted = True
                break
            self.link.send(message)
            self.sent += 1
        return False

    def done(self):
        return self.exhausted and self.box.settled() == self.sent

    def close(self):
        self.link.close()
        self.client.wait(lambda: not self.link.state & Endpoint.REMOTE_ACTIVE, "answer to a sender's detach")


class Receiver:
    def __init__(self, client, address, credit, options, name, each):
        self.client = client
        self.box = Inbox(each)
        self.link = client.container.create_receiver(
            client.remote, address, name=name or str(uuid.uuid4()), handler=self.box, options=options
        )
        client.attached(self.link, self.box)
        if credit:
            self.link.flow(credit)

    @property
    def address(self):
        return self.link.remote_source.address

    def take(self, count, timeout=SECONDS):
        """The next `count` messages with their deliveries."""

        def there():
            return len(self.box.items) >= count or self.box.error

        try:
            self.client.wait(there, "message", timeout)
        except Failure:
            raise Failure(f"only {len(self.box.items)} of {count} messages arrived within {timeout} s")
        if self.box.error:
            raise Failure(f"the receiver's link was closed: {self.box.error}")
        taken, self.box.items = self.box.items[:count], self.box.items[count:]
        return taken

    def drain(self, credit=1, timeout=SECONDS):
        """Asks for what there is now, up to `credit` messages; returns all that arrived and were not taken yet."""
        self.link.drain(credit)

        def drained():
            return self.box.error or not (self.link.draining() or self.link.queued)

        self.client.wait(drained, "answer to drain", timeout)
        if self.box.error:
            raise Failure(f"the receiver's link was closed: {self.box.error}")
        taken, self.box.items = self.box.items, []
        return taken

    def close(self):
        self.link.close()
        self.client.wait(
            lambda: not self.link.state & Endpoint.REMOTE_ACTIVE, "answer to a receiver's detach"
        )

    def detach(self):
        """Leaves the link's terminus where it is."""
        self.link.detach()
        self.client.wait(lambda: self.box.detached, "answer to a receiver's detach")


def message(seq, size=None, producer="p", **fields):
    """A message that knows its place: `seq` and `producer` in its application properties."""
    size = seq % 100 if size is None else size
    body = BLOCK[seq % 1009 : seq % 1009 + size]
    properties = {"seq": seq, "producer": producer, "size": size, **fields.pop("properties", {})}
    return Message(body=body, inferred=True, properties=properties, **fields)


def messages(count, **fields):
    return [message(seq, **fields) for seq in range(count)]


def seqs(taken):
    return [item[0].properties["seq"] for item in taken]


def body_is_right(received):
    seq, size = received.properties["seq"], received.properties["size"]
    return bytes(received.body or b"") == BLOCK[seq % 1009 : seq % 1009 + size]


__all__ = [
    "Client",
    "Delivery",
    "Endpoint",
    "Message",
    "Refused",
    "Source",
    "body_is_right",
    "message",
    "messages",
    "seqs",
    "settle",
]
