"""Connections, links and settlements at random, and an account of every message."""

import os
import random

from proton.reactor import Selector

from .client import Client, body_is_right, message, settle
from .harness import Failure, case, check, equal
from .steps import connect


@case("proton/chaos", seconds=400)
def chaos(ctx):
    """Connections, links and settlements at random over many queues; in the end each message is where it must be.

    INTEROP_SEED chooses where its courses start.
    """
    first = int(os.environ.get("INTEROP_SEED", 1))
    for seed in range(first, first + (20 if ctx.full else 2)):
        try:
            Chaos(ctx, seed).run(1000)
        except Failure as failure:
            raise Failure(f"seed {seed}: {failure}")


class Chaos:
    """What was accepted by the broker and not certainly settled by a consumer is in its queue in the end, once.

    A settlement is certain when something was answered on the same connection after it; those of a killed connection are
    in doubt, and then both ends are right.
    """

    def __init__(self, ctx, seed):
        self.ctx = ctx
        self.chance = random.Random(seed)
        self.addresses = [ctx.address(f"{seed}.q{index}") for index in range(10)]
        self.home = connect(ctx)
        self.workers = []
        self.next = 0
        self.stored = {}
        self.finished = set()
        self.doubtful = set()
        self.problems = []

    def run(self, steps):
        for step in range(steps):
            if len(self.workers) < 3 or (len(self.workers) < 12 and self.chance.random() < 0.1):
                self.workers.append(ChaosWorker(self))
            worker = self.chance.choice(self.workers)
            action = self.chance.choices(
                (worker.send, worker.attach, worker.credit, worker.settle, worker.detach, worker.end),
                (30, 15, 25, 25, 6, 2),
            )[0]
            action()
            if step % 10 == 0:
                self.home.pause(0.005)
            check(not self.problems, f"step {step}: {self.problems[:3]}")
        for worker in list(self.workers):
            worker.finish()
        self.home.pause(0.3)
        self.judge()

    def judge(self):
        left = set()
        for address in self.addresses:
            receiver = self.home.receiver(address)
            while True:
                taken = receiver.drain(500)
                if not taken:
                    break
                for received, delivery in taken:
                    seq = received.properties["seq"]
                    check(seq not in left, f"{seq} is in the queues twice")
                    check(
                        self.stored.get(seq, address) == address,
                        f"{seq} is in {address}, it was sent to {self.stored[seq]}",
                    )
                    left.add(seq)
                    settle(delivery)
            receiver.close()
        lost = set(self.stored) - self.finished - self.doubtful - left
        check(not lost, f"lost: {sorted(lost)[:10]} ({len(lost)} of {len(self.stored)})")
        back = left & self.finished
        check(not back, f"came back though settled: {sorted(back)[:10]} ({len(back)})")


class ChaosWorker:
    """One connection of the chaos."""

    def __init__(self, chaos):
        self.chaos = chaos
        self.chance = chaos.chance
        self.client = Client(chaos.ctx.url, beside=chaos.home)
        self.senders = {}
        self.receivers = []
        self.settled = []

    def send(self):
        address = self.chance.choice(self.chaos.addresses)
        if address not in self.senders:
            self.senders[address] = self.client.sender(address)
        sender = self.senders[address]
        seqs_sent = list(range(self.chaos.next, self.chaos.next + self.chance.choice((1, 5, 40))))
        self.chaos.next = seqs_sent[-1] + 1
        before = len(sender.box.accepted)
        sender.send([message(seq, self.chance.choice((0, 10, 1000, 90_000))) for seq in seqs_sent])
        equal(len(sender.box.accepted) - before, len(seqs_sent), "messages accepted")
        for seq in seqs_sent:
            self.chaos.stored[seq] = address
        self.certain()

    def attach(self):
        if len(self.receivers) < 8:
            address = self.chance.choice(self.chaos.addresses)
            options = self.chance.choice((None, None, Selector("size > 5"), Selector("seq < 100000000")))
            held = []
            receiver = self.client.receiver(
                address, options=options, each=lambda *taken: self.take(held, *taken)
            )
            receiver.link.flow(self.chance.choice((0, 1, 30)))
            self.receivers.append((receiver, held))

    def take(self, held, received, delivery):
        seq = received.properties["seq"]
        if seq in self.chaos.finished:
            self.chaos.problems.append(f"{seq} came though it was settled for good")
        if not body_is_right(received):
            self.chaos.problems.append(f"body of {seq} is not what was sent")
        held.append((seq, delivery))

    def credit(self):
        if self.receivers:
            self.chance.choice(self.receivers)[0].link.flow(self.chance.choice((1, 3, 50)))

    def settle(self):
        held = self.chance.choice(self.receivers)[1] if self.receivers else []
        self.chance.shuffle(held)
        for _ in range(min(len(held), self.chance.choice((1, 10, 100)))):
            seq, delivery = held.pop()
            outcome = self.chance.choice(
                ("accepted", "accepted", "rejected", "released", "failed", "undeliverable")
            )
            if outcome in ("accepted", "rejected"):
                self.settled.append(seq)
            settle(delivery, outcome)

    def detach(self):
        if self.receivers:
            receiver, _held = self.receivers.pop(self.chance.randrange(len(self.receivers)))
            receiver.close()
            self.certain()

    def certain(self):
        """Something was answered: what was settled before has been taken in."""
        self.chaos.finished.update(self.settled)
        self.settled = []

    def end(self):
        self.chaos.workers.remove(self)
        if self.chance.random() < 0.5:
            self.client.close()
            self.certain()
        else:
            self.chaos.doubtful.update(self.settled)
            self.client.abandon()

    def finish(self):
        self.chaos.workers.remove(self)
        self.client.close()
        self.certain()
