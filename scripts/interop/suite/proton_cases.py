"""qpid-proton for Python: messages, what they are asked for with, and what becomes of them."""

import uuid

from proton import Described, Message, symbol, ulong
from proton.reactor import AtLeastOnce, AtMostOnce, Copy, Filter, Selector

from .client import Refused, Source, body_is_right, message, messages, seqs, settle
from .harness import Failure, case, check, equal, in_order, short
from .load import outcome_of, size_of
from .steps import connect, expect_rest


@case("proton/volume", seconds=240)
def volume(ctx):
    """10,000 messages of 0 B to 1 MiB from three producers, every outcome; nothing lost, nothing twice, FIFO."""
    address, count, producers, window = ctx.address(), 10_000, 3, 200
    home = connect(ctx)
    names = [f"p{index}" for index in range(producers)]
    senders = [connect(ctx, beside=home).sender(address) for _ in names]
    seen = Seen(names, window)
    receiver = connect(ctx, beside=home).receiver(
        address, credit=window, each=lambda m, d: seen.take(m, d, receiver)
    )
    for index, (name, sender) in enumerate(zip(names, senders)):
        sender.start(volume_messages(name, range(index, count, producers)))

    def done():
        for sender in senders:
            sender.step()
        return seen.problem or (
            seen.finished == count - seen.undeliverable and all(s.done() for s in senders)
        )

    try:
        home.wait(done, "end of the volume run", 200)
    except Failure as late:
        sent = [(sender.sent, sender.box.settled(), sender.link.credit) for sender in senders]
        raise Failure(
            f"{late}: {seen.deliveries} deliveries, {seen.finished} finished, {seen.undeliverable} undeliverable, "
            f"not back: {short(seen.returned)}; senders' sent, settled, credit: {sent}"
        )
    check(not seen.problem, seen.problem)
    for sender in senders:
        equal(len(sender.box.accepted), sender.sent, "messages accepted by the broker")
    equal(receiver.drain(10), [], "messages that came although all were seen")
    # What this link called undeliverable is there for another one, in order.
    other = home.receiver(address, credit=count)
    expected = {
        name: [seq for seq in range(index, count, producers) if outcome_of(seq) == "undeliverable"]
        for index, name in enumerate(names)
    }
    found = {name: [] for name in names}
    for received, delivery in other.take(seen.undeliverable):
        found[received.properties["producer"]].append(received.properties["seq"])
        check(body_is_right(received), f"body of {received.properties['seq']} is not what was sent")
        settle(delivery)
    for name in names:
        in_order(found[name], expected[name], f"undeliverable elsewhere, from {name}")
    receiver.close()
    other.close()
    expect_rest(home, address, [])


def volume_messages(producer, own):
    return (message(seq, size_of(seq), producer=producer) for seq in own)


class Seen:
    """Judges a volume run: order of first deliveries for each producer, and when returned ones come back."""

    def __init__(self, names, window):
        self.names = names
        self.window = window
        self.last = {name: -1 for name in names}
        self.returned = {}
        self.deliveries = 0
        self.finished = 0
        self.undeliverable = 0
        self.problem = None

    def take(self, received, delivery, receiver):
        properties = received.properties
        seq, producer = properties["seq"], properties["producer"]
        self.deliveries += 1
        if self.deliveries % 50 == 0:
            receiver.link.flow(50)
        if not body_is_right(received):
            self.problem = self.problem or f"body of {seq} is not what was sent"
        if seq in self.returned:
            self.again(seq, received, delivery)
            return
        if seq <= self.last[producer]:
            self.problem = self.problem or f"{producer}: {seq} came after {self.last[producer]}"
        self.last[producer] = seq
        outcome = outcome_of(seq)
        settle(delivery, outcome)
        if outcome in ("released", "failed"):
            self.returned[seq] = (outcome, self.deliveries)
        elif outcome == "undeliverable":
            self.undeliverable += 1
        else:
            self.finished += 1

    def again(self, seq, received, delivery):
        outcome, when = self.returned.pop(seq)
        settle(delivery)
        self.finished += 1
        expected = 1 if outcome == "failed" else 0
        if received.delivery_count != expected:
            self.problem = self.problem or (
                f"{seq} was {outcome} and came back with delivery-count "
                f"{received.delivery_count} instead of {expected}"
            )
        # A returned message stands before all that were not sent yet, so only credit given before lets others pass.
        if self.deliveries - when > 2 * self.window:
            self.problem = self.problem or f"{seq} came back after {self.deliveries - when} other deliveries"


