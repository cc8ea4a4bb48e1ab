"""Who gets in: users in a file, by PLAIN and SCRAM-SHA-256, each library with what it can; and who does not."""

import os
import subprocess
import time

from proton import ConnectionException, ProtonException
from proton.utils import ConnectionClosed

from . import jms_cases, rhea_cases
from .client import Client, messages
from .harness import Failure, case, check, equal
from .steps import expect_rest

NAME, PASSWORD = "alice", "correct horse"


def guarded(ctx):
    """A broker with a users file with one user; the context that speaks to it."""
    users = os.path.join(ctx.folder, f"users-{ctx.broker.shards}")
    if os.path.exists(users):
        os.remove(users)
    corelane(ctx, "user", "add", NAME, "--users", users, "--password-stdin", stdin=PASSWORD + "\n")
    equal(corelane(ctx, "user", "list", "--users", users).split(), [NAME], "corelane user list")
    broker = ctx.tools.broker(ctx.broker.shards, "guarded", arguments=["--users", users])
    ctx.later(broker.stop)
    inner = type(ctx)(broker, ctx.case, ctx.full, ctx.folder, ctx.tools)
    inner.users = users
    return inner


def corelane(ctx, *arguments, stdin="", codes=(0,)):
    """Runs the program's own command line; what it printed."""
    done = subprocess.run(
        [ctx.tools.binary, *arguments], input=stdin, capture_output=True, text=True, timeout=30
    )
    if done.returncode not in codes:
        raise Failure(
            f"corelane {' '.join(arguments[:2])} ended with {done.returncode}: {(done.stdout + done.stderr)[-500:]}"
        )
    return done.stdout


def refused(ctx, what, **options):
    try:
        Client(ctx.url, timeout=8, **options)
    except (ConnectionClosed, ConnectionException, ProtonException) as error:
        check(
            "unauthorized" in str(error).lower() or "auth" in str(error).lower(),
            f"{what}: refused with {error}",
        )
        return
    raise Failure(f"{what} was let in")


@case("auth/users", own_only=True)
def users(ctx):
    """PLAIN with the right password, and none of the ways in that a users file closes; the file may change meanwhile."""
    inner = guarded(ctx)
    # Debian builds the library without SCRAM; the JMS case has it.
    right = {"user": NAME, "password": PASSWORD, "allowed_mechs": "PLAIN", "allow_insecure_mechs": True}
    client = Client(inner.url, **right)
    client.sender("q").send(messages(3))
    expect_rest(client, "q", range(3), "PLAIN")
    client.close()
    refused(inner, "a wrong password", **{**right, "password": "wrong"})
    refused(inner, "an unknown user", **{**right, "user": "mallory"})
    lines = [line for line in inner.broker.log_tail().splitlines() if "authentication refused" in line]
    check(
        any("mallory" in line and "127.0.0.1:" in line for line in lines),
        f"the log does not say who was refused: {lines}",
    )
    refused(inner, "ANONYMOUS", allowed_mechs="ANONYMOUS")
    refused(
        inner, "guest/guest", user="guest", password="guest", allowed_mechs="PLAIN", allow_insecure_mechs=True
    )
    try:
        Client(inner.url, timeout=5, sasl_enabled=False)
        raise Failure("a client without SASL was let in")
    except (ConnectionClosed, ConnectionException, ProtonException):
        pass
    # A change of the file is seen by the running broker.
    corelane(inner, "user", "add", "bob", "--users", inner.users, "--password-stdin", stdin="other\n")
    corelane(inner, "user", "remove", NAME, "--users", inner.users)
    bob = {"user": "bob", "password": "other", "allowed_mechs": "PLAIN", "allow_insecure_mechs": True}
    for attempt in range(20):
        try:
            Client(inner.url, timeout=8, **bob).close()
            break
        except (ConnectionClosed, ConnectionException, ProtonException):
            if attempt == 19:
                raise Failure("a user added while the broker runs is not let in after 10 s")
            time.sleep(0.5)
    refused(
        inner,
        "a removed user",
        user=NAME,
        password=PASSWORD,
        allowed_mechs="PLAIN",
        allow_insecure_mechs=True,
    )


@case("auth/guest", own_only=True)
def guest(ctx):
    """Without a users file loopback is open: ANONYMOUS, no SASL, and PLAIN guest/guest, but no other name."""
    for options in (
        {"allowed_mechs": "ANONYMOUS"},
        {"sasl_enabled": False},
        {"user": "guest", "password": "guest", "allowed_mechs": "PLAIN", "allow_insecure_mechs": True},
    ):
        client = Client(ctx.url, **options)
        client.sender(ctx.address()).send(messages(1))
        expect_rest(client, ctx.address(), [0], str(options))
        client.close()
    refused(
        ctx, "somebody", user="somebody", password="guest", allowed_mechs="PLAIN", allow_insecure_mechs=True
    )


@case("auth/rhea", own_only=True)
def rhea(ctx):
    """rhea by PLAIN; with a wrong password it is refused."""
    inner = guarded(ctx)
    ctx.run([*rhea_cases.command(inner, "plain"), NAME, PASSWORD], 40)
    try:
        ctx.run([*rhea_cases.command(inner, "plain"), NAME, "wrong"], 40)
    except Failure as failure:
        check("did not end" not in str(failure), f"a wrong password is not refused: {failure}")
        return
    raise Failure("a wrong password was let in")


@case("auth/jms", own_only=True, seconds=90)
def jms(ctx):
    """Qpid JMS by PLAIN and by SCRAM-SHA-256; with a wrong password it is refused."""
    inner = guarded(ctx)
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        ctx.run(jms_cases.command(inner, "login", NAME, PASSWORD, mechanism), 40)
        try:
            ctx.run(jms_cases.command(inner, "login", NAME, "wrong", mechanism), 40)
        except Failure as failure:
            check("JMSSecurity" in str(failure), f"a wrong password by {mechanism}: {failure}")
            continue
        raise Failure(f"a wrong password by {mechanism} was let in")
