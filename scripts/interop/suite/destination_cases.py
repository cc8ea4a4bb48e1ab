"""The properties of destinations, as clients see them: limits, dead letters, delays, last values, and who is given what."""

import time

from proton import symbol
from proton.reactor import Copy

from .client import Client, message, messages, seqs, settle
from .harness import case, check, equal, in_order
from .steps import connect, expect_rest


def annotated(received, name):
    return (received.annotations or {}).get(symbol(name))


@case("destinations/reject", own_only=True)
def reject(ctx):
    """A full queue refuses what is new, and takes again when there is room; what it has it keeps."""
    address = "reject." + ctx.address()
    client = connect(ctx)
    sender = client.sender(address)
    for turn in range(3):
        sender.send([message(10 * turn + seq) for seq in range(8)])
        equal(len(sender.box.accepted), 5 * (turn + 1), "messages accepted")
        equal(
            [condition for _, condition in sender.box.rejected],
            ["amqp:resource-limit-exceeded"] * 3 * (turn + 1),
            "why messages are rejected",
        )
        expect_rest(client, address, range(10 * turn, 10 * turn + 5), f"in turn {turn}")
    # What is held counts, too.
    sender.send(messages(5))
    holder = client.receiver(address, credit=2)
    held = holder.take(2)
    sender.send([message(99)])
    equal(len(sender.box.rejected), 10, "rejected while two of five are held")
    settle(held[0][1])
    client.pause(0.05)
    sender.send([message(100)])
    equal(len(sender.box.rejected), 10, "rejected though there is room")


@case("destinations/drop-oldest", own_only=True)
def drop_oldest(ctx):
    """A ring keeps the newest; what a consumer holds is not dropped under it, and what is dropped is a dead letter."""
    address, dead = "ring." + ctx.address(), "dead.ring"
    client = connect(ctx)
    sender = client.sender(address)
    sender.send(messages(3))
    holder = client.receiver(address, credit=1)
    held = holder.take(1)
    sender.send([message(seq) for seq in range(3, 10)])
    equal(len(sender.box.accepted), 10, "messages accepted")
    settle(held[0][1], "released")
    holder.close()
    found = seqs(connect(ctx, beside=client).receiver(address, options=Copy()).drain(100))
    check(found[-4:] == [6, 7, 8, 9] and len(found) <= 6, f"what the ring has: {found}")
    letters = client.receiver(dead).drain(100)
    check(seqs(letters)[:3] == [1, 2, 3], f"dropped: {seqs(letters)}")
    equal({annotated(letter, "x-opt-death-reason") for letter, _ in letters}, {"overflow"}, "reason")


@case("destinations/block", own_only=True)
def block(ctx):
    """A full queue makes its producers wait, and each goes on when there is room: nothing is refused, lost or reordered."""
    address, count, producers = "block." + ctx.address(), 1000, 2
    home = connect(ctx)
    senders = [connect(ctx, beside=home).sender(address) for _ in range(producers)]
    for index, sender in enumerate(senders):
        sender.start(messages(count, producer=f"p{index}", size=100))

    def step():
        for sender in senders:
            sender.step()

    home.wait(lambda: step() or all(sender.link.credit == 0 for sender in senders), "producers without credit")
    sent = [sender.sent for sender in senders]
    check(all(number < count for number in sent), f"producers are not stopped: {sent}")
    elsewhere = home.sender(ctx.address("elsewhere"))
    elsewhere.send(messages(5))
    equal(len(elsewhere.box.accepted), 5, "accepted elsewhere")
    next_of = {f"p{index}": 0 for index in range(producers)}
    wrong = []

    def each(received, delivery):
        producer, seq = received.properties["producer"], received.properties["seq"]
        if seq != next_of[producer]:
            wrong.append(f"{producer}: {seq} instead of {next_of[producer]}")
        next_of[producer] = seq + 1
        settle(delivery)

    # What is held is still in the queue, so each is settled as it comes.
    home.receiver(address, each=each).link.flow(producers * count)
    home.wait(lambda: step() or wrong or all(sender.done() for sender in senders), "outcomes of all", 40)
    home.wait(lambda: wrong or sum(next_of.values()) == producers * count, "all messages")
    check(not wrong, wrong[:3])
    for sender in senders:
        equal(len(sender.box.accepted), count, "messages accepted")