@case("proton/frames")
def several_frames(ctx):
    """Messages of many frames each, both ways, with frames of 512 bytes to 64 KiB."""
    for frame, sizes in (
        (512, (0, 1, 400, 512, 513, 60_000)),
        (4096, (4096, 1 << 20)),
        (65536, (65_536, 1 << 20)),
    ):
        address = ctx.address(str(frame))
        client = connect(ctx, max_frame_size=frame)
        sender = client.sender(address)
        sender.send([message(seq, size) for seq, size in enumerate(sizes)])
        equal(len(sender.box.accepted), len(sizes), f"accepted with frames of {frame} bytes")
        for received, delivery in client.receiver(address, credit=len(sizes)).take(len(sizes)):
            check(
                body_is_right(received),
                f"frames of {frame} bytes: body of {received.properties} is not what was sent",
            )
            settle(delivery)
        expect_rest(client, address, [])


@case("proton/window")
def session_window(ctx):
    """A session window of a few frames and credit for all: transfers pause and go on."""
    address, count = ctx.address(), 60
    client = connect(ctx, max_frame_size=4096)
    client.sender(address).send([message(seq, 50_000) for seq in range(count)])
    slow = connect(ctx, max_frame_size=4096)

    def narrow(link):
        # Room for one message and a part of the next: the library takes whole messages only.
        link.session.incoming_capacity = 65536

    receiver = slow.receiver(address, credit=count, options=Source(narrow))
    for seq in range(count):
        received, delivery = receiver.take(1)[0]
        equal(received.properties["seq"], seq, "order")
        check(body_is_right(received), f"body of {seq} is not what was sent")
        settle(delivery)


@case("proton/browse")
def browse(ctx):
    """A browser sees each message once, also those that come later, and takes none."""
    address = ctx.address()
    client = connect(ctx)
    sender = client.sender(address)
    sender.send(messages(100))
    browser = client.receiver(address, credit=10, options=Copy())
    found = []
    while len(found) < 100:
        taken = browser.take(10)
        found += seqs(taken)
        for _, delivery in taken:
            settle(delivery)
        browser.link.flow(10)
    in_order(found, list(range(100)), "browsed")
    sender.send([message(seq) for seq in range(100, 110)])
    in_order(seqs(browser.take(10)), list(range(100, 110)), "browsed as they came")
    # A second browser, while a consumer holds some of the messages: it sees the others.
    consumer = client.receiver(address, credit=5)
    held = consumer.take(5)
    in_order(seqs(held), list(range(5)), "taken while browsed")
    second = client.receiver(address, options=Copy())
    in_order(seqs(second.drain(1000)), list(range(5, 110)), "browsed by the second browser")
    equal(seqs(second.drain(10)), [], "browsed twice by the second browser")
    for _, delivery in held:
        settle(delivery, "released")
    consumer.close()
    expect_rest(client, address, range(110))


