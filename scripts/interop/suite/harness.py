"""How a case is declared, run under a deadline and judged."""

import os
import signal
import subprocess
import time
import traceback

CASES = []


class Failure(Exception):
    """What a case found wrong."""


class Late(Exception):
    """The case's deadline passed."""


class Skip(Exception):
    """The case cannot be asked of this broker (another one than ours, in a trial of the clients)."""


class Case:
    def __init__(self, name, body, seconds, own_only):
        self.name = name
        self.body = body
        self.seconds = seconds
        self.own_only = own_only


def case(name, seconds=60, own_only=False):
    """Declares a case. `own_only`: it relies on what Corelane alone promises, so no other broker is asked."""

    def declare(body):
        CASES.append(Case(name, body, seconds, own_only))
        return body

    return declare


def check(condition, reason):
    if not condition:
        raise Failure(reason)


def equal(found, expected, what):
    if found != expected:
        raise Failure(f"{what}: expected {short(expected)}, found {short(found)}")


def short(value, limit=300):
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def in_order(found, expected, what):
    """Both are lists of the same things in the same order; names the first place where they part."""
    for index, (left, right) in enumerate(zip(found, expected)):
        if left != right:
            around = found[max(0, index - 3) : index + 5]
            raise Failure(
                f"{what}: at place {index} expected {right!r}, found {left!r} (around it: {short(around)})"
            )
    equal(len(found), len(expected), f"{what}, count")


class Context:
    """What a case gets: the broker, how much to do, names of queues that no other case uses."""

    def __init__(self, broker, case, full, folder, tools):
        self.broker = broker
        self.url = broker.url
        self.case = case
        self.full = full
        self.folder = folder
        self.tools = tools
        self.cleanups = []
        # A broker that is not ours may remember an earlier run.
        self.mark = "" if hasattr(broker, "process") else f"{os.getpid()}-"

    def address(self, name="q"):
        return f"{self.case.name.replace('/', '.')}.{self.mark}{name}"

    def later(self, cleanup):
        """Runs `cleanup` when the case has ended, however it ended."""
        self.cleanups.append(cleanup)

    def run(self, command, seconds, environment=None):
        """Runs a client program to its end and returns what it printed; its last line says why it failed."""
        environment = {**os.environ, **(environment or {})}
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                env=environment,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as late:
            said = ((late.stdout or b"") + (late.stderr or b"")).decode(errors="replace")[-600:]
            raise Failure(f"{os.path.basename(command[0])} did not end within {seconds} s; it said: {said}")
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip()[-1500:]
            raise Failure(f"{os.path.basename(command[0])} ended with {done.returncode}: {said}")
        return done.stdout


def ring(_signal, _frame):
    raise Late()


def run_case(context):
    """Runs one case; None when it passed, else what was wrong."""
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, context.case.seconds, 5)
    reason = None
    try:
        context.case.body(context)
    except Skip:
        raise
    except Failure as failure:
        reason = str(failure)
    except Late:
        reason = f"not done after {context.case.seconds} s; it stood at:\n{traceback.format_exc(limit=-4)}"
    except Exception as error:  # Whatever a client library throws is the reason.
        reason = f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-3)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    for cleanup in reversed(context.cleanups):
        try:
            cleanup()
        except Exception as error:  # The case is judged by what it checked.
            if reason is None:
                reason = f"while cleaning up: {type(error).__name__}: {error}"
    return reason


class Runner:
    def __init__(self, start, full, folder, tools, external):
        self.start = start
        self.full = full
        self.folder = folder
        self.tools = tools
        self.external = external
        self.passed = 0
        self.failed = []

    def run(self, cases, shards):
        broker = self.start(shards)
        try:
            for case in cases:
                if self.external and case.own_only:
                    continue
                broker = self.run_one(case, broker, shards)
        finally:
            if not self.external:
                self.judge_end(broker, shards)

    def run_one(self, case, broker, shards):
        began = time.monotonic()
        print(f"{case.name} [shards {shards}] ... ", end="", flush=True)
        try:
            reason = run_case(Context(broker, case, self.full, self.folder, self.tools))
        except Skip as skip:
            print(f"left out: {skip}", flush=True)
            return broker
        died = not self.external and not broker.alive()
        if died:
            reason = f"the broker ended with {broker.how_it_ended()}" + (f"; {reason}" if reason else "")
        took = time.monotonic() - began
        if reason is None:
            self.passed += 1
            print(f"ok ({took:.1f} s)", flush=True)
            return broker
        self.failed.append(f"{case.name} [shards {shards}]")
        print(f"FAILED ({took:.1f} s): {reason}", flush=True)
        if not self.external:
            print(
                "  the broker's log ends with:\n    " + broker.log_tail().replace("\n", "\n    "), flush=True
            )
            # The next case gets a broker that this one has not touched.
            broker.stop()
            return self.start(shards)
        return broker

    def judge_end(self, broker, shards):
        """A broker that served every case ends cleanly when it is asked to."""
        print(f"stop [shards {shards}] ... ", end="", flush=True)
        code = broker.stop()
        if code == 0:
            self.passed += 1
            print("ok", flush=True)
        else:
            self.failed.append(f"stop [shards {shards}]")
            print(f"FAILED: exit code {code} after SIGTERM\n{broker.log_tail()}", flush=True)
