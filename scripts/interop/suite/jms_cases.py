"""Qpid JMS (Java); the cases themselves are in jms/Interop.java."""

import subprocess

from .client import messages
from .harness import Failure, case
from .steps import connect, expect_rest

NAMES = (
    "volume",
    "frames",
    "browse",
    "selector",
    "competing",
    "one-at-a-time",
    "drain",
    "link-close",
    "connection-close",
    "recover",
    "many-links",
    "homed-apart",
    "request-response",
    "anonymous-relay",
    "presettled",
    "outcomes",
    "time-to-live",
    "types",
    "async-send",
    "topics",
    "durable",
    "durable-terms",
    "shared",
    "shared-durable",
    "topic-filters",
    "temporary-topic",
    "transacted-sends",
    "transacted-receives",
    "transacted-pipeline",
    "transaction-ends",
    "transaction-refused",
    "groups",
    "priorities",
    "expiration",
    "delayed",
    "fail-over",
    "prefetch",
    "dead-letters",
    "overflow",
    "properties",
    "bodies",
)


def command(ctx, name, *more, address=None):
    broker = ctx.broker
    return [*ctx.tools.java(), name, broker.host, str(broker.port), address or ctx.address(), *more]


def declare(name):
    seconds = 240 if name == "volume" else 60

    @case(f"jms/{name}", seconds=seconds)
    def run(ctx):
        ctx.run(command(ctx, name), seconds - 5)


for each in NAMES:
    declare(each)


@case("jms/kill")
def kill(ctx):
    """A JMS client killed with unsettled deliveries: they come back in order, once."""
    client = connect(ctx)
    client.sender(ctx.address()).send(messages(60))
    child = subprocess.Popen(
        command(ctx, "hold"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    ctx.later(child.kill)
    said = child.stdout.readline()
    if said != "holding\n":
        raise Failure(f"the client to be killed said: {said}{child.stdout.read()[-500:]}")
    child.kill()
    child.wait()
    client.pause(0.3)
    expect_rest(client, ctx.address(), range(60), "after the client was killed")