@case("proton/selector")
def selector(ctx):
    """Only what matches comes, the rest stays in its order; a wrong selector is refused with its error."""
    address = ctx.address()
    client = connect(ctx)
    colours = ["red", "green", "blue"]
    client.sender(address).send(
        [message(seq, properties={"colour": colours[seq % 3], "weight": seq / 2}) for seq in range(300)]
    )
    receiver = client.receiver(
        address, credit=300, options=Selector("colour = 'red' AND weight BETWEEN 30 AND 90")
    )
    expected = [seq for seq in range(300) if seq % 3 == 0 and 30 <= seq / 2 <= 90]
    taken = receiver.take(len(expected))
    in_order(seqs(taken), expected, "selected")
    for _, delivery in taken:
        settle(delivery)
    equal(receiver.drain(10), [], "selected beyond the expected")
    browser = client.receiver(address, options=[Copy(), Selector("colour LIKE 'g%' AND seq < 20")])
    in_order(seqs(browser.drain(1000)), [1, 4, 7, 10, 13, 16, 19], "browsed with a selector")
    # By its registered numeric code too.
    numeric = Filter(
        {symbol("any-name"): Described(ulong(0x0000468C00000004), "colour IN ('blue', 'none') AND seq < 6")}
    )
    in_order(
        seqs(client.receiver(address, options=[Copy(), numeric]).drain(10)), [2, 5], "by the numeric code"
    )
    # A later message wakes the consumer whose selector it matches.
    client.sender(address).send([message(300, properties={"colour": "red", "weight": 31})])
    late = receiver.drain(10) or receiver.take(1)
    equal(seqs(late), [300], "selected later")
    settle(late[0][1])
    try:
        client.receiver(address, options=Selector("colour = = 'red'"))
        raise Failure("a selector with a syntax error was taken")
    except Refused as refusal:
        equal(refusal.condition, "amqp:invalid-field", "the refusal of a wrong selector")
    receiver.close()
    expect_rest(client, address, [seq for seq in range(300) if seq not in expected])


@case("proton/selector-types")
def selector_types(ctx):
    """Unlike types compare as false, NULL is unknown, header fields are readable."""
    address = ctx.address()
    client = connect(ctx)
    rows = [{"s": "x"}, {"s": 1}, {"s": 1.0}, {"s": True}, {}]
    client.sender(address).send(
        [
            message(seq, properties=row, priority=seq, id=f"id-{seq}", subject=f"kind{seq}")
            for seq, row in enumerate(rows)
        ]
    )
    for text, expected in [
        ("s = 1", [1, 2]),
        ("s <> 1", []),
        ("NOT (s = 1)", [0, 3]),
        ("s IS NULL", [4]),
        ("s = 'x'", [0]),
        ("s = TRUE", [3]),
        ("s > 0 OR s IS NOT NULL", [0, 1, 2, 3]),
        ("JMSPriority >= 3", [3, 4]),
        ("JMSType = 'kind2'", [2]),
        ("size + 1 = seq + 1", [0, 1, 2, 3, 4]),
        ("s / 0 = 1", []),
    ]:
        found = seqs(client.receiver(address, options=[Copy(), Selector(text)]).drain(100))
        equal(sorted(found), expected, text)


@case("proton/competing")
def competing(ctx):
    """Equal consumers get equal shares: of messages that wait, and of messages that come."""
    address, count = ctx.address(), 3000
    home = connect(ctx)
    shares = [[], []]

    def taker(index):
        def each(received, delivery):
            shares[index].append(received.properties["seq"])
            settle(delivery)
            receivers[index].link.flow(1)

        return each

    receivers = [connect(ctx, beside=home).receiver(address, each=taker(index)) for index in range(2)]
    for receiver in receivers:
        receiver.link.flow(50)
    home.pause(0.2)
    sender = home.sender(address)
    sender.start(messages(count))
    home.wait(lambda: sender.step() or sum(map(len, shares)) >= count, "all messages", 40)
    equal(sorted(shares[0] + shares[1]), list(range(count)), "all messages, each once")
    for index, share in enumerate(shares):
        in_order(share, sorted(share), f"order at consumer {index}")
    low, high = sorted(map(len, shares))
    check(high <= 1.2 * low, f"shares of {high} and {low}")


@case("proton/alternate")
def alternate(ctx):
    """Ten messages and two ready consumers with credit for all: five and five."""
    address = ctx.address()
    home = connect(ctx)
    receivers = [connect(ctx, beside=home).receiver(address, credit=100) for _ in range(2)]
    for receiver in receivers:
        # A browser's answer comes after the flow of the same connection was taken in.
        receiver.client.receiver(address, options=Copy()).drain(1)
    home.sender(address).send(messages(10))
    home.wait(lambda: sum(len(receiver.box.items) for receiver in receivers) >= 10, "ten messages")
    shares = [seqs(receiver.box.items) for receiver in receivers]
    equal([len(share) for share in shares], [5, 5], f"shares, {shares}")


