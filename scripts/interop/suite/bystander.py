"""A case around which another connection works, and the broker's memory is watched."""

import time

from .client import message, settle
from .harness import case, check
from .steps import connect

MEMORY_MAX = 64 << 20


def raw_case(name, **options):
    """A case around which a bystander works and the memory is watched."""

    def declare(body):
        @case(f"raw/{name}", own_only=True, **options)
        def run(ctx):
            bystander = connect(ctx)
            ping(bystander, ctx)
            before = ctx.broker.resident_bytes()
            body(ctx, lambda: ping(bystander, ctx))
            ping(bystander, ctx)
            grown = ctx.broker.resident_bytes() - before
            check(grown < MEMORY_MAX, f"the broker grew by {grown >> 20} MiB")

        run.__doc__ = body.__doc__
        return body

    return declare


def ping(client, ctx):
    """A message there and back, soon."""
    address = ctx.address("ping")
    began = time.monotonic()
    client.sender(address).send([message(0)])
    receiver = client.receiver(address, credit=1)
    settle(receiver.take(1, 5)[0][1])
    receiver.close()
    took = time.monotonic() - began
    check(took < 3, f"a bystander's message took {took:.1f} s")
