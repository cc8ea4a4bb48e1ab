"""Celery: a worker, chains and groups, chords, ETA, retries, priorities, remote control. What is asked is in python/tasks.py."""

import os
import shutil
import subprocess
import sys

from .harness import case


def environment(ctx, backend):
    return {
        "PYTHONPATH": ctx.tools.python_folder("celery") + os.pathsep + ctx.tools.python_programs,
        "BROKER": f"amqp://guest:guest@{ctx.broker.host}:{ctx.broker.port}//",
        "NAME": ctx.address(backend),
    }


def ask(ctx, backend, more):
    """Starts a worker of one queue, and asks it; what is asked waits for it."""
    variables = {**environment(ctx, backend), **more}
    log = open(os.path.join(ctx.folder, f"celery-{backend}-{ctx.broker.shards}.log"), "w")
    ctx.later(log.close)
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-P", "threads", "-c", "4", "-l", "INFO"]
    worker = subprocess.Popen(
        [*command, "-Q", variables["NAME"], "-n", f"{backend}@localhost"],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    ctx.later(worker.kill)
    ctx.run([sys.executable, os.path.join(ctx.tools.python_programs, "tasks.py"), backend], 80, variables)
    # A warm shutdown: it cancels its consumers and closes its connections.
    worker.terminate()
    worker.wait(20)


@case("celery/worker", seconds=120)
def worker(ctx):
    ask(ctx, "rpc", {})


@case("celery/chord", seconds=120)
def chord(ctx):
    """Results of chords are not for queues; the tasks, and what unlocks the chord, are."""
    folder = os.path.join(ctx.folder, f"celery-results-{ctx.broker.shards}")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    ask(ctx, "chord", {"RESULTS": f"file://{folder}"})
