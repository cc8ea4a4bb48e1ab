"""Virtual hosts, and who may do what in them: pika by the name of one, qpid-proton by the host name `vhost:NAME`; and what RabbitMQ exports."""

import base64
import hashlib
import json
import os
import subprocess
import time

from proton import ConnectionException, Message, ProtonException
from proton.utils import ConnectionClosed

from . import pika_cases
from .auth_cases import corelane
from .broker import CONFIG
from .client import Client, Refused, settle
from .harness import Failure, case, check, equal
from .management_cases import Manager
from .pika_cases import library, names, received

PASSWORD = "correct horse"


def inside(ctx, name, keeps=False, arguments=(), config=""):
    """A broker of the case's own with the virtual host `blue`; the context that speaks to it."""
    config = f"{CONFIG}\n[vhosts.blue]\n{config}"
    broker = ctx.tools.broker(ctx.broker.shards, name, config, arguments, keeps)
    ctx.later(broker.discard if keeps else broker.stop)
    inner = type(ctx)(broker, ctx.case, ctx.full, ctx.folder, ctx.tools)
    inner.cleanups = ctx.cleanups
    return inner


def pika(ctx, vhost="/", user="guest", password=None):
    return pika_cases.connect(ctx, vhost, user, password or ("guest" if user == "guest" else PASSWORD))


def proton(ctx, vhost=None, user=None, password=PASSWORD):
    options = {"allowed_mechs": "ANONYMOUS"}
    if user:
        options = {"user": user, "password": password, "allowed_mechs": "PLAIN", "allow_insecure_mechs": True}
    client = Client(ctx.url, virtual_host=f"vhost:{vhost}" if vhost else None, timeout=8, **options)
    ctx.later(client.close)
    return client


def pika_refused(ctx, text, **options):
    """The connection is refused with 530, and that."""
    try:
        pika(ctx, **options).close()
    except library(ctx).exceptions.AMQPConnectionError as error:
        # The library quotes what it was told.
        said = repr(error).replace("\\'", "'")
        check("530" in said and text in said, f"expected 530 and {text!r}, heard {said}")
        return
    raise Failure(f"{options} was let in")


def proton_refused(ctx, condition, **options):
    """The connection is opened and closed with this condition."""
    try:
        proton(ctx, **options)
    except (ConnectionClosed, ConnectionException, ProtonException) as error:
        check(condition in str(error), f"expected {condition}, heard {error}")
        return
    raise Failure(f"{options} was let in")


def channel_refused(ctx, connection, attempt, code, text):
    """A channel is closed with this code and text."""
    try:
        attempt(connection.channel())
    except library(ctx).exceptions.ChannelClosedByBroker as error:
        equal((error.reply_code, error.reply_text), (code, text), "why the channel was closed")
        return
    raise Failure(f"nothing was refused, expected {text!r}")


def link_refused(attach):
    try:
        attach()
    except Refused as refused:
        equal(refused.condition, "amqp:unauthorized-access", "why the link was refused")
        return
    raise Failure("the link was attached")


def bodies(client, queue, count):
    receiver = client.receiver(f"/queues/{queue}", credit=count)
    taken = receiver.take(count)
    for _, delivery in taken:
        settle(delivery)
    receiver.close()
    return [bytes(message.body) for message, _ in taken]


@case("vhosts/names", own_only=True)
def same_names(ctx):
    """One name is another queue, exchange and node in each virtual host, for both protocols."""
    inner = inside(ctx, "vhosts")
    queues = names(inner)
    with pika(inner) as default, pika(inner, "blue") as blue:
        for vhost, connection in (("/", default), ("blue", blue)):
            channel = connection.channel()
            channel.confirm_delivery()
            channel.exchange_declare("orders", "fanout")
            for queue in queues:
                channel.queue_declare(queue)
                channel.queue_bind(queue, "orders")
                channel.queue_bind(queue, "amq.fanout")
            channel.basic_publish("orders", "", f"{vhost} orders".encode())
            channel.basic_publish("amq.fanout", "", f"{vhost} amq.fanout".encode())
        for queue in queues:
            equal([body for _, _, body in received(blue.channel(), queue)], [b"blue orders", b"blue amq.fanout"], "blue")
        clients = {"/": proton(inner), "blue": proton(inner, "blue")}
        for queue in queues:
            equal(bodies(clients["/"], queue, 2), [b"/ orders", b"/ amq.fanout"], "the default one")
            clients["blue"].sender(f"/queues/{queue}").send([Message(body=b"from proton", inferred=True)])
            equal(received(default.channel(), queue), [], "what is in /")
            equal(received(blue.channel(), queue), [("", queue, b"from proton")], "what is in blue")
        blue.channel().queue_delete(queues[0])
        shown = [{row["name"] for row in Manager(client).query("queue", ["name"], "vhosts")} for client in clients.values()]
        equal(shown, [set(queues), set(queues[1:])], "the queues that are shown in each")
    # A host's own name, which clients send unless they are told otherwise, is no virtual host.
    proton(inner).sender(f"/queues/{queues[0]}")
    pika_refused(inner, "NOT_ALLOWED - vhost nope not found", vhost="nope")
    proton_refused(inner, "not-found", vhost="nope")


