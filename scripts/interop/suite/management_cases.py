"""The node `$management` by a plain qpid-proton client, and the commands of the program by their --json."""

import json
import time

from proton import Message

from .auth_cases import corelane
from .client import Client, Source, message, messages, seqs, settle
from .harness import case, check, equal, in_order
from .steps import connect, expect_rest
from .topic_cases import source


class Manager:
    """Requests over one link, answers over a dynamic node."""

    def __init__(self, client):
        self.client = client
        self.number = 0

        def dynamic(link):
            link.source.dynamic = True

        self.answers = client.receiver(None, credit=100, options=Source(dynamic))
        self.requests = client.sender("$management")

    def ask(self, operation, kind=None, name=None, body=None, **properties):
        """The status and the body of the answer."""
        self.number += 1
        named = {"operation": operation, "type": kind, "name": name, **properties}
        self.requests.send(
            [
                Message(
                    id=f"r{self.number}",
                    reply_to=self.answers.address,
                    properties={key: value for key, value in named.items() if value is not None},
                    body=body or {},
                )
            ]
        )
        received, delivery = self.answers.take(1)[0]
        settle(delivery)
        equal(received.correlation_id, f"r{self.number}", "correlation-id of an answer")
        self.description = received.properties["statusDescription"]
        self.properties = received.properties
        return received.properties["statusCode"], received.body

    def get(self, *arguments, expected=200, **more):
        status, body = self.ask(*arguments, **more)
        equal(status, expected, f"status of {arguments}: {self.description}")
        return body

    def query(self, kind, names, pattern=None, page=100):
        """Rows as dictionaries, over all pages."""
        rows, start = [], None
        while True:
            body = {"attributeNames": names, "count": page}
            if pattern:
                body["pattern"] = pattern
            if start:
                body["from"] = start
            answer = self.get("QUERY", "org.amqp.management", "self", body, entityType=kind)
            equal(list(answer["attributeNames"]), names, "names of the columns")
            rows += [dict(zip(names, row)) for row in answer["results"]]
            start = self.properties.get("next")
            if not start:
                return rows


@case("management/queues", own_only=True)
def queues(ctx):
    """CREATE, READ, UPDATE, DELETE and QUERY of queues on all shards; what is wrong is refused with what is allowed."""
    client = connect(ctx)
    manager = Manager(client)
    names = [ctx.address(f"q{index:02}") for index in range(12)]
    for name in names:
        manager.get("CREATE", "queue", name, {"messages-max": 3, "overflow": "reject"}, expected=201)
    equal(manager.ask("CREATE", "queue", names[0])[0], 409, "status of a second CREATE")
    sender = client.sender(names[0])
    sender.send(messages(5))
    equal(len(sender.box.rejected), 2, "rejected as the property says")
    read = manager.get("READ", "queue", names[0])
    equal(
        (read["messages"], read["available"], read["messages-max"], read["overflow"]), (3, 3, 3, "reject"), "READ"
    )
    manager.get("UPDATE", "queue", names[0], {"messages-max": 5})
    sender.send([message(7), message(8), message(9)])
    equal(len(sender.box.rejected), 3, "rejected after the UPDATE")
    for wrong in ({"messages-max": "many"}, {"no-such-property": 1}, {"prefetch": 100_000}):
        status, _ = manager.ask("UPDATE", "queue", names[0], wrong)
        equal(status, 400, f"status of an UPDATE to {wrong}: {manager.description}")
        check(manager.description, "a refusal says nothing")
    rows = manager.query("queue", ["name", "messages", "shard"], pattern=ctx.address("q"), page=5)
    equal(sorted(row["name"] for row in rows), names, "names of all queues, by pages")
    equal(sum(row["messages"] for row in rows), 5, "messages in all")
    equal(
        {row["shard"] for row in rows} <= set(range(ctx.broker.shards)) and len({row["shard"] for row in rows}) > 1,
        ctx.broker.shards > 1,
        "shards of the queues",
    )
    inbox = client.receiver(names[0], credit=1)
    inbox.take(1)
    manager.get("DELETE", "queue", names[0], expected=204)
    client.wait(lambda: inbox.box.error, "end of the link to a deleted queue")
    equal(inbox.box.error, "amqp:resource-deleted", "why the link has ended")
    for operation in ("READ", "DELETE", "PURGE"):
        equal(manager.ask(operation, "queue", names[0])[0], 404, f"status of {operation} when it is gone")
    equal(manager.ask("FLY", "queue", names[1])[0], 501, "status of an unknown operation")
    equal(manager.ask("READ", "elephant", "e")[0], 404, "status of an unknown type")
    types = manager.get("GET-TYPES", "org.amqp.management", "self")
    check("org.corelane.queue" in types, f"types: {list(types)}")


