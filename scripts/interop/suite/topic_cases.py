"""Topics and subscriptions with qpid-proton, by what a source says: capabilities, durability, expiry, filters."""

import uuid

from proton import Data, Described, Terminus, symbol, ulong
from proton.reactor import Filter

from .client import Client, Refused, Source, body_is_right, message, messages, seqs, settle
from .harness import Failure, case, check, equal, in_order
from .load import size_of
from .steps import connect, expect_rest


def source(*capabilities, durable=False, expiry=None, selector=None, no_local=False):
    """Options of a subscriber's link."""

    def change(link):
        if capabilities:
            put_symbols(link.source.capabilities, capabilities)
        if durable:
            link.source.durability = Terminus.DELIVERIES
            link.source.expiry_policy = Terminus.EXPIRE_NEVER
        if expiry is not None:
            link.source.expiry_policy = expiry

    filters = {}
    if selector:
        filters[symbol("selector")] = Described(symbol("apache.org:selector-filter:string"), selector)
    if no_local:
        filters[symbol("no-local")] = Described(ulong(0x0000468C00000003), [])
    return [Source(change), Filter(filters)] if filters else [Source(change)]


def put_symbols(data, names):
    data.put_array(False, Data.SYMBOL)
    data.enter()
    for name in names:
        data.put_symbol(name)
    data.exit()


def to_topic():
    """Options of a publisher's link that says that its target is a topic."""
    return Source(lambda link: put_symbols(link.target.capabilities, ["topic"]))


def topic(ctx, name):
    """A topic by the configuration of the broker; no other case uses it."""
    return f"topics.{ctx.address(name)}"


def nothing(receiver, what):
    """There is nothing now; what comes later may come."""
    equal(seqs(receiver.drain(100)), [], what)
    receiver.link.flow(100)


@case("topics/every-subscriber", own_only=True)
def every_subscriber(ctx):
    """Each matching subscription gets each message once and in order, whatever its pattern and wherever it lives."""
    base, count = topic(ctx, "news"), 300
    home = connect(ctx)
    patterns = {
        "sport.football": ["sport.football"],
        "sport.*": ["sport.football", "sport.golf"],
        "*.football": ["sport.football"],
        "#": ["sport", "sport.football", "sport.golf", "weather"],
        "sport.#": ["sport", "sport.football", "sport.golf"],
        ">": ["sport", "sport.football", "sport.golf", "weather"],
        "sport.>": ["sport.football", "sport.golf"],
        "weather": ["weather"],
        "else": [],
    }
    names = ["sport", "sport.football", "sport.golf", "weather"]
    subscribers = {}
    for turn, pattern in enumerate(list(patterns) * 2):
        client = connect(ctx, beside=home)
        subscribers[pattern, turn] = client.receiver(f"{base}.{pattern}", credit=4 * count)
    senders = {name: home.sender(f"{base}.{name}") for name in names}
    for name, sender in senders.items():
        sender.start(messages(count, producer=name))
    home.wait(
        lambda: [sender.step() for sender in senders.values()] and all(s.done() for s in senders.values()),
        "outcomes of all senders",
        40,
    )
    for sender in senders.values():
        equal(len(sender.box.accepted), count, "messages accepted")
    for (pattern, _), receiver in subscribers.items():
        found = {name: [] for name in names}
        for received, delivery in receiver.take(count * len(patterns[pattern])):
            found[received.properties["producer"]].append(received.properties["seq"])
            settle(delivery)
        for name in names:
            expected = list(range(count)) if name in patterns[pattern] else []
            in_order(found[name], expected, f"{pattern} from {name}")
        nothing(receiver, f"{pattern} got more than it should")


