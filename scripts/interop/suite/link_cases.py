"""qpid-proton for Python: connections and links that come, go, and are many."""

import signal
import subprocess
import sys
import time

from proton import ConnectionException
from proton.utils import ConnectionClosed

from .client import Client, Source, message, messages, seqs, settle
from .harness import Failure, case, check, equal, in_order
from .steps import connect, expect_rest


@case("proton/link-close")
def link_close(ctx):
    """A link closed with unsettled deliveries: they come back in order, what was settled does not."""
    address = ctx.address()
    client = connect(ctx)
    client.sender(address).send(messages(100))
    receiver = client.receiver(address, credit=50)
    taken = receiver.take(50)
    for seq in (0, 3, 7, 49):
        settle(taken[seq][1])
    settle(taken[5][1], "rejected")
    receiver.close()
    rest = [seq for seq in range(100) if seq not in (0, 3, 5, 7, 49)]
    second = client.receiver(address, credit=200)
    taken = second.take(len(rest))
    in_order(seqs(taken), rest, "after the first close")
    # A link that ends without outcomes tried its oldest delivery, no other.
    equal([received.delivery_count for received, _ in taken], [1] + [0] * (len(rest) - 1), "delivery-counts")
    second.close()
    expect_rest(client, address, rest, "after the second close")


@case("proton/connection-close")
def connection_close(ctx):
    """A connection closed with unsettled deliveries on several links, while others wait for them."""
    home = connect(ctx)
    addresses = [ctx.address(f"q{index}") for index in range(4)]
    for address in addresses:
        home.sender(address).send(messages(60))
    holder = Client(ctx.url, beside=home)
    held = [holder.receiver(address, credit=40) for address in addresses]
    for receiver in held:
        in_order(seqs(receiver.take(40)), list(range(40)), "held")
    # The waiting consumer has credit for more than is left: it gets the rest now, and the returned ones in their order.
    waiting = [home.receiver(address, credit=100) for address in addresses]
    for receiver in waiting:
        in_order(seqs(receiver.take(20)), list(range(40, 60)), "left over")
    holder.close()
    for receiver in waiting:
        taken = receiver.take(40)
        in_order(seqs(taken), list(range(40)), "returned by the closed connection")
        equal(
            [received.delivery_count for received, _ in taken],
            [1] + [0] * 39,
            "delivery-counts (the oldest was tried)",
        )
        check(
            not any(received.first_acquirer for received, _ in taken),
            "a returned message claims a first acquirer",
        )


@case("proton/kill")
def kill(ctx):
    """A client killed with unsettled deliveries: they come back in order, once."""
    address = ctx.address()
    client = connect(ctx)
    client.sender(address).send(messages(500))
    for turn in range(3):
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]); from suite.client import Client, seqs\n"
            "client = Client(sys.argv[2]); receiver = client.receiver(sys.argv[3], credit=300)\n"
            "assert seqs(receiver.take(300)) == list(range(300)), 'wrong order'\n"
            "print('holding', flush=True); client.pause(60)\n"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", code, ctx.tools.suite_folder, ctx.url, address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        ctx.later(child.kill)
        if child.stdout.readline() != "holding\n":
            raise Failure(f"turn {turn}: the client to be killed failed: {child.stderr.read()[-500:]}")
        child.send_signal(signal.SIGKILL)
        child.wait()
    time.sleep(0.3)
    expect_rest(client, address, range(500), "after three killed clients")


@case("proton/many-unsettled")
def many_unsettled(ctx):
    """20,000 deliveries unsettled on one link come back in order when it closes."""
    address, count = ctx.address(), 20_000
    client = connect(ctx)
    client.sender(address).send(messages(count, size=10), timeout=40)
    receiver = client.receiver(address, credit=count)
    in_order(seqs(receiver.take(count, 40)), list(range(count)), "first time")
    receiver.close()
    again = client.receiver(address, credit=count)
    in_order(seqs(again.take(count, 40)), list(range(count)), "second time")


@case("proton/many-links")
def many_links(ctx):
    """One connection with senders and receivers for 40 queues, which live on all shards."""
    count = 100
    addresses = [ctx.address(f"q{index}") for index in range(40)]
    client = connect(ctx)
    receivers = [client.receiver(address, credit=count) for address in addresses]
    senders = [client.sender(address) for address in addresses]
    for sender in senders:
        sender.start(messages(count))
    client.wait(
        lambda: [sender.step() for sender in senders] and all(sender.done() for sender in senders),
        "outcomes of all senders",
        40,
    )
    for address, receiver in zip(addresses, receivers):
        taken = receiver.take(count)
        in_order(seqs(taken), list(range(count)), address)
        for _, delivery in taken:
            settle(delivery)
    for receiver in receivers:
        equal(receiver.drain(1), [], "left in a queue")