@case("destinations/dead-letters", own_only=True)
def dead_letters(ctx):
    """Rejected, expired, and delivered too often: each with reason, queue and count; a dead letter can be read again."""
    address, dead = "mortal." + ctx.address(), "dead.mortal"
    client = connect(ctx)
    sender = client.sender(address)
    letters = client.receiver(dead, credit=10)
    sender.send([message(0, subject="mine", annotations={symbol("x-opt-a"): 7})])
    receiver = client.receiver(address, credit=10)
    settle(receiver.take(1)[0][1], "rejected")
    letter, delivery = letters.take(1)[0]
    equal(
        (letter.properties["seq"], letter.subject, annotated(letter, "x-opt-a")), (0, "mine", 7), "the letter"
    )
    equal(annotated(letter, "x-opt-death-reason"), "rejected", "reason")
    equal(annotated(letter, "x-opt-death-queue"), address, "queue")
    equal(annotated(letter, "x-opt-death-count"), 1, "count")
    settle(delivery)
    sender.send([message(1)])
    for count in range(3):
        received, delivery = receiver.take(1)[0]
        equal((received.properties["seq"], received.delivery_count), (1, count), "delivery-count")
        settle(delivery, "failed")
    letter, delivery = letters.take(1)[0]
    equal((letter.properties["seq"], annotated(letter, "x-opt-death-reason")), (1, "deliveries"), "reason")
    settle(delivery)
    # Released ones were not tried.
    sender.send([message(2)])
    for _ in range(5):
        received, delivery = receiver.take(1)[0]
        equal((received.properties["seq"], received.delivery_count), (2, 0), "delivery-count when released")
        settle(delivery, "released")
    settle(receiver.take(1)[0][1])
    receiver.close()
    sender.send([message(3, ttl=0.2), message(4)])
    letter, delivery = letters.take(1)[0]
    equal((letter.properties["seq"], annotated(letter, "x-opt-death-reason")), (3, "expired"), "reason")
    check(not letter.ttl, f"the dead letter would expire: ttl {letter.ttl}")
    settle(delivery)
    expect_rest(client, address, [4])
    equal(letters.drain(10), [], "more dead letters")


@case("destinations/delayed", own_only=True)
def delayed(ctx):
    """x-opt-delivery-delay and x-opt-delivery-time: not before it is due, soon after, in the order of the times."""
    address = ctx.address()
    client = connect(ctx)
    receiver = client.receiver(address, credit=10)
    sender = client.sender(address)
    began, wall = time.monotonic(), int(time.time() * 1000)
    sender.send(
        [
            message(0, annotations={symbol("x-opt-delivery-delay"): 900}),
            message(1, annotations={symbol("x-opt-delivery-delay"): 300}),
            message(2),
            message(3, annotations={symbol("x-opt-delivery-time"): wall + 600}),
            message(4, annotations={symbol("x-opt-delivery-time"): wall - 1000}),
        ]
    )
    equal(len(sender.box.accepted), 5, "accepted at once")
    check(time.monotonic() - began < 0.3, "the producer waited for the delay")
    arrived = []
    for _ in range(5):
        received, delivery = receiver.take(1)[0]
        arrived.append((received.properties["seq"], time.monotonic() - began))
        settle(delivery)
    equal([seq for seq, _ in arrived], [2, 4, 1, 3, 0], "order of arrival")
    for (seq, at), due in zip(arrived[2:], (0.3, 0.6, 0.9)):
        check(due - 0.02 <= at < due + 1, f"{seq} came after {at:.2f} s instead of {due} s")
    equal(receiver.drain(10), [], "twice")


@case("destinations/redelivery-delay", own_only=True)
def redelivery_delay(ctx):
    """What failed comes back after the delay, which grows; others pass meanwhile."""
    address = "patient." + ctx.address()
    client = connect(ctx)
    receiver = client.receiver(address, credit=10)
    sender = client.sender(address)
    sender.send([message(0)])
    _, delivery = receiver.take(1)[0]
    for count, least in ((1, 0.2), (2, 0.4), (3, 0.5)):
        began = time.monotonic()
        settle(delivery, "failed")
        sender.send([message(count)])
        received, other = receiver.take(1)[0]
        equal(received.properties["seq"], count, "another one meanwhile")
        settle(other)
        received, delivery = receiver.take(1)[0]
        took = time.monotonic() - began
        equal((received.properties["seq"], received.delivery_count), (0, count), "back")
        check(least - 0.02 <= took < least + 1, f"try {count} came back after {took:.2f} s instead of {least} s")
    settle(delivery)
    expect_rest(client, address, [])