@case("proton/one-at-a-time")
def one_at_a_time(ctx):
    """Credit of one: one message, then nothing until the next credit."""
    address, count = ctx.address(), 300
    client = connect(ctx)
    client.sender(address).send(messages(count))
    receiver = client.receiver(address)
    for seq in range(count):
        receiver.link.flow(1)
        received, delivery = receiver.take(1)[0]
        equal(received.properties["seq"], seq, "order")
        equal(len(receiver.box.items), 0, "messages without credit")
        settle(delivery)
    client.pause(0.2)
    equal(len(receiver.box.items), 0, "messages without credit")
    equal(receiver.drain(1), [], "messages after the last")


@case("proton/drain")
def drain(ctx):
    """Drain returns what there is and then the credit: with three messages, with none, with none that matches."""
    address = ctx.address()
    client = connect(ctx)
    receiver = client.receiver(address)
    equal(receiver.drain(10), [], "drained from an empty queue")
    equal(receiver.link.credit, 0, "credit after drain on an empty queue")
    client.sender(address).send(messages(3))
    taken = receiver.drain(10)
    equal(seqs(taken), [0, 1, 2], "drained")
    equal(receiver.link.credit, 0, "credit after drain")
    choosy = client.receiver(address, options=Selector("seq = 99"))
    equal(choosy.drain(10), [], "drained without a match")
    equal(choosy.link.credit, 0, "credit after drain without a match")
    equal(receiver.drain(10), [], "drained while all are held")
    settle(taken[1][1], "released")
    equal(seqs(receiver.drain(10)), [1], "drained after a release")
    # The links still work with credit.
    choosy.link.flow(5)
    receiver.link.flow(1)
    client.sender(address).send([message(99), message(100)])
    found = sorted(seqs(choosy.box.items) + seqs(receiver.take(1)))
    check(found in ([99, 100], [99], [100]), f"after drain came {found}")
    for _ in range(50):
        equal(client.receiver(address, options=Selector("seq = 7")).drain(1), [], "drained by a new link")


@case("proton/presettled")
def presettled(ctx):
    """Pre-settled both ways: nothing comes back, nothing is sent twice."""
    address, count = ctx.address(), 1000
    client = connect(ctx)
    sender = client.sender(address, options=AtMostOnce())
    sender.start(messages(count))
    receiver = client.receiver(address, credit=600, options=AtMostOnce())
    client.wait(lambda: sender.step() or len(receiver.box.items) >= 600, "600 messages")
    taken = receiver.take(600)
    in_order(seqs(taken), list(range(600)), "received settled")
    check(all(delivery.settled for _, delivery in taken), "a delivery of a settled link is not settled")
    client.wait(lambda: sender.step() or sender.exhausted, "last message sent")
    receiver.close()
    # The unsettled sender's outcome comes after what its connection sent before.
    client.sender(address, options=AtLeastOnce()).send([message(count)])
    expect_rest(client, address, range(600, count + 1))


@case("proton/outcomes")
def outcomes(ctx):
    """Released, failed, undeliverable here, rejected: each returns as it must, to its place."""
    address = ctx.address()
    client = connect(ctx)
    client.sender(address).send(messages(6))
    receiver = client.receiver(address, credit=5)
    taken = receiver.take(5)
    check(all(received.first_acquirer for received, _ in taken), "a first delivery does not say so")
    settle(taken[1][1], "released")
    settle(taken[3][1], "failed")
    receiver.link.flow(3)
    again = receiver.take(3)
    in_order(seqs(again), [1, 3, 5], "released ones return to their places")
    equal([received.delivery_count for received, _ in again], [0, 1, 0], "delivery-counts")
    equal([received.first_acquirer for received, _ in again], [False, False, True], "first-acquirer")
    settle(taken[0][1], "rejected")
    settle(again[0][1], "undeliverable")
    equal(receiver.drain(5), [], "after undeliverable here")
    other = connect(ctx).receiver(address, credit=5)
    received, delivery = other.take(1)[0]
    equal(received.properties["seq"], 1, "undeliverable elsewhere, taken here")
    settle(delivery, "failed")
    received, delivery = other.take(1)[0]
    equal(received.properties["seq"], 1, "failed, and back to the one that may take it")
    settle(delivery)
    for _, delivery in (taken[2], taken[4], again[1], again[2]):
        settle(delivery)
    client.pause(0.1)
    expect_rest(client, address, [])