@case("topics/names", own_only=True)
def names(ctx):
    """A topic by configuration, by `topic://`, and by the capability `topic`; a queue of the same name is something else."""
    client = connect(ctx)
    plain = "not-" + ctx.address("plain")
    for publisher, subscriber in (
        ((topic(ctx, "a"), None), (topic(ctx, "a"), None)),
        (("topic://" + plain, None), ("topic://" + plain, None)),
        ((plain, to_topic()), ("topic://" + plain, None)),
        (("topic://" + plain, None), (plain, source("topic"))),
    ):
        inbox = client.receiver(subscriber[0], credit=10, options=subscriber[1])
        client.sender(publisher[0], options=publisher[1]).send(messages(3))
        taken = inbox.take(3)
        equal(seqs(taken), [0, 1, 2], f"from {publisher[0]} to {subscriber[0]}")
        for _, delivery in taken:
            settle(delivery)
        inbox.close()
    client.sender("queue://" + plain).send([message(9)])
    expect_rest(client, plain, [9], "in the queue that has a topic's name")
    relay = client.sender(None)
    inbox = client.receiver("topic://" + plain, credit=10)
    relay.send([message(5, address="topic://" + plain), message(6, address=topic(ctx, "nobody"))])
    equal(len(relay.box.accepted), 2, "accepted by the anonymous relay")
    equal(seqs(inbox.take(1)), [5], "by the anonymous relay")
    for wrong in ("a.*", "a.#", "a..b"):
        try:
            client.sender("topic://" + wrong)
        except Refused as refused:
            equal(refused.condition, "amqp:invalid-field", f"refusal of a sender to {wrong}")
            continue
        raise Failure(f"a sender to the topic {wrong} was taken")
    try:
        client.receiver("topic://a.>.b")
        raise Failure("a subscriber to a.>.b was taken")
    except Refused as refused:
        equal(refused.condition, "amqp:invalid-field", "refusal of a subscriber to a.>.b")


@case("topics/come-and-go", own_only=True)
def come_and_go(ctx):
    """Who comes late gets what is published from then on; who has gone leaves nothing behind."""
    address = topic(ctx, "t")
    client = connect(ctx)
    sender = client.sender(address)
    sender.send(messages(10))
    equal(len(sender.box.accepted), 10, "accepted without a subscriber")
    first = client.receiver(address, credit=100)
    sender.send([message(10)])
    second = connect(ctx, beside=client).receiver(address, credit=100)
    sender.send([message(11)])
    equal(seqs(first.take(2)), [10, 11], "the first subscriber's")
    equal(seqs(second.take(1)), [11], "the second subscriber's")
    first.close()
    gone = Client(ctx.url, beside=client)
    gone.receiver(address, credit=100)
    gone.abandon()
    sender.send(messages(50))
    equal(len(second.take(50)), 50, "after the others have gone")
    second.close()
    third = client.receiver(address, credit=100)
    nothing(third, "before the third subscriber")
    # A subscription that is released, rejected or accepted is nobody else's.
    other = client.receiver(address, credit=1)
    sender.send(messages(2))
    taken = third.take(2)
    settle(taken[0][1], "released")
    settle(taken[1][1], "rejected")
    equal(seqs(third.take(1)), [0], "released")
    equal(seqs(other.take(1)), [0], "the other's own")


@case("topics/durable", own_only=True)
def durable(ctx):
    """A durable subscription gathers while its subscriber is away, whatever shard it comes back to; closing it ends it."""
    address, container = topic(ctx, "d"), str(uuid.uuid4())
    home = connect(ctx)
    sender = home.sender(address)
    expected = []
    for turn in range(4):
        client = Client(ctx.url, beside=home, container_id=container)
        inbox = client.receiver(address, credit=20, options=source("topic", durable=True), name="sub")
        if expected:
            taken = inbox.take(len(expected))
            in_order(seqs(taken), expected, f"gathered before turn {turn}")
            for _, delivery in taken:
                settle(delivery)
        sender.send([message(1000 + turn)])
        settle(inbox.take(1)[0][1])
        client.pause(0.05)
        if turn % 2:
            inbox.detach()
            client.close()
        else:
            client.abandon()
            home.pause(0.3)
        sender.send([message(seq) for seq in range(10 * turn, 10 * turn + 10)])
        expected = list(range(10 * turn, 10 * turn + 10))
    # Of another container, or another name, it is another subscription.
    for other_container, name in ((str(uuid.uuid4()), "sub"), (container, "other")):
        client = Client(ctx.url, beside=home, container_id=other_container)
        inbox = client.receiver(address, credit=20, options=source("topic", durable=True), name=name)
        nothing(inbox, f"for {name} of another")
        inbox.close()
        client.close()
    client = connect(ctx, beside=home, container_id=container)
    inbox = client.receiver(address, credit=5, options=source("topic", durable=True), name="sub")
    taken = inbox.take(5)
    in_order(seqs(taken), expected[:5], "after all turns")
    inbox.detach()
    inbox = client.receiver(address, credit=20, options=source("topic", durable=True), name="sub")
    in_order(seqs(inbox.take(10)), expected, "what was not settled")
    inbox.close()
    sender.send(messages(5))
    inbox = client.receiver(address, credit=20, options=source("topic", durable=True), name="sub")
    nothing(inbox, "after the subscription was ended")
    inbox.close()