@case("destinations/ack-deadline", own_only=True)
def ack_deadline(ctx):
    """What is not settled in time goes to another consumer; the first one's late word settles nothing."""
    address = "hasty." + ctx.address()
    client = connect(ctx)
    client.sender(address).send(messages(2))
    slow = client.receiver(address, credit=1)
    late = slow.take(1)[0][1]
    other = connect(ctx, beside=client).receiver(address, credit=10)
    first = other.take(1)
    settle(first[0][1])
    equal(seqs(first), [1], "what the other one gets at once")
    received, delivery = other.take(1, 5)[0]
    equal(received.properties["seq"], 0, "what the slow one did not settle")
    settle(late, "accepted")
    client.pause(0.05)
    settle(delivery, "released")
    again = other.take(1, 5)
    equal(seqs(again), [0], "after the late accept")
    settle(again[0][1])
    expect_rest(client, address, [])


@case("destinations/last-value", own_only=True)
def last_value(ctx):
    """Of each key the queue keeps the last message, at the tail; those without a key it keeps all."""
    address = "last." + ctx.address()
    client = connect(ctx)
    sender = client.sender(address)
    sender.send([message(seq, properties={"key": f"k{seq % 3}"}) for seq in range(30)])
    sender.send([message(30), message(31)])
    sender.send([message(32, properties={"key": "k1"})])
    equal(len(sender.box.accepted), 33, "messages accepted")
    holder = client.receiver(address, credit=1)
    held = holder.take(1)
    equal(seqs(held), [27], "the oldest that is left")
    # A newer one came while the older one was held: the older one does not come back.
    sender.send([message(33, properties={"key": "k0"})])
    settle(held[0][1], "released")
    holder.close()
    expect_rest(client, address, [29, 30, 31, 32, 33], "the last of each key")


@case("destinations/non-destructive", own_only=True)
def non_destructive(ctx):
    """Each consumer of such a queue sees every message once, whatever it says of them."""
    address = "lasting." + ctx.address()
    client = connect(ctx)
    sender = client.sender(address)
    sender.send(messages(20))
    for _ in range(3):
        receiver = connect(ctx, beside=client).receiver(address, credit=100)
        taken = receiver.take(20)
        in_order(seqs(taken), list(range(20)), "what each consumer sees")
        for index, (_, delivery) in enumerate(taken):
            settle(delivery, ("accepted", "released", "rejected", "failed")[index % 4])
        equal(receiver.drain(100), [], "seen twice")
    sender.send([message(20)])


@case("destinations/auto-delete", own_only=True)
def auto_delete(ctx):
    """A queue that goes with its last consumer, and one that goes when nothing happens to it."""
    client = connect(ctx)
    address = "fleeting." + ctx.address()
    client.sender(address).send(messages(3))
    first, second = client.receiver(address, credit=1), client.receiver(address, credit=1)
    first.take(1)
    first.close()
    second.take(1)
    client.sender(address).send([message(3)])
    equal(len(seqs(client.receiver(address, options=Copy()).drain(10))) > 0, True, "still there")
    second.close()
    client.close()
    client = connect(ctx)
    expect_rest(client, address, [], "after the last consumer")
    idle = "idle." + ctx.address()
    sender = client.sender(idle)
    sender.send(messages(3))
    sender.close()
    client.close()
    client = connect(ctx)
    client.pause(1.0)
    expect_rest(client, idle, [], "after nothing had happened for a while")


@case("destinations/sender-name", own_only=True)
def sender_name(ctx):
    """Who sent a message stands in it, whatever the message says itself."""
    address = "stamped." + ctx.address()
    options = {"user": "guest", "password": "guest", "allowed_mechs": "PLAIN", "allow_insecure_mechs": True}
    client = Client(ctx.url, **options)
    ctx.later(client.close)
    client.sender(address).send([message(0), message(1, annotations={symbol("x-opt-sender"): "mallory"})])
    for received, delivery in client.receiver(address, credit=2).take(2):
        equal(annotated(received, "x-opt-sender"), "guest", f"sender of {received.properties['seq']}")
        settle(delivery)