@case("proton/time-to-live")
def time_to_live(ctx):
    """A short time to live behind a long one: it is never delivered late, and the others stay."""
    address = ctx.address()
    client = connect(ctx)
    sender = client.sender(address)
    sender.send(
        [message(0, ttl=60), message(1, ttl=0.3), message(2), message(3, ttl=0.3), message(4, ttl=60)]
    )
    browser = client.receiver(address, options=Copy())
    in_order(seqs(browser.drain(10)), [0, 1, 2, 3, 4], "before their time")
    client.pause(0.45)
    expect_rest(client, address, [0, 2, 4], "after their time")
    # Held while its time passes: judged when it comes back.
    sender.send([message(5, ttl=0.3), message(6)])
    holder = client.receiver(address, credit=1)
    held = holder.take(1)
    client.pause(0.45)
    settle(held[0][1], "released")
    expect_rest(client, address, [6], "after the return of an expired one")


@case("proton/whole-message", own_only=True)
def whole_message(ctx):
    """Every section and type arrives as it was sent."""
    address = ctx.address()
    client = connect(ctx)
    bodies = [
        "text",
        b"binary",
        None,
        42,
        -1.5,
        True,
        [1, "two", [3.0, None]],
        {"a": {"b": [1]}},
        uuid.UUID(int=7),
        symbol("sym"),
        "ü" * 300,
        list(range(1000)),
    ]
    sent = []
    for index, body in enumerate(bodies):
        sent.append(
            Message(
                body=body,
                id=uuid.UUID(int=index) if index % 2 else f"id-{index}",
                user_id=b"me",
                address=address,
                subject="S",
                reply_to="r",
                correlation_id=ulong(index),
                content_type=symbol("text/plain"),
                content_encoding=symbol("gzip"),
                expiry_time=0,
                creation_time=1.5,
                group_id="",
                group_sequence=0,
                reply_to_group_id="rg",
                durable=index % 2 == 0,
                priority=index % 10,
                ttl=60 + index,
                properties={"s": "x", "i": index, "f": 1.25, "b": False, "n": None, "u": uuid.UUID(int=1)},
                annotations={symbol("x-opt-a"): {"nested": [1, 2]}, symbol("x-opt-b"): "v"},
                instructions={symbol("x-opt-i"): 1},
            )
        )
    client.sender(address).send(sent)
    taken = client.receiver(address, credit=len(sent)).take(len(sent))
    fields = (
        "body id user_id address subject reply_to correlation_id content_type content_encoding creation_time "
        "reply_to_group_id durable priority properties annotations inferred"
    ).split()
    for index, (original, (received, _)) in enumerate(zip(sent, taken)):
        for field in fields:
            equal(getattr(received, field), getattr(original, field), f"message {index}, {field}")
        check(0 < received.ttl <= original.ttl, f"message {index}, ttl {received.ttl} of {original.ttl}")


@case("proton/refusals", own_only=True)
def refusals(ctx):
    """What may not be had is refused with its error; the session and its other links live on."""
    client = connect(ctx)
    sender = client.sender(ctx.address())
    for attach in (client.receiver, client.sender):
        try:
            attach("closed.nowhere")
            raise Failure("a queue that may not be made was attached to")
        except Refused as refusal:
            equal(refusal.condition, "amqp:not-found", "the refusal of a missing queue")
    sender.send(messages(3))
    expect_rest(client, ctx.address(), [0, 1, 2])


@case("proton/exclusive", own_only=True)
def exclusive(ctx):
    """On an exclusive queue the first consumer is active and the second stands by, and takes over in order."""
    address = "exclusive." + ctx.address()
    client = connect(ctx)
    client.sender(address).send(messages(20))
    first = client.receiver(address, credit=10)
    held = first.take(10)
    second = connect(ctx, beside=client).receiver(address, credit=100)
    client.pause(0.2)
    equal(len(second.box.items), 0, "messages for the consumer that stands by")
    settle(held[0][1])
    first.close()
    in_order(seqs(second.take(19)), list(range(1, 20)), "after the take-over")