@case("management/messages", own_only=True)
def sweeps(ctx):
    """PEEK by pages, with who holds what; MOVE, COPY and DELETE-MESSAGES by selector and by place; PURGE."""
    client = connect(ctx)
    manager = Manager(client)
    queue, other = ctx.address("q"), ctx.address("other")
    client.sender(queue).send(messages(30))
    holder = client.receiver(queue, credit=3)
    holder.take(3)
    found, start = [], None
    while True:
        body = {"count": 7, **({"from": start} if start else {})}
        answer = manager.get("PEEK", "queue", queue, body)
        found += list(answer["messages"])
        start = answer.get("next")
        if not start:
            break
    equal([each["application-properties"]["seq"] for each in found], list(range(30)), "messages peeked at")
    equal([each["state"] for each in found], ["acquired"] * 3 + ["available"] * 27, "states")
    check(all(each["holder"] for each in found[:3]) and not found[3]["holder"], "holders")
    check(all(each["age-us"] >= 0 for each in found), "ages")
    manager.get("MOVE", "queue", queue, {"to": other, "selector": "seq >= 20"})
    manager.get("COPY", "queue", queue, {"to": other, "ids": [found[5]["place"]]})
    manager.get("DELETE-MESSAGES", "queue", queue, {"selector": "seq BETWEEN 10 AND 14"})
    expect_rest(connect(ctx, beside=client), other, [*range(20, 30), 5], "moved and copied")
    pending = connect(ctx, beside=client).receiver(queue)
    taken = pending.drain(100)
    in_order(seqs(taken), [*range(3, 10), *range(15, 20)], "what is left")
    for _, delivery in taken:
        settle(delivery, "released")
    pending.close()
    manager.get("PURGE", "queue", queue)
    equal(manager.get("READ", "queue", queue)["messages"], 3, "messages after PURGE: those that are held")
    holder.close()
    expect_rest(client, queue, [0, 1, 2], "after PURGE")
    equal(manager.ask("MOVE", "queue", queue, {"to": other, "selector": "seq = = 1"})[0], 400, "a wrong selector")


@case("management/statistics", own_only=True)
def statistics(ctx):
    """Counts and times of a queue, and who is connected and consumes."""
    container = ctx.address("client")
    client = connect(ctx, container_id=container)
    manager = Manager(client)
    queue = ctx.address()
    client.sender(queue).send(messages(100))
    client.pause(0.2)
    inbox = client.receiver(queue, credit=100)
    taken = inbox.take(100)
    for index, (_, delivery) in enumerate(taken[:90]):
        settle(delivery, "rejected" if index < 10 else "accepted")
    client.pause(0.1)
    read = manager.get("READ", "queue", queue)
    equal(
        [read[name] for name in ("messages", "acquired", "messages-in", "deliveries", "accepted", "rejected")],
        [10, 10, 100, 100, 80, 10],
        "counts",
    )
    waited = read["time-in-queue-us"]
    equal(waited["count"], 100, "messages whose time was taken")
    check(100_000 < waited["p50"] < 20_000_000, f"time in queue: {waited}")
    check(read["settle-latency-us"]["count"] == 90, f"settle latency: {read['settle-latency-us']}")
    check(read["oldest-age-us"] > 200_000, f"age of the oldest: {read['oldest-age-us']}")
    connections = manager.query("connection", ["name", "container-id", "user", "consumers", "unsettled"])
    mine = [row for row in connections if row["container-id"] == container]
    equal(len(mine), 1, "connections of this client")
    equal((mine[0]["consumers"], mine[0]["unsettled"]), (2, 10), "consumers and unsettled deliveries")
    equal(manager.get("READ", "queue", queue)["consumers"], 1, "consumers of the queue")


@case("management/many-clients", own_only=True)
def many_clients(ctx):
    """Ten clients ask at once, and one of them goes in the middle of it: everyone has its own answers."""
    home = connect(ctx)
    managers = [Manager(connect(ctx, beside=home)) for _ in range(10)]
    for turn in range(5):
        for index, manager in enumerate(managers):
            name = ctx.address(f"{index}.{turn}")
            manager.get("CREATE", "queue", name, expected=201)
            equal(manager.get("READ", "queue", name)["name"], name, "the queue that was read")
    gone = Client(ctx.url, beside=home)
    manager = Manager(gone)
    manager.requests.start(
        [
            Message(id=f"{index}", reply_to=manager.answers.address, properties={"operation": "QUERY"}, body={})
            for index in range(5)
        ]
    )
    home.wait(lambda: manager.requests.step() or manager.requests.done(), "outcomes of requests")
    gone.abandon()
    equal(len(managers[0].query("queue", ["name"], pattern=ctx.address(""))), 50, "queues")
    refused = connect(ctx, beside=home).sender("$management")
    refused.start([Message(properties={"operation": "QUERY"}, body={})])
    home.wait(lambda: refused.step() or refused.done(), "outcome of a request without reply-to")
    equal(len(refused.box.rejected), 1, "rejected without reply-to")


