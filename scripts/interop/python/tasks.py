"""Celery against a broker: the tasks, and, as a program, what is asked of a worker that runs them.

The environment says where the broker is (BROKER), how its queues are called (NAME) and where results of chords go (RESULTS).
"""

import datetime
import os
import sys
import time

from celery import Celery, chord, group
from kombu import Queue

PATIENCE = 20
NAME = os.environ["NAME"]
app = Celery("tasks", broker=os.environ["BROKER"], backend=os.environ.get("RESULTS", "rpc://"))
app.conf.update(
    task_default_queue=NAME,
    task_queues=[
        Queue(NAME, routing_key=NAME, queue_arguments={"x-max-priority": 10}),
        Queue(f"{NAME}.line", routing_key=f"{NAME}.line", queue_arguments={"x-max-priority": 10}),
    ],
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    result_expires=3600,
    broker_connection_retry_on_startup=True,
    control_queue_ttl=60.0,
)


@app.task
def add(left, right):
    return left + right


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def now():
    return time.time()


@app.task(bind=True, max_retries=3)
def stubborn(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return self.request.retries


@app.task(bind=True)
def tell(self, word):
    return [word, self.request.delivery_info["priority"]]


def equal(found, expected):
    assert found == expected, f"expected {expected!r}, found {found!r}"


def main():
    if sys.argv[1] == "chord":
        equal(chord(add.s(n, n) for n in range(10))(total.s()).get(timeout=PATIENCE), 90)
        return
    equal(add.delay(2, 3).get(timeout=PATIENCE), 5)
    calls = group(add.s(n, 1) for n in range(20))
    equal(calls.apply_async().get(timeout=PATIENCE), list(range(1, 21)))
    equal((add.s(1, 2) | add.s(3) | add.s(4)).apply_async().get(timeout=PATIENCE), 10)
    eta = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=1)
    assert now.apply_async(eta=eta).get(timeout=PATIENCE) >= eta.timestamp(), "too early"
    equal(stubborn.delay().get(timeout=PATIENCE), 2)
    equal(tell.apply_async(("high",), priority=9).get(timeout=PATIENCE), ["high", 9])
    answers = app.control.ping(timeout=5, limit=1)
    equal([list(answer.values()) for answer in answers], [[{"ok": "pong"}]])
    # What waits goes by its priority.
    with app.connection_for_write() as connection:
        line = Queue(f"{NAME}.line", queue_arguments={"x-max-priority": 10})(connection.default_channel)
        line.declare()
        for priority in (0, 3, 9, 6):
            tell.apply_async((priority,), queue=f"{NAME}.line", priority=priority)
        found = []
        deadline = time.monotonic() + PATIENCE
        while len(found) < 4 and time.monotonic() < deadline:
            message = line.get(no_ack=True)
            if message is not None:
                found.append(message.properties["priority"])
        equal(found, [9, 6, 3, 0])


if __name__ == "__main__":
    main()