def look_up(client, name):
    """Attaches without a source: the durable subscription of that name is looked up."""

    def change(link):
        link.source.type = Terminus.UNSPECIFIED

    return client.receiver(None, name=name, options=Source(change))


@case("topics/unsubscribe", own_only=True)
def unsubscribe(ctx):
    """An attach without a source finds the durable subscription of its name; closing that link ends the subscription."""
    address, container = topic(ctx, "d"), str(uuid.uuid4())
    client = connect(ctx, container_id=container)
    sender = client.sender(address)
    inbox = client.receiver(
        address, options=source("topic", durable=True, selector="seq > 2"), name="sub", credit=10
    )
    inbox.detach()
    sender.send(messages(6))
    found = look_up(client, "sub")
    check(found.link.remote_source.address, "the subscription's source has no address")
    equal(found.link.remote_source.durability, Terminus.DELIVERIES, "durability of what was found")
    found.close()
    try:
        look_up(client, "sub")
        raise Failure("the subscription is still there")
    except Refused as refused:
        equal(refused.condition, "amqp:not-found", "refusal")
    inbox = client.receiver(address, options=source("topic", durable=True), name="sub", credit=10)
    nothing(inbox, "in the new subscription")
    sender.send(messages(2))
    equal(seqs(inbox.take(2)), [0, 1], "of the new subscription")
    inbox.close()


