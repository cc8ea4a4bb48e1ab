"""Steps that many cases take."""

from .client import Client, seqs, settle
from .harness import in_order


def connect(ctx, beside=None, **options):
    client = Client(ctx.url, beside=beside, **options)
    ctx.later(client.close)
    return client


def expect_rest(client, address, expected, what="what is left in the queue"):
    """Takes all that the queue still has, accepts it and compares."""
    receiver = client.receiver(address)
    found = []
    while True:
        taken = receiver.drain(1000)
        if not taken:
            break
        found += seqs(taken)
        for _, delivery in taken:
            settle(delivery)
    receiver.close()
    in_order(found, list(expected), what)
