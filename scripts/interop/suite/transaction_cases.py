"""Local transactions with qpid-proton's own `Transaction`, and by hand where the library has no word for it."""

import uuid

from proton.handlers import TransactionHandler

from .bystander import raw_case
from .client import Client, Outbox, message, messages, seqs, settle
from .frames import ATTACH, DISPOSITION, FLOW, TRANSFER, Described, Socket, Symbol, Uint, data, encode
from .harness import case, check, equal, in_order
from .steps import connect, expect_rest

COORDINATOR, DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL = 0x30, 0x31, 0x32, 0x33, 0x34
UNKNOWN = "amqp:transaction:unknown-id"


class Transactions(TransactionHandler):
    """One transaction after the other on a client's connection."""

    def __init__(self, client, settle_before=False):
        self.client = client
        self.settle_before = settle_before
        self.state = None
        self.current = None

    def begin(self):
        self.state = None
        self.current = self.client.container.declare_transaction(
            self.client.remote, handler=self, settle_before_discharge=self.settle_before
        )
        self.client.wait(lambda: self.state, "a transaction")
        equal(self.state, "declared", "the transaction")
        return self.current

    def end(self, commit, expected=None):
        self.state = None
        self.current.discharge(not commit)
        self.client.wait(lambda: self.state, "end of the transaction")
        equal(self.state, expected or ("committed" if commit else "aborted"), "the transaction")

    def on_transaction_declared(self, event):
        self.state = "declared"

    def on_transaction_declare_failed(self, event):
        self.state = "not declared"

    def on_transaction_committed(self, event):
        self.state = "committed"

    def on_transaction_aborted(self, event):
        self.state = "aborted"

    def on_transaction_commit_failed(self, event):
        self.state = "not committed"


class Inside(Outbox):
    """Counts what was settled inside transactions, whose outcomes the library does not tell apart."""

    def __init__(self):
        super().__init__()
        self.ended = 0

    def on_settled(self, event):
        self.ended += 1


class Poster:
    """A sender whose messages belong to transactions."""

    def __init__(self, client, address):
        self.client = client
        self.box = Inside()
        self.link = client.container.create_sender(
            client.remote, address, name=str(uuid.uuid4()), handler=self.box
        )
        client.attached(self.link, self.box)
        self.sent = 0

    def post(self, transaction, posted):
        """Sends all and waits until each was taken."""
        for each in posted:
            self.client.wait(lambda: self.link.credit > 0, "credit")
            transaction.send(self.link, each)
            self.sent += 1
        self.client.wait(lambda: self.box.ended == self.sent, "outcome of messages inside a transaction")


def pending(client, address, expected, what):
    """Looks what another consumer would get, and gives it back."""
    inbox = client.receiver(address)
    taken = inbox.drain(1000)
    in_order(seqs(taken), list(expected), what)
    for _, delivery in taken:
        settle(delivery, "released")
    inbox.close()


@case("transactions/posting", own_only=True)
def posting(ctx):
    """What is sent inside is seen by nobody before the commit, at once and in order after it, and never after an abort."""
    home = connect(ctx)
    client = connect(ctx, beside=home)
    addresses = [ctx.address(f"q{index}") for index in range(5)]
    posters = [Poster(client, address) for address in addresses]
    plain = [home.sender(address) for address in addresses]
    transactions = Transactions(client)
    expected = []
    for turn, commit in enumerate((True, False, True, False)):
        transaction = transactions.begin()
        inside = [message(100 * turn + seq) for seq in range(10)]
        for poster in posters:
            poster.post(transaction, inside)
        for sender in plain:
            sender.send([message(1000 + turn)])
        for address in addresses:
            pending(home, address, expected + [1000 + turn], "before the end")
        transactions.end(commit)
        # Sent before what was sent without a transaction: it has its place from then.
        expected += [100 * turn + seq for seq in range(10)] * commit + [1000 + turn]
        for address in addresses:
            pending(home, address, expected, f"after the end of transaction {turn}")


@case("transactions/retiring", own_only=True)
def retiring(ctx):
    """What is accepted inside is gone after the commit; after an abort it comes back to its place, with one try more."""
    for settle_before in (False, True):
        address = ctx.address(f"q{settle_before}")
        client = connect(ctx)
        client.sender(address).send(messages(30))
        transactions = Transactions(client, settle_before)
        inbox = client.receiver(address, credit=10)
        taken = inbox.take(10)
        transaction = transactions.begin()
        for _, delivery in taken[:6]:
            transaction.accept(delivery)
        transactions.end(False)
        client.pause(0.05)
        for _, delivery in taken[6:]:
            settle(delivery, "released")
        inbox.close()
        inbox = client.receiver(address, credit=30)
        taken = inbox.take(30)
        in_order(seqs(taken), list(range(30)), "after the abort")
        transaction = transactions.begin()
        for _, delivery in taken[::2]:
            transaction.accept(delivery)
        other = connect(ctx, beside=client)
        pending(other, address, [], "while all are held")
        transactions.end(True)
        for _, delivery in taken[1::2]:
            settle(delivery, "released")
        inbox.close()
        expect_rest(other, address, range(1, 30, 2), "after the commit")