@case("vhosts/restart", own_only=True)
def restart(ctx):
    """What is durable is in its virtual host again when the broker starts with another number of shards."""
    inner = inside(ctx, "kept", keeps=True)
    queues = names(inner)
    persistent = library(ctx).BasicProperties(delivery_mode=2)
    for vhost in ("/", "blue"):
        with pika(inner, vhost) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.exchange_declare("orders", "fanout" if vhost == "blue" else "direct", durable=True)
            for queue in queues:
                channel.queue_declare(queue, durable=True)
                channel.queue_bind(queue, "orders", queue)
                channel.basic_publish("", queue, f"{vhost} {queue}".encode(), persistent)
    inner.broker.stop()
    inner.broker.shards = 5 - inner.broker.shards
    inner.broker.start()
    for vhost in ("/", "blue"):
        with pika(inner, vhost) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("orders", queues[0], b"routed")
            for queue in queues:
                found = [body for _, _, body in received(channel, queue)]
                routed = [b"routed"] if vhost == "blue" or queue == queues[0] else []
                equal(found, [f"{vhost} {queue}".encode(), *routed], f"what is in {queue} of {vhost}")


@case("vhosts/permissions", own_only=True)
def permissions(ctx):
    """Patterns for configuring, writing and reading keep a user from other queues and exchanges, links and channels alike."""
    users = os.path.join(ctx.folder, f"permissions-{ctx.broker.shards}")
    if os.path.exists(users):
        os.remove(users)
    for user in ("alice", "root"):
        corelane(ctx, "user", "add", user, "--users", users, "--password-stdin", stdin=PASSWORD + "\n")
    granted = ["--configure", "^mine", "--write", r"^(mine|events|amq\.default)", "--read", "^(mine|theirs)"]
    corelane(ctx, "user", "permit", "alice", "--vhost", "blue", *granted, "--users", users)
    for vhost in ("/", "blue"):
        everything = ["--configure", ".*", "--write", ".*", "--read", ".*"]
        corelane(ctx, "user", "permit", "root", "--vhost", vhost, *everything, "--users", users)
    corelane(ctx, "user", "tag", "root", "administrator", "--users", users)
    inner = inside(ctx, "permissions", arguments=["--users", users])
    channels(inner)
    links(inner)


def channels(ctx):
    def denied(right, thing, name):
        return f"ACCESS_REFUSED - {right} access to {thing} '{name}' in vhost 'blue' refused for user 'alice'"

    pika_refused(ctx, "NOT_ALLOWED - access to vhost '/' refused for user 'alice'", user="alice")
    properties = library(ctx).BasicProperties
    with pika(ctx, "blue", "root") as root, pika(ctx, "blue", "alice") as alice:
        channel = root.channel()
        for queue in ("theirs", "hidden"):
            channel.queue_declare(queue)
        channel.exchange_declare("events", "fanout")
        channel.exchange_declare("others", "fanout")
        channel = alice.channel()
        channel.confirm_delivery()
        channel.queue_declare("mine")
        channel.basic_publish("", "mine", b"m", properties(user_id="alice"))
        channel.basic_publish("events", "", b"m")
        equal(received(channel, "mine"), [("", "mine", b"m")], "what alice sent herself")
        for attempt, code, text in (
            (lambda it: it.queue_declare("other"), 403, denied("configure", "queue", "other")),
            (lambda it: it.queue_delete("theirs"), 403, denied("configure", "queue", "theirs")),
            (lambda it: it.exchange_declare("made", "fanout"), 403, denied("configure", "exchange", "made")),
            (lambda it: it.queue_bind("mine", "events"), 403, denied("read", "exchange", "events")),
            (lambda it: it.queue_bind("hidden", "mine"), 403, denied("write", "queue", "hidden")),
            (lambda it: it.basic_get("hidden"), 403, denied("read", "queue", "hidden")),
            (lambda it: it.basic_consume("hidden", print), 403, denied("read", "queue", "hidden")),
            (lambda it: it.queue_purge("hidden"), 403, denied("read", "queue", "hidden")),
            (
                lambda it: (it.confirm_delivery(), it.basic_publish("others", "", b"m")),
                403,
                denied("write", "exchange", "others"),
            ),
            (
                lambda it: (it.confirm_delivery(), it.basic_publish("", "mine", b"m", properties(user_id="root"))),
                406,
                "PRECONDITION_FAILED - user_id property set to 'root' but authenticated user was 'alice'",
            ),
        ):
            channel_refused(ctx, alice, attempt, code, text)
        alice.channel().queue_declare("hidden", passive=True)