@case("proton/two-busy-queues")
def two_busy_queues(ctx):
    """Two busy consumers of one connection alternate; neither waits for the other to run dry.

    Several pairs of queues, so that some live together and some apart.
    """
    count = 2000
    for pair in range(5):
        client = Client(ctx.url)
        ctx.later(client.close)
        order = []
        names = [ctx.address(f"{pair}.{name}") for name in ("a", "b")]
        for name in names:
            client.sender(name).send(messages(count, size=100))
        receivers = [client.receiver(name, each=noted_in(order, name)) for name in names]
        for receiver in receivers:
            receiver.link.flow(count)
        client.wait(lambda: len(order) == 2 * count, "all messages")
        first_dry = min(len(order) - 1 - order[::-1].index(name) for name in names)
        other = names[1] if order[first_dry] == names[0] else names[0]
        served = order[:first_dry].count(other)
        check(
            served >= count // 2,
            f"pair {pair}: when one queue ran dry, the other had got {served} of {count}",
        )
        client.close()


def noted_in(order, name):
    """Accepts what comes and notes from where."""

    def each(_received, delivery):
        order.append(name)
        settle(delivery)

    return each


@case("proton/homed-apart")
def homed_apart(ctx):
    """Eight connections in a ring: each consumes one queue and produces into the next one's."""
    places, count = 8, 400
    home = connect(ctx)
    clients = [connect(ctx, beside=home) for _ in range(places)]
    addresses = [ctx.address(f"q{index}") for index in range(places)]
    receivers = [client.receiver(address, credit=count) for client, address in zip(clients, addresses)]
    senders = [client.sender(addresses[(index + 1) % places]) for index, client in enumerate(clients)]
    for index, sender in enumerate(senders):
        sender.start(messages(count, producer=f"p{index}"))
    home.wait(
        lambda: [sender.step() for sender in senders] and all(sender.done() for sender in senders),
        "outcomes of all senders",
        40,
    )
    for index, receiver in enumerate(receivers):
        taken = receiver.take(count)
        in_order(seqs(taken), list(range(count)), addresses[index])
        equal({item[0].properties["producer"] for item in taken}, {f"p{(index - 1) % places}"}, "who sent it")


@case("proton/moves-while-producing")
def moves_while_producing(ctx):
    """A connection produces to queues on several shards, then attaches its first consumer; order holds, all are settled once."""
    count, places = 1500, 8
    home = connect(ctx)
    client = connect(ctx, beside=home)
    addresses = [ctx.address(f"q{index}") for index in range(places)]
    senders = [client.sender(address) for address in addresses]
    for sender in senders:
        sender.start(messages(count, size=50))
    started = []

    def step():
        for sender in senders:
            sender.step()
        if not started and sum(sender.box.settled() for sender in senders) > places * count // 4:
            started.append(client.container.create_receiver(client.remote, ctx.address("other")))
            started[0].flow(10)
        return all(sender.done() for sender in senders)

    home.wait(step, "outcomes of all senders", 40)
    check(started, "the consumer was never attached")
    for sender in senders:
        equal(len(sender.box.accepted), count, "messages accepted")
        equal(len(set(sender.box.accepted)), count, "messages accepted, each once")
    for address in addresses:
        expect_rest(home, address, range(count), address)
    home.sender(ctx.address("other")).send(messages(1))
    client.wait(lambda: started[0].queued or started[0].credit < 10, "message for the connection that moved")


@case("proton/request-response")
def request_response(ctx):
    """Replies to a dynamic node by an anonymous sender; the node's address is unique and goes with its link."""
    server = connect(ctx)
    offered = server.remote.remote_offered_capabilities
    # The field may hold one symbol or an array of them.
    check(
        "ANONYMOUS-RELAY" in ([offered] if isinstance(offered, str) else list(offered or [])),
        f"ANONYMOUS-RELAY is not offered: {offered!r}",
    )
    address = ctx.address()
    requests = server.receiver(address, credit=100)
    replies = server.sender(None)
    clients = [connect(ctx, beside=server) for _ in range(3)]

    def dynamic(link):
        link.source.dynamic = True

    inboxes = [client.receiver(None, credit=10, options=Source(dynamic)) for client in clients]
    names = [inbox.address for inbox in inboxes]
    check(all(names) and len(set(names)) == 3, f"addresses of dynamic nodes: {names}")
    for index, client in enumerate(clients):
        client.sender(address).send([message(index, reply_to=names[index], correlation_id=f"c{index}")])
    for received, delivery in requests.take(3):
        settle(delivery)
        replies.send(
            [
                message(
                    received.properties["seq"],
                    address=received.reply_to,
                    correlation_id=received.correlation_id,
                )
            ]
        )
    equal(len(replies.box.accepted), 3, "replies accepted")
    for index, inbox in enumerate(inboxes):
        received, delivery = inbox.take(1)[0]
        equal((received.properties["seq"], received.correlation_id), (index, f"c{index}"), "reply")
        settle(delivery)
    inboxes[0].close()
    clients[1].abandon()
    server.pause(0.3)
    for gone in names[:2]:
        dead = Client(ctx.url, beside=server)
        relay = dead.sender(None)
        relay.start([message(0, address=gone)])
        dead.wait(lambda: relay.step() or relay.done(), "outcome of a message to a node that is gone")
        check(not relay.box.accepted, f"a message to the node {gone}, which is gone, was accepted")
        dead.close()