@case("destinations/dispatch", own_only=True)
def dispatch(ctx):
    """Round robin gives a consumer that settles nothing its share; least-outstanding gives it next to nothing."""
    for prefix, share_of_the_holder in (("fair.", range(10, 11)), ("least.", range(0, 4))):
        address = prefix + ctx.address()
        client = connect(ctx)
        holder = client.receiver(address, credit=100)
        quick = client.receiver(address, credit=100, each=lambda received, delivery: settle(delivery))
        sender = client.sender(address)
        for seq in range(20):
            sender.send([message(seq)])
            client.pause(0.01)
        share = len(holder.box.items)
        check(share in share_of_the_holder, f"{address}: the one that settles nothing holds {share} of 20")
        for _, delivery in holder.box.items:
            settle(delivery)
        quick.close()
        holder.close()
        expect_rest(client, address, [])
        client.close()


@case("destinations/consumers-max", own_only=True)
def consumers_max(ctx):
    """Two of three consumers are active; when one goes the third takes its place."""
    address = "pair." + ctx.address()
    client = connect(ctx)
    inboxes = [connect(ctx, beside=client).receiver(address, credit=100) for _ in range(3)]
    sender = client.sender(address)
    sender.send(messages(20))
    client.wait(lambda: len(inboxes[0].box.items) + len(inboxes[1].box.items) == 20, "all at the first two")
    equal(len(inboxes[2].box.items), 0, "messages for the third")
    for inbox in inboxes[:2]:
        check(len(inbox.box.items) >= 8, f"share of {len(inbox.box.items)} of 20")
    held = seqs(inboxes[0].box.items)
    inboxes[0].close()
    # What the first one held goes to the two that are active now, in order.
    client.wait(
        lambda: len(inboxes[1].box.items) + len(inboxes[2].box.items) == 20, "all at the two that are left"
    )
    taken_over = seqs(inboxes[2].box.items)
    check(taken_over and taken_over == sorted(taken_over), f"taken over: {taken_over}")
    equal(sorted(taken_over + seqs(inboxes[1].box.items)), list(range(20)), "all, each once")
    check(set(taken_over) <= set(held), "the third got what the second held")


@case("destinations/fail-over", own_only=True)
def fail_over(ctx):
    """The active consumer of an exclusive queue is killed: the first that stood by goes on with what it held, in order."""
    address = "exclusive." + ctx.address("f")
    home = connect(ctx)
    home.sender(address).send(messages(30))
    clients = [Client(ctx.url, beside=home) for _ in range(4)]
    inboxes = []
    for client in clients:
        inboxes.append(client.receiver(address, credit=10))
    done = 0
    for turn, (client, inbox) in enumerate(zip(clients, inboxes)):
        taken = inbox.take(10)
        in_order(seqs(taken), list(range(done, done + 10)), f"of consumer {turn}")
        for _, delivery in taken[:4]:
            settle(delivery)
        done += 4
        home.pause(0.1)
        equal([len(other.box.items) for other in inboxes[turn + 1 :]], [0] * (3 - turn), "of those that stand by")
        client.abandon()
    expect_rest(home, address, range(done, 30))


@case("destinations/inherited-prefetch", own_only=True)
def inherited_prefetch(ctx):
    """prefetch = 0: what the wildcards above say, else 5 for a queue and 64 for a topic's subscription."""
    client = connect(ctx)
    for prefix, limit in (("inherits.queue.", 5), ("topics.inherits.", 64), ("clamped.inherits.", 5)):
        address = prefix + ctx.address()
        receiver = client.receiver(address, credit=200)
        client.sender(address).send(messages(150))
        taken = receiver.take(limit)
        client.pause(0.2)
        equal(len(receiver.box.items), 0, f"{address}: messages beyond {limit}")
        for _, delivery in taken:
            settle(delivery)
        in_order(seqs(receiver.take(limit)), list(range(limit, 2 * limit)), "after settlement")
