"""librabbitmq's amqp-tools, which know neither confirms nor cancels: declare, publish, get, consume, delete."""

from .harness import case, equal
from .pika_cases import connect, names


def tool(ctx, name, *arguments):
    return ctx.run([f"amqp-{name}", f"--url=amqp://{ctx.broker.host}:{ctx.broker.port}", *arguments], 20)


@case("amqp-tools/all")
def everything(ctx):
    for queue in names(ctx, 4):
        equal(tool(ctx, "declare-queue", "-d", "-q", queue).strip(), queue, "what is declared")
        for body in ("A", "B", "C"):
            tool(ctx, "publish", "-p", "-r", queue, "-b", body, "-C", "text/plain")
        equal(tool(ctx, "get", "-q", queue), "A", "what is got")
        equal(tool(ctx, "consume", "-q", queue, "-c", "2", "cat"), "BC", "what is consumed")
        # Both were acknowledged.
        equal(tool(ctx, "delete-queue", "-q", queue, "-e").strip(), "0", "what is deleted")


@case("amqp-tools/exchange")
def exchange(ctx):
    queue = ctx.address()
    with connect(ctx) as connection:
        channel = connection.channel()
        channel.queue_declare(queue)
        channel.queue_bind(queue, "amq.topic", f"{queue}.#")
        tool(ctx, "publish", "-e", "amq.topic", "-r", f"{queue}.a.b", "-b", "routed")
        method, _, body = channel.basic_get(queue, auto_ack=True)
        equal((method.routing_key, body), (f"{queue}.a.b", b"routed"), "what came")
        channel.queue_delete(queue)