@case("transactions/moving", own_only=True)
def moving(ctx):
    """From one queue to another in transactions, some aborted: every message is in one of them, once."""
    count, step = 120, 10
    source, target = ctx.address("source"), ctx.address("target")
    client = connect(ctx)
    client.sender(source).send(messages(count))
    poster = Poster(client, target)
    transactions = Transactions(client, settle_before=True)
    moved = []
    turn = 0
    while len(moved) < count:
        inbox = client.receiver(source, credit=step)
        taken = inbox.take(step)
        in_order(seqs(taken), list(range(len(moved), len(moved) + step)), f"turn {turn}")
        transaction = transactions.begin()
        poster.post(transaction, [received for received, _ in taken])
        for _, delivery in taken:
            transaction.accept(delivery)
        commit = turn % 3 != 1
        transactions.end(commit)
        inbox.close()
        if commit:
            moved += seqs(taken)
        turn += 1
    expect_rest(client, source, [], "in the source")
    expect_rest(client, target, range(count), "in the target")


@case("transactions/lost", own_only=True)
def lost(ctx):
    """A connection that ends with a transaction open, in whatever way: it is rolled back everywhere."""
    home = connect(ctx)
    for index, way in enumerate(("close", "abandon", "coordinator")):
        taken_from = [ctx.address(f"in{index}.{place}") for place in range(3)]
        posted_to = [ctx.address(f"out{index}.{place}") for place in range(3)]
        for address in taken_from:
            home.sender(address).send(messages(10))
        client = Client(ctx.url, beside=home)
        transactions = Transactions(client, settle_before=True)
        posters = [Poster(client, address) for address in posted_to]
        inboxes = [client.receiver(address, credit=10) for address in taken_from]
        transaction = transactions.begin()
        for inbox in inboxes:
            for _, delivery in inbox.take(10):
                transaction.accept(delivery)
        for poster in posters:
            poster.post(transaction, messages(10))
        for address in taken_from:
            pending(home, address, [], "taken inside")
        if way == "close":
            client.close()
        elif way == "abandon":
            client.abandon()
        else:
            client.remote._txn_ctrl.close()
            client.pause(0.1)
            for inbox in inboxes:
                inbox.close()
        waiting = [home.receiver(address, credit=10) for address in taken_from]
        for inbox in waiting:
            taken = inbox.take(10)
            in_order(seqs(taken), list(range(10)), f"back after {way}")
            for _, delivery in taken:
                settle(delivery)
        for address in posted_to:
            expect_rest(home, address, [], f"sent inside, after {way}")
        if way == "coordinator":
            client.close()


@case("transactions/volume", own_only=True, seconds=120)
def volume(ctx):
    """Three connections, each with transactions over four queues; a reader sees all of a transaction in each queue, or nothing."""
    rounds, size = (60, 20) if ctx.full else (20, 10)
    home = connect(ctx)
    addresses = [ctx.address(f"q{index}") for index in range(4)]
    inboxes = [home.receiver(address, credit=10_000) for address in addresses]
    committed = {}
    for producer in range(3):
        client = connect(ctx, beside=home)
        transactions = Transactions(client)
        posters = [Poster(client, address) for address in addresses]
        for turn in range(rounds):
            transaction = transactions.begin()
            name = f"p{producer}.{turn}"
            for poster in posters:
                poster.post(transaction, messages(size, producer=name))
            commit = (turn + producer) % 3 != 0
            transactions.end(commit)
            if commit:
                committed[name] = list(range(size))
    for inbox in inboxes:
        found = {}
        for received, delivery in inbox.take(size * len(committed)):
            found.setdefault(received.properties["producer"], []).append(received.properties["seq"])
            settle(delivery)
        equal(sorted(found), sorted(committed), "transactions that were committed")
        for name, list_of in found.items():
            in_order(list_of, committed[name], name)
        equal(inbox.drain(10), [], "of aborted transactions")


