"""aio-pika against a broker: `asynchronous.py CASE PORT NAME`. Ends with 0 if the case holds."""

import asyncio
import sys

import aio_pika

PATIENCE = 20
CASE, PORT, PREFIX = sys.argv[1], int(sys.argv[2]), sys.argv[3]
URL = f"amqp://guest:guest@127.0.0.1:{PORT}/"
QUEUES = [f"{PREFIX}.{n}" for n in range(4)]


def message(body, **fields):
    return aio_pika.Message(str(body).encode(), **fields)


async def confirms(connection):
    channel = await connection.channel()
    for name in QUEUES:
        queue = await channel.declare_queue(name, durable=True)
        mode = aio_pika.DeliveryMode
        modes = (mode.PERSISTENT, mode.NOT_PERSISTENT)
        await asyncio.gather(
            *(
                channel.default_exchange.publish(message(n, delivery_mode=modes[n % 2]), name)
                for n in range(100)
            )
        )
        assert (await queue.delete(if_empty=False)).message_count == 100


async def prefetch(connection):
    for name in QUEUES:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=2)
        queue = await channel.declare_queue(name)
        for n in range(4):
            await channel.default_exchange.publish(message(n, headers={"n": n, "deep": {"a": [1, None]}}), name)
        box = asyncio.Queue()
        tag = await queue.consume(box.put)
        first, second = [await box.get() for _ in range(2)]
        assert box.empty() and (first.body, second.body) == (b"0", b"1")
        assert second.headers == {"n": 1, "deep": {"a": [1, None]}}, second.headers
        await second.nack(requeue=True)
        again = await box.get()
        assert (again.body, again.redelivered) == (b"1", True)
        await first.reject(requeue=False)
        third = await box.get()
        assert (third.body, third.redelivered) == (b"2", False)
        await again.ack()
        await third.ack()
        await (await box.get()).ack()
        await queue.cancel(tag)
        assert (await queue.delete()).message_count == 0
        await channel.close()


async def returns(connection):
    channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
    for name in QUEUES:
        try:
            await channel.default_exchange.publish(message("lost"), f"{name}.missing", mandatory=True)
        except aio_pika.exceptions.PublishError:
            continue
        raise AssertionError("a message that nobody gets was not returned")


async def cancel(connection):
    """A consumer whose queue is deleted is ended by the broker: the client knows of it no more."""
    channel, other = await connection.channel(), await connection.channel()
    consumers = (await channel.get_underlay_channel()).consumers
    for name in QUEUES:
        queue = await channel.declare_queue(name)
        tag = await queue.consume(print)
        assert tag in consumers
        await (await other.get_queue(name)).delete(if_unused=False)
        while tag in consumers:
            await asyncio.sleep(0.01)


async def iterate(connection):
    """A server of calls over queues that live as long as their connection."""
    channel = await connection.channel()
    for name in QUEUES:
        queue = await channel.declare_queue(name)
        replies = await channel.declare_queue(exclusive=True)
        for n in range(5):
            await channel.default_exchange.publish(
                message(n, reply_to=replies.name, correlation_id=str(n)), name
            )
        async with queue.iterator() as calls:
            async for call in calls:
                async with call.process():
                    answer = message(int(call.body) ** 2, correlation_id=call.correlation_id)
                    await channel.default_exchange.publish(answer, call.reply_to)
                if call.body == b"4":
                    break
        found = {}
        async with replies.iterator() as answers:
            async for answer in answers:
                async with answer.process():
                    found[answer.correlation_id] = answer.body
                if len(found) == 5:
                    break
        assert found == {str(n): str(n * n).encode() for n in range(5)}, found
        await queue.delete(if_empty=False)


async def restart(_connection):
    """Says `ready`, and waits for a line while the broker is started anew; the client restores what it had."""
    connection = await aio_pika.connect_robust(URL, reconnect_interval=0.1)
    again = asyncio.Event()
    connection.reconnect_callbacks.add(lambda *_: again.set())
    channel = await connection.channel()
    exchange = await channel.declare_exchange(f"{PREFIX}.exchange", "fanout", auto_delete=True)
    queue = await channel.declare_queue(f"{PREFIX}.own", auto_delete=True)
    await queue.bind(exchange)
    box = asyncio.Queue()
    await queue.consume(box.put, no_ack=True)
    kept = await channel.declare_queue(PREFIX, durable=True)
    persistent = aio_pika.DeliveryMode.PERSISTENT
    for n in range(10):
        await channel.default_exchange.publish(message(n, delivery_mode=persistent), PREFIX)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await again.wait()
    await exchange.publish(message("again"), "")
    assert (await box.get()).body == b"again"
    bodies = [(await kept.get(no_ack=True)).body for _ in range(10)]
    assert bodies == [str(n).encode() for n in range(10)], bodies
    await connection.close()


async def main():
    connection = await aio_pika.connect(URL)
    await asyncio.wait_for(globals()[CASE](connection), PATIENCE)
    await connection.close()


asyncio.run(main())