@case("proton/prefetch", own_only=True)
def prefetch(ctx):
    """The destination's prefetch clamps what a client asks for."""
    client = connect(ctx)
    for address, limit in (("clamped." + ctx.address(), 5), ("one." + ctx.address(), 1)):
        client.sender(address).send(messages(20))
        receiver = client.receiver(address, credit=15)
        held = receiver.take(limit)
        client.pause(0.2)
        equal(len(receiver.box.items), 0, f"messages beyond the clamp of {limit}")
        for _, delivery in held:
            settle(delivery)
        if limit == 1:
            # Armed by a flow that arrives after the previous delivery was settled.
            client.pause(0.2)
            equal(len(receiver.box.items), 0, "messages without a new flow")
            receiver.link.flow(1)
        in_order(seqs(receiver.take(limit)), list(range(limit, 2 * limit)), "after settlement")


@case("proton/levels", own_only=True)
def levels(ctx):
    """A queue with priorities serves the higher ones first, each level in order."""
    address = "levels." + ctx.address()
    client = connect(ctx)
    client.sender(address).send([message(seq, priority=seq % 10) for seq in range(100)])
    expect_rest(client, address, sorted(range(100), key=lambda seq: (-(seq % 10), seq)))


@case("proton/expiration", own_only=True)
def expiration(ctx):
    """A queue's own expiration replaces the producer's."""
    address = "short." + ctx.address()
    client = connect(ctx)
    client.sender(address).send([message(0), message(1, ttl=60), message(2, ttl=0.1)])
    client.pause(0.15)
    in_order(seqs(client.receiver(address, options=Copy()).drain(10)), [0, 1, 2], "before the queue's time")
    client.pause(0.4)
    expect_rest(client, address, [])


@case("proton/no-local", own_only=True)
def no_local(ctx):
    """A no-local consumer does not get what its own connection sent."""
    address = ctx.address()
    client = connect(ctx)
    other = connect(ctx, beside=client)
    no_local_filter = Filter({symbol("no-local"): Described(ulong(0x0000468C00000003), [])})
    receiver = client.receiver(address, credit=10, options=no_local_filter)
    client.sender(address).send(messages(3))
    other.sender(address).send([message(10)])
    equal(seqs(receiver.take(1)), [10], "for the no-local consumer")
    equal(receiver.drain(10), [], "beyond it")
    receiver.close()
    expect_rest(other, address, [0, 1, 2, 10])


@case("proton/groups", own_only=True)
def groups(ctx):
    """A group belongs to one consumer while it holds a message of it; each group stays in order."""
    address, count = ctx.address(), 400
    home = connect(ctx)
    holders = {}
    order = {}
    problems = []
    waiting = []

    def each(index):
        def take(received, delivery):
            group, seq = received.group_id, received.properties["seq"]
            holder = holders.setdefault(group, [index, 0])
            if holder[1] and holder[0] != index:
                problems.append(f"{group}: {seq} came to {index} while {holder[0]} holds {holder[1]} of it")
            if seq <= order.get(group, -1):
                problems.append(f"{group}: {seq} after {order[group]}")
            order[group] = seq
            holders[group] = [index, holder[1] + 1]
            waiting.append((group, delivery))

        return take

    receivers = [connect(ctx, beside=home).receiver(address, each=each(index)) for index in range(3)]
    for receiver in receivers:
        receiver.link.flow(count)
    home.sender(address).send([message(seq, group_id=f"g{seq % 7}") for seq in range(count)])
    done = 0
    while done < count:
        home.wait(lambda: waiting or problems, f"message after {done}")
        check(not problems, problems[:3])
        group, delivery = waiting.pop(0)
        holders[group][1] -= 1
        settle(delivery)
        done += 1
    equal(sum(len(receiver.box.items) for receiver in receivers), 0, "messages left")