@case("transactions/full-queue", own_only=True)
def full_queue(ctx):
    """A queue that is full inside a transaction: what it refuses makes the commit fail, and nothing of the transaction stays."""
    client = connect(ctx)
    full, free = "reject." + ctx.address(), ctx.address()
    transactions = Transactions(client)
    posters = [Poster(client, free), Poster(client, full)]
    transaction = transactions.begin()
    posters[0].post(transaction, messages(3))
    posters[1].post(transaction, messages(8))
    transactions.end(True, expected="not committed")
    expect_rest(client, free, [], "in the queue with room")
    expect_rest(client, full, [], "in the full queue")
    transaction = transactions.begin()
    posters[1].post(transaction, messages(5))
    transactions.end(True)
    expect_rest(client, full, range(5), "when there is room")


class Coordinator:
    """Commands to a coordinator, frame by frame, on handle 5 of the session."""

    def __init__(self, one):
        self.one = one
        capabilities = Symbol("amqp:local-transactions")
        one.frame(
            ATTACH,
            [
                "coordinator",
                Uint(5),
                False,
                None,
                None,
                Described(0x28, []),
                Described(COORDINATOR, [capabilities]),
                None,
                None,
                Uint(0),
            ],
        )
        check(one.expect(ATTACH).field(6) is not None, "the coordinator was refused")
        one.expect_flow()

    def command(self, code, fields):
        self.one.transfer(encode(Described(0x77, Described(code, fields))), handle=5)
        return self.one.expect(DISPOSITION).field(4)

    def declare(self):
        state = self.command(DECLARE, [None])
        equal(state.code, DECLARED, "outcome of declare")
        return state.value[0]

    def discharge(self, identity, failed):
        """None, or the condition of the refusal."""
        state = self.command(DISCHARGE, [identity, failed])
        return None if state.code == 0x24 else state.value[0].value[0]


@raw_case("transaction-errors")
def transaction_errors(ctx, others):
    """Transactions that do not exist, or are another connection's, and commands that are none: refused, and all else goes on."""
    one, two = Socket(ctx), Socket(ctx)
    for each in (one, two):
        each.open()
        each.begin()
    coordinators = [Coordinator(one), Coordinator(two)]
    one.attach_sender(ctx.address())
    identity = coordinators[0].declare()
    equal(coordinators[1].discharge(identity, False), UNKNOWN, "another connection's")
    equal(coordinators[0].discharge(b"\x00\xff\x10", False), UNKNOWN, "one that never was")
    equal(coordinators[0].discharge(identity, False), None, "its own")
    equal(coordinators[0].discharge(identity, False), UNKNOWN, "a second time")
    # A message for a transaction that does not exist.
    one.frame(
        TRANSFER,
        [
            Uint(0),
            Uint(one.next_delivery),
            b"tag",
            Uint(0),
            False,
            False,
            None,
            Described(TRANSACTIONAL, [b"\x01\x02"]),
        ],
        data(b"lost"),
    )
    one.next_delivery += 1
    state = one.expect(DISPOSITION).field(4)
    if state.code == TRANSACTIONAL:
        state = state.value[1]
    equal((state.code, state.value[0].value[0]), (0x25, UNKNOWN), "the outcome of a message for it")
    state = coordinators[0].command(0x3F, [])
    equal(state.code, 0x25, "the outcome of a command that is none")
    others()
    expect_rest(connect(ctx), ctx.address(), [])


@raw_case("transactional-acquisition")
def transactional_acquisition(ctx, others):
    """A flow that names a transaction: what is delivered for it belongs to it, and goes back when it is rolled back."""
    client = connect(ctx)
    client.sender(ctx.address()).send(messages(6))
    one = Socket(ctx)
    one.open()
    one.begin()
    coordinator = Coordinator(one)
    one.attach_receiver(ctx.address())
    for turn, failed in enumerate((True, False)):
        identity = coordinator.declare()
        properties = {Symbol("txn-id"): identity}
        one.frame(
            FLOW,
            [
                Uint(3 * turn),
                Uint(2048),
                Uint(0),
                Uint(2048),
                Uint(1),
                Uint(3 * turn),
                Uint(3),
                None,
                False,
                False,
                properties,
            ],
        )
        bodies = []
        for _ in range(3):
            found = one.expect(TRANSFER)
            state = found.field(7)
            check(state is not None and state.code == TRANSACTIONAL, f"a transfer's state: {state!r}")
            equal(state.value[0], identity, "the transaction of a transfer")
            bodies.append(found.field(1))
            outcome = Described(TRANSACTIONAL, [identity, Described(0x24, [])])
            one.frame(DISPOSITION, [True, Uint(found.field(1)), None, True, outcome])
        equal(coordinator.discharge(identity, failed), None, "discharge")
        if failed:
            others()
    one.socket.close()
    expect_rest(client, ctx.address(), range(3, 6))