def links(ctx):
    proton_refused(ctx, "unauthorized-access", user="alice")
    proton_refused(ctx, "unauthorized-access", user="alice", vhost="/")
    client = proton(ctx, "blue", "alice")
    client.sender("mine").send([Message(body=b"one", inferred=True)])
    equal(bodies(client, "mine", 1), [b"one"], "what alice sent herself")
    client.receiver("theirs")
    for attach in (
        lambda: client.sender("theirs"),
        lambda: client.receiver("hidden"),
        lambda: client.receiver("made-on-first-use"),
        lambda: client.sender("/exchanges/others"),
    ):
        link_refused(attach)
    relay = client.sender(None)
    relay.send([Message(address=address, body=b"m", inferred=True) for address in ("mine", "theirs", "mine")])
    outcomes = len(relay.box.accepted), [condition for _, condition in relay.box.rejected]
    equal(outcomes, (2, ["amqp:unauthorized-access"]), "what became of messages for any address")
    manager = ByLink(client)
    equal(manager.ask("READ", "queue", "theirs"), 200, "status of a look")
    for operation, name in (("CREATE", "mine.too"), ("PURGE", "mine"), ("DELETE", "mine")):
        equal(manager.ask(operation, "queue", name), 403, f"status of {operation} without the tag")
    root = ByLink(proton(ctx, "blue", "root"))
    equal([root.ask("CREATE", "queue", "made"), root.ask("DELETE", "queue", "made")], [201, 204], "with the tag")


class ByLink:
    """Requests whose answers come over a link from the node, which needs no right to write anywhere."""

    def __init__(self, client):
        self.answers = client.receiver("$management", credit=10, name="answers")
        self.requests = client.sender("$management")

    def ask(self, operation, kind, name):
        properties = {"operation": operation, "type": kind, "name": name}
        self.requests.send([Message(id="r", reply_to="answers", properties=properties, body={})])
        answer, delivery = self.answers.take(1)[0]
        settle(delivery)
        return answer.properties["statusCode"]


def hashed(password, algorithm):
    salt = b"\x90\x8d\xc6\x0a"
    return base64.b64encode(salt + hashlib.new(algorithm, salt + password.encode()).digest()).decode()


def export():
    """What `rabbitmqctl export_definitions` writes, in shape."""
    user = {"limits": {}, "tags": []}
    queue = {"vhost": "red", "durable": True, "auto_delete": False}
    exchange = {**queue, "internal": False, "arguments": {}}
    binding = {"vhost": "red", "arguments": {}}
    return {
        "rabbit_version": "3.10.8",
        "rabbitmq_version": "3.10.8",
        "product_name": "RabbitMQ",
        "product_version": "3.10.8",
        "users": [
            {
                "name": f"by-{algorithm}",
                "password_hash": hashed(PASSWORD, algorithm),
                "hashing_algorithm": f"rabbit_password_hashing_{algorithm}",
                **user,
            }
            for algorithm in ("sha256", "sha512", "md5")
        ],
        "vhosts": [{"name": "/"}, {"name": "red"}],
        "permissions": [
            {"user": f"by-{algorithm}", "vhost": "red", "configure": ".*", "write": ".*", "read": ".*"}
            for algorithm in ("sha256", "sha512", "md5")
        ],
        "topic_permissions": [],
        "parameters": [],
        "global_parameters": [{"name": "internal_cluster_id", "value": "rabbitmq-cluster-id-zeA1"}],
        "policies": [
            {
                "vhost": "red",
                "name": "short",
                "pattern": r"^q\d",
                "apply-to": "queues",
                "definition": {"max-length": 2, "overflow": "drop-head", "dead-letter-exchange": "dead"},
                "priority": 1,
            },
            {
                "vhost": "red",
                "name": "tiny",
                "pattern": "",
                "apply-to": "all",
                "definition": {"max-length": 1, "ha-mode": "all"},
                "priority": 0,
            },
        ],
        "queues": [{"name": f"q{n}", "arguments": {"x-queue-type": "classic"}, **queue} for n in range(8)]
        + [{"name": "graveyard", "arguments": {"x-max-length": 1000}, **queue}],
        "exchanges": [
            {"name": "events", "type": "topic", **exchange},
            {"name": "all", "type": "fanout", **exchange},
            {"name": "dead", "type": "fanout", **exchange},
        ],
        "bindings": [
            {
                "source": "events",
                "destination": "all",
                "destination_type": "exchange",
                "routing_key": "order.#",
                **binding,
            },
            {
                "source": "dead",
                "destination": "graveyard",
                "destination_type": "queue",
                "routing_key": "",
                **binding,
            },
        ]
        + [
            {"source": "all", "destination": f"q{n}", "destination_type": "queue", "routing_key": "", **binding}
            for n in range(8)
        ],
    }


