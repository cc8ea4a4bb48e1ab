"""The program's own command line as a client, and messages from each client to each other one."""

import time

from . import jms_cases, rhea_cases
from .auth_cases import corelane
from .client import Client, body_is_right, message, seqs, settle
from .harness import case, check, equal, in_order
from .steps import expect_rest


@case("cli/send-receive-browse", own_only=True)
def send_receive_browse(ctx):
    """corelane send, browse and receive, with counts, sizes, selectors and time-outs."""
    url, address = ["--url", ctx.url], ctx.address()
    corelane(ctx, "send", address, "hello", *url)
    corelane(ctx, "send", address, "again", "-n", "3", *url)
    corelane(ctx, "send", address, "-", "--property", "colour=red", *url, stdin="from the standard input")
    expected = ["hello", "again", "again", "again", "from the standard input"]
    equal(corelane(ctx, "browse", address, *url).splitlines(), expected, "corelane browse")
    equal(
        corelane(ctx, "browse", address, "-n", "2", *url).splitlines(), expected[:2], "corelane browse -n 2"
    )
    equal(
        corelane(ctx, "receive", address, "--selector", "colour = 'red'", *url).splitlines(),
        expected[4:],
        "with a selector",
    )
    equal(corelane(ctx, "receive", address, *url).splitlines(), expected[:1], "corelane receive")
    out = corelane(ctx, "receive", address, "-n", "10", "--timeout", "1", *url, codes=(3,))
    equal(out.splitlines(), expected[1:4], "corelane receive -n 10, exit code 3")
    equal(corelane(ctx, "browse", address, *url), "", "corelane browse on an empty queue")
    for size in (0, 1, 65536, 1 << 20):
        corelane(ctx, "send", address, "--size", str(size), "-n", "3", *url)
        client = Client(ctx.url)
        taken = client.receiver(address, credit=3).take(3)
        equal([len(received.body or b"") for received, _ in taken], [size] * 3, "sizes")
        for _, delivery in taken:
            settle(delivery)
        client.close()
    # More than 2^16, so that no counter of 16 bits and no window can hide.
    count = 70_000
    corelane(ctx, "send", address, "-n", str(count), "--size", "100", *url)
    equal(len(corelane(ctx, "browse", address, *url).splitlines()), count, "lines of a long browse")
    equal(
        len(corelane(ctx, "browse", address, "-n", "150", *url).splitlines()), 150, "lines of browse -n 150"
    )
    out = corelane(ctx, "receive", address, "-n", str(count), "--timeout", "10", *url)
    equal(len(out.splitlines()), count, "lines received")


@case("cli/errors", own_only=True)
def errors(ctx):
    """What fails says so: exit code 1 without a broker, 2 for wrong arguments, 3 for what did not come."""
    corelane(ctx, "send", "q", "x", "--url", "127.0.0.1:1", codes=(1,))
    corelane(ctx, "send", codes=(2,))
    corelane(ctx, "receive", ctx.address(), "--timeout", "0.2", "--url", ctx.url, codes=(3,))
    corelane(ctx, "send", "closed.nowhere", "x", "--url", ctx.url, codes=(1, 3))
    # Refused before it is made: a gigabyte would take its time.
    began = time.monotonic()
    corelane(ctx, "send", ctx.address(), "--size", "1GiB", "--url", ctx.url, codes=(1,))
    check(time.monotonic() - began < 2, "a body that is too large was made first")
    corelane(ctx, "serve", "--in-memory", "--listen", ctx.url, codes=(1,))
    corelane(ctx, "serve", "--in-memory", "--listen", "192.0.2.1:5672", codes=(1,))
    corelane(ctx, "serve", "--in-memory", "--shards", "0", codes=(1, 2))


PRODUCERS = ("proton", "rhea", "jms")


def produce(ctx, client, address):
    if client == "proton":
        connection = Client(ctx.url)
        connection.sender(address).send(
            [message(seq, seq * 97 % 40000, id=f"m{seq}", durable=seq % 2 == 0) for seq in range(500)]
        )
        connection.close()
    else:
        program = rhea_cases if client == "rhea" else jms_cases
        ctx.run(program.command(ctx, "produce", address=address), 50)


def consume(ctx, client, address, producer):
    if client == "proton":
        connection = Client(ctx.url)
        taken = connection.receiver(address, credit=500).take(500)
        in_order(seqs(taken), list(range(500)), f"from {producer}")
        for received, delivery in taken:
            seq = received.properties["seq"]
            check(body_is_right(received), f"body of {seq} from {producer} is not what was sent")
            equal(received.durable, seq % 2 == 0, f"durable of {seq} from {producer}")
            settle(delivery)
        expect_rest(connection, address, [])
        connection.close()
    else:
        program = rhea_cases if client == "rhea" else jms_cases
        ctx.run(program.command(ctx, "consume", address=address), 50)


def declare_pair(producer, consumer):
    @case(f"pairs/{producer}-to-{consumer}")
    def run(ctx):
        """500 messages of 0 B to 40 KB from one library to another."""
        produce(ctx, producer, ctx.address())
        consume(ctx, consumer, ctx.address(), producer)


for one in PRODUCERS:
    for other in PRODUCERS:
        if one != other:
            declare_pair(one, other)
