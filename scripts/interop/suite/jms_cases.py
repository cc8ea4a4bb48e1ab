"""Qpid JMS (Java); the cases themselves are in jms/Interop.java."""

from .harness import case

NAMES = ("volume", "frames", "browse", "selector", "competing", "one-at-a-time", "drain", "link-close", "connection-close",
         "recover", "many-links", "homed-apart", "request-response", "anonymous-relay", "presettled", "outcomes",
         "time-to-live", "types", "async-send")


def command(ctx, name, *more, address=None):
    broker = ctx.broker
    full = ["full"] if ctx.full else []
    return [*ctx.tools.java(), name, broker.host, str(broker.port), address or ctx.address(), *more, *full]


def declare(name):
    seconds = 240 if name == "volume" else 60

    @case(f"jms/{name}", seconds=seconds)
    def run(ctx):
        ctx.run(command(ctx, name), seconds - 5)


for each in NAMES:
    declare(each)