def told(ctx, *arguments, codes=(0,)):
    return json.loads(corelane(ctx, *arguments, "--json", "--url", ctx.url, codes=codes))


@case("cli/management", own_only=True)
def commands(ctx):
    """corelane queue list, show, create, set, peek, move, purge and delete, connections and explain, read by a program."""
    queue, other = ctx.address("q"), ctx.address("other")
    url = ("--url", ctx.url)
    corelane(ctx, "queue", "create", queue, "--set", "exclusive=true", "--set", "messages-max=100", *url)
    corelane(ctx, "queue", "create", queue, *url, codes=(1,))
    corelane(ctx, "send", queue, "hello", "-n", "10", "--property", "colour=red", *url)
    listed = {row["name"]: row for row in told(ctx, "queue", "list", ctx.address())}
    equal(listed[queue]["messages"], 10, "messages, listed")
    shown = told(ctx, "queue", "show", queue)
    equal((shown["messages"], shown["exclusive"], shown["messages-max"]), (10, True, 100), "shown")
    corelane(ctx, "queue", "set", queue, "messages-max=10", *url)
    corelane(ctx, "queue", "set", queue, "messages-max=some", *url, codes=(1,))
    corelane(ctx, "send", queue, "more", *url, codes=(3,))
    client = connect(ctx, container_id=ctx.address("holder"))
    active = client.receiver(queue, credit=2)
    active.take(2)
    standby = connect(ctx, beside=client).receiver(queue, credit=5)
    peeked = told(ctx, "queue", "peek", queue, "-n", "4")["messages"]
    equal([each["state"] for each in peeked], ["acquired", "acquired", "available", "available"], "peeked at")
    explained = told(ctx, "explain", queue)
    equal((explained["messages"], explained["acquired"], explained["consumer-count"]), (10, 2, 2), "explained")
    lists = sorted(each["list"] for each in explained["consumers"])
    check("not-interested" in " ".join(lists), f"lists of the consumers: {lists}")
    reasons = [each.get("reason") for each in explained["consumers"]]
    check("standby" in reasons and "no-credit" in reasons, f"why they wait: {reasons}")
    words = corelane(ctx, "explain", queue, *url)
    check("standby" in words.lower() or "stands by" in words.lower(), f"in words: {words}")
    rows = told(ctx, "connections")
    check(ctx.address("holder") in [row["container-id"] for row in rows], "the connection is not listed")
    standby.close()
    active.close()
    corelane(ctx, "queue", "move", queue, other, "--selector", "colour = 'red'", *url)
    equal(corelane(ctx, "receive", other, "-n", "10", "--timeout", "5", *url).split(), ["hello"] * 10, "moved")
    corelane(ctx, "send", queue, "x", "-n", "3", *url)
    corelane(ctx, "queue", "purge", queue, *url)
    equal(told(ctx, "queue", "show", queue)["messages"], 0, "after purge")
    corelane(ctx, "queue", "delete", queue, *url)
    corelane(ctx, "queue", "show", queue, *url, codes=(1,))
    name = next(row["name"] for row in rows if row["container-id"] == ctx.address("holder"))
    corelane(ctx, "connections", "--close", name, *url)
    deadline = time.monotonic() + 5
    while client.connection.closed_with is None:
        check(time.monotonic() < deadline, "the connection was not closed")
        try:
            client.container.timeout = 0.1
            client.container.process()
        except Exception as ended:  # The library says so in its own way.
            check("forced" in str(ended) or client.connection.closed_with, f"closed with {ended}")
    equal(client.connection.closed_with, "amqp:connection:forced", "why the connection was closed")


@case("management/subscriptions", own_only=True)
def subscriptions(ctx):
    """Topics' subscriptions are managed like queues: listed, read, peeked into, deleted."""
    client = connect(ctx, container_id=ctx.address("c"))
    topic = f"topics.{ctx.address()}"
    inbox = client.receiver(topic, options=source("topic", durable=True), name="sub", credit=0)
    client.sender(topic).send(messages(5))
    manager = Manager(client)
    rows = manager.query("queue", ["name", "messages", "kind"])
    mine = [row for row in rows if row["messages"] == 5 and "sub" in row["name"] and ctx.address("c") in row["name"]]
    equal(len(mine), 1, f"subscriptions of this client among {len(rows)}")
    equal(len(manager.get("PEEK", "queue", mine[0]["name"], {})["messages"]), 5, "messages of the subscription")
    manager.get("DELETE", "queue", mine[0]["name"], expected=204)
    client.wait(lambda: inbox.box.error, "end of the subscriber's link")
    client.sender(topic).send(messages(3))
