"""rhea (Node.js); the cases themselves are in rhea/interop.js."""

from .harness import case

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
    "kill",
    "many-links",
    "homed-apart",
    "request-response",
    "anonymous-relay",
    "presettled",
    "outcomes",
    "time-to-live",
    "topics",
    "topic-patterns",
    "durable",
    "unsubscribe",
    "shared",
    "subscription-filters",
    "transactions",
    "transactional-settlement",
    "transaction-lost",
)


def command(ctx, name, address=None):
    broker = ctx.broker
    return [*ctx.tools.node(), name, broker.host, str(broker.port), address or ctx.address()]


def declare(name):
    seconds = 240 if name == "volume" else 60

    @case(f"rhea/{name}", seconds=seconds)
    def run(ctx):
        ctx.run(command(ctx, name), seconds - 5)


for each in NAMES:
    declare(each)