@case("vhosts/definitions", own_only=True, seconds=120)
def definitions(ctx):
    """An export is there after the start and after the next one: users by their hashes, queues, routes, policies."""
    file = os.path.join(ctx.folder, f"definitions-{ctx.broker.shards}.json")
    with open(file, "w") as text:
        json.dump(export(), text, indent=1)
    inner = inside(ctx, "definitions", keeps=True, arguments=["--definitions", file])
    log = inner.broker.log_tail()
    check('policy "tiny"' in log and "ha-mode" in log, f"nothing is said of ha-mode: {log}")
    check("is not as it is defined" not in log, f"something could not be made: {log}")
    persistent = library(ctx).BasicProperties(delivery_mode=2)
    queues = [f"q{n}" for n in range(8)]
    with pika(inner, "red", "by-sha256") as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for n in range(3):
            channel.basic_publish("events", "order.made", b"%d" % n, persistent)
        # It came with a bound, which stands above the policy's.
        wait_for_count(channel, "graveyard", 8)
        equal({body for _, _, body in received(channel, "graveyard")}, {b"0"}, "the dead letters")
        for n in range(2):
            channel.queue_declare("declared")
            channel.basic_publish("", "declared", b"%d" % n)
        equal(received(channel, "declared"), [("", "declared", b"1")], "what the second policy leaves")
    for user in ("by-sha512", "by-md5"):
        pika(inner, "red", user).close()
        proton(inner, "red", user).close()
    for attempt in (
        lambda: pika(inner, "red", "by-md5", "wrong"),
        lambda: pika(inner, "red", "nobody"),
        lambda: pika(inner, "red"),
    ):
        try:
            attempt()
            raise Failure("a wrong login was let in")
        except library(ctx).exceptions.AMQPConnectionError:
            pass
    inner.broker.stop()
    inner.broker.start()
    with pika(inner, "red", "by-sha256") as connection:
        channel = connection.channel()
        for queue in queues:
            found = [body for _, _, body in received(channel, queue)]
            equal(found, [b"1", b"2"], f"what is in {queue} after the next start")
        channel.basic_publish("events", "order.made", b"again")
        for queue in queues:
            wait_for_count(channel, queue, 1)
    wrong(ctx, file, export(), "users", 0, {"password_hash": "AAAA"}, 'user "by-sha256": password_hash')
    wrong(ctx, file, export(), "queues", 3, {"vhost": "green"}, 'queue "q3" in vhost "green": there is no vhost')
    wrong(ctx, file, export(), "queues", 3, {"durable": "yes"}, "line 1 column")


def wait_for_count(channel, queue, count, seconds=20):
    deadline = time.monotonic() + seconds
    while channel.queue_declare(queue, passive=True).method.message_count < count:
        check(time.monotonic() < deadline, f"{queue} has fewer than {count} messages after {seconds} s")


def wrong(ctx, file, text, kind, index, change, expected):
    """A broker does not start with that changed, and says where."""
    text[kind][index].update(change)
    with open(file, "w") as written:
        json.dump(text, written)
    command = [ctx.tools.binary, "serve", "--in-memory", "--listen", "127.0.0.1:0", "--definitions", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    said = done.stdout + done.stderr
    check(done.returncode != 0, f"it started with {change}")
    check(file in said and expected in said, f"expected {expected!r}, read {said}")
