"""Clients of AMQP 0-9-1 as programs: aio-pika, amqplib (Node.js), amqp091-go, RabbitMQ's Java client and php-amqplib.

The cases themselves are in the programs: python/asynchronous.py, amqplib/interop.js, go/main.go, java091/Channels.java and php/interop.php.
"""

import subprocess

from .harness import Failure, case, check, equal

SECONDS = 60

NAMES = {
    "aio-pika": ("confirms", "prefetch", "returns", "cancel", "iterate"),
    "amqplib": ("confirms", "prefetch", "returns", "cancel", "topics", "refusals"),
    "go": ("confirms", "prefetch", "returns", "cancel"),
    "java": ("confirms", "prefetch", "returns", "cancel", "topics"),
    "php": ("confirms", "prefetch", "returns", "cancel"),
}


def command(ctx, program, name, port):
    return [*ctx.tools.programs()[program], name, str(port), ctx.address()]


def declare(program, name):
    @case(f"{program}/{name}", seconds=SECONDS)
    def run(ctx):
        ctx.run(command(ctx, program, name, ctx.broker.port), SECONDS - 5)


def declare_restart(program):
    """The broker is stopped in order and started again, while the client is connected."""

    @case(f"{program}/restart", seconds=SECONDS, own_only=True)
    def run(ctx):
        broker = ctx.tools.broker(ctx.broker.shards, "restarted", keeps=True)
        ctx.later(broker.discard)
        child = subprocess.Popen(
            command(ctx, program, "restart", broker.port),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        ctx.later(child.kill)
        said = child.stdout.readline()
        if said != "ready\n":
            child.kill()
            raise Failure(f"the client said: {said}{child.stdout.read()[-1500:]}")
        equal(broker.stop(), 0, "the broker's exit code")
        broker.start()
        said, _ = child.communicate("go on\n", SECONDS - 20)
        check(child.returncode == 0, f"the client ended with {child.returncode}: {said[-1500:]}")


for each, cases in NAMES.items():
    for one in cases:
        declare(each, one)
    declare_restart(each)