@case("proton/anonymous-relay")
def anonymous_relay(ctx):
    """A sender without an address: each message goes where its `to` says; without `to` it is refused."""
    client = connect(ctx)
    relay = client.sender(None)
    addresses = [ctx.address(f"q{index}") for index in range(6)]
    relay.send([message(seq, address=addresses[seq % 6]) for seq in range(300)])
    equal(len(relay.box.accepted), 300, "messages accepted")
    relay.start([message(0)])
    client.wait(lambda: relay.step() or relay.done(), "outcome of a message without `to`")
    equal(len(relay.box.rejected), 1, "messages without `to` rejected")
    for index, address in enumerate(addresses):
        expect_rest(client, address, range(index, 300, 6), address)


@case("proton/transfer-then-detach")
def transfer_then_detach(ctx):
    """A sender that detaches right behind its message: the message is there, and its outcome still comes."""
    home = connect(ctx)
    for turn in range(30):
        address = ctx.address(f"q{turn % 5}")
        client = Client(ctx.url, beside=home)
        sender = client.sender(address)
        home.wait(lambda: sender.link.credit, "credit")
        sender.link.send(message(turn))
        sender.close()
        client.close()
    for index in range(5):
        expect_rest(home, ctx.address(f"q{index}"), range(index, 30, 5))


@case("proton/churn")
def churn(ctx):
    """Connections, links and dynamic nodes come and go by the hundred."""
    home = connect(ctx)
    address = ctx.address()
    for turn in range(150):
        client = Client(ctx.url, beside=home)
        client.sender(address).send([message(turn)])
        receiver = client.receiver(address, credit=1)
        received, delivery = receiver.take(1)[0]
        equal(received.properties["seq"], turn, "turn")
        settle(delivery)
        if turn % 3 == 0:
            receiver.close()
        if turn % 2:
            client.close()
        else:
            home.pause(0.01)
            client.abandon()
    expect_rest(home, address, [])


@case("proton/many-connections")
def many_connections(ctx):
    """A hundred connections at once, each with its own queue and with a common one."""
    home = connect(ctx)
    clients = [connect(ctx, beside=home) for _ in range(100)]
    common = ctx.address("common")
    senders = [client.sender(common) for client in clients]
    own = [client.sender(ctx.address(f"q{index}")) for index, client in enumerate(clients)]
    for index, sender in enumerate(senders + own):
        sender.start(messages(20, producer=f"p{index}"))
    home.wait(
        lambda: [sender.step() for sender in senders + own]
        and all(sender.done() for sender in senders + own),
        "outcomes of all senders",
        40,
    )
    receivers = [client.receiver(ctx.address(f"q{index}"), credit=20) for index, client in enumerate(clients)]
    for receiver in receivers:
        in_order(seqs(receiver.take(20)), list(range(20)), "own queue")
    last = {}
    for received, delivery in home.receiver(common, credit=2000).take(2000):
        producer, seq = received.properties["producer"], received.properties["seq"]
        equal(seq, last.get(producer, -1) + 1, f"order of {producer}")
        last[producer] = seq
        settle(delivery)


@case("proton/heartbeat")
def heartbeat(ctx):
    """A client that wants to hear something every second is kept although nothing happens."""
    client = connect(ctx, heartbeat=1)
    sender = client.sender(ctx.address())
    client.pause(4)
    sender.send(messages(1))
    expect_rest(client, ctx.address(), [0])


@case("proton/stop", own_only=True)
def graceful_stop(ctx):
    """SIGTERM: connections are closed with amqp:connection:forced and the process exits with 0."""
    broker = ctx.tools.broker(ctx.broker.shards, "stopping")
    ctx.later(broker.stop)
    first = Client(broker.url)
    clients = [first] + [Client(broker.url, beside=first) for _ in range(5)]
    receivers = [client.receiver(f"q{index}", credit=10) for index, client in enumerate(clients)]
    first.sender("q1").send(messages(2))
    receivers[1].take(2)
    broker.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 15
    while not all(client.connection.closed_with for client in clients):
        check(time.monotonic() < deadline, "not all connections were closed")
        try:
            first.container.timeout = 0.1
            first.container.process()
        except (ConnectionClosed, ConnectionException):
            pass  # The library says so once for each connection.
    equal(
        [client.connection.closed_with for client in clients],
        ["amqp:connection:forced"] * 6,
        "errors of the closes",
    )
    equal(broker.process.wait(10), 0, "exit code")