@case("topics/shared", own_only=True)
def shared(ctx):
    """A shared subscription of several connections, of one container or global: each message goes to one of them."""
    count = 400
    home = connect(ctx)
    for index, (capabilities, lasting) in enumerate(
        (
            (("topic", "shared"), False),
            (("topic", "shared", "global"), False),
            (("topic", "shared"), True),
            (("topic", "shared", "global"), True),
        )
    ):
        address, container = topic(ctx, f"s{index}"), str(uuid.uuid4())
        is_global = "global" in capabilities
        clients = [
            Client(ctx.url, beside=home, container_id=f"{container}-{turn if is_global else 0}")
            for turn in range(3)
        ]
        shares = [[] for _ in clients]

        def taker(share):
            return lambda received, delivery: (share.append(received.properties["seq"]), settle(delivery))

        options = source(*capabilities, durable=lasting)
        inboxes = [
            client.receiver(address, options=options, name=f"sub|{turn}", each=taker(share))
            for turn, (client, share) in enumerate(zip(clients, shares))
        ]
        for inbox in inboxes:
            inbox.link.flow(count)
        alone = home.receiver(address, credit=count)
        home.sender(address).send(messages(count))
        home.wait(lambda: sum(map(len, shares)) == count, "all messages among the three")
        in_order(sorted(seq for share in shares for seq in share), list(range(count)), "each once")
        for share in shares:
            in_order(share, sorted(share), "order of a share")
            check(len(share) > count // 6, f"shares of {[len(share) for share in shares]}")
        in_order(seqs(alone.take(count)), list(range(count)), "who does not share")
        alone.close()
        for inbox in inboxes:
            if lasting:
                inbox.detach()
            else:
                inbox.close()
        home.sender(address).send(messages(10))
        last = clients[0].receiver(address, options=options, name="sub|9")
        found = seqs(last.drain(100))
        equal(found, list(range(10)) if lasting else [], "what was gathered when nobody was there")
        last.close()
        for client in clients:
            client.close()


@case("topics/filters", own_only=True)
def filters(ctx):
    """Selectors on subscriptions of every kind, and no-local: what is not wanted is not kept either."""
    address, container = topic(ctx, "f"), str(uuid.uuid4())
    client = connect(ctx, container_id=container)
    other = connect(ctx, beside=client)
    sender, others = client.sender(address), other.sender(address)
    kinds = {
        "plain": source("topic", selector="colour = 'red'"),
        "durable": source("topic", durable=True, selector="colour = 'red'"),
        "shared": source("topic", "shared", selector="colour = 'red'"),
        "lasting": source("topic", "shared", durable=True, selector="colour = 'red'"),
        "no-local": source("topic", no_local=True),
        "no-local-durable": source("topic", durable=True, no_local=True),
        "both": source("topic", no_local=True, selector="colour = 'blue'"),
    }
    inboxes = {name: client.receiver(address, options=options, name=name) for name, options in kinds.items()}
    colours = ["red", "green", "blue"]
    for link, producer in ((sender, "own"), (others, "other")):
        link.send(
            [message(seq, producer=producer, properties={"colour": colours[seq % 3]}) for seq in range(30)]
        )
    red, blue = list(range(0, 30, 3)), list(range(2, 30, 3))
    expected = {
        "plain": red + red,
        "durable": red + red,
        "shared": red + red,
        "lasting": red + red,
        "no-local": list(range(30)),
        "no-local-durable": list(range(30)),
        "both": blue,
    }
    for name, inbox in inboxes.items():
        taken = inbox.drain(100)
        in_order(seqs(taken), expected[name], name)
        for received, delivery in taken:
            check("no-local" not in name or received.properties["producer"] == "other", f"{name} got its own")
            settle(delivery)
        inbox.close()
    try:
        client.receiver(address, options=source("topic", selector="colour = = 'red'"))
        raise Failure("a wrong selector was taken")
    except Refused as refused:
        equal(refused.condition, "amqp:invalid-field", "refusal of a wrong selector")


@case("topics/bodies", own_only=True, seconds=120)
def bodies(ctx):
    """A thousand messages of 0 B to 1 MiB to twelve subscribers, one of them slow: each gets each body, in order."""
    address, count = topic(ctx, "b"), 4000 if ctx.full else 1000
    home = connect(ctx)
    takers = [Taker() for _ in range(12)]
    for index, taker in enumerate(takers):
        client = connect(ctx, beside=home)
        inbox = client.receiver(address, each=taker.take)
        taker.link, taker.step = inbox.link, 1 if index == 0 else 50
        inbox.link.flow(taker.step)
    sender = home.sender(address)
    sender.start(message(seq, size_of(seq)) for seq in range(count))
    home.wait(
        lambda: sender.step()
        or next((taker.problem for taker in takers if taker.problem), None)
        or (sender.done() and all(taker.next == count for taker in takers)),
        "all bodies at all subscribers",
        100,
    )
    for taker in takers:
        check(not taker.problem, taker.problem)


class Taker:
    """Looks at what arrives, in order, and renews its credit."""

    def __init__(self):
        self.next = 0
        self.problem = None

    def take(self, received, delivery):
        seq = received.properties["seq"]
        if seq != self.next or not body_is_right(received):
            self.problem = self.problem or f"{seq} came instead of {self.next}, or its body is wrong"
        self.next = seq + 1
        settle(delivery)
        if self.next % self.step == 0:
            self.link.flow(self.step)


@case("topics/temporary", own_only=True)
def temporary(ctx):
    """Temporary topics: made by a sender or a receiver, gone with the link that made them."""
    client = connect(ctx)
    other = connect(ctx, beside=client)

    def dynamic_sender(link):
        link.target.dynamic = True
        put_symbols(link.target.capabilities, ["temporary-topic"])

    made = client.sender(None, options=Source(dynamic_sender))
    address = made.link.remote_target.address
    check(address, "the temporary topic has no address")
    inboxes = [other.receiver(address, credit=10, options=source("topic")) for _ in range(2)]
    made.send(messages(3))
    for inbox in inboxes:
        taken = inbox.take(3)
        equal(seqs(taken), [0, 1, 2], "from a temporary topic")
        for _, delivery in taken:
            settle(delivery)
    made.close()
    client.pause(0.2)
    try:
        other.sender(address).send([message(0)])
        raise Failure("a temporary topic is there after its link has closed")
    except Refused as refused:
        equal(refused.condition, "amqp:not-found", "refusal")
