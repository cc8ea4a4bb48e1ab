"""One broker process: started on a free port, watched, stopped, its log kept."""

import os
import shutil
import signal
import socket
import subprocess
import time

START_SECONDS = 15
STOP_SECONDS = 15

# What the cases rely on beyond the defaults: one pattern for each property of destinations.
CONFIG = """
[destinations."exclusive.>"]
exclusive = true

[destinations."one.>"]
prefetch = "none"

[destinations."clamped.>"]
prefetch = 5

[destinations."levels.>"]
priorities = true

[destinations."short.>"]
expiration = "300ms"

[destinations."brief.>"]
expiration = "2s"

[destinations."closed.>"]
auto-create = false

[destinations."topics.>"]
topic = true

[destinations."topics.inherits.>"]
prefetch = 0

[destinations."inherits.>"]
prefetch = 0

[destinations."clamped.inherits.>"]
prefetch = 0

[destinations."reject.>"]
messages-max = 5
overflow = "reject"

[destinations."ring.>"]
messages-max = 5
overflow = "drop-oldest"
dead-letter = "dead.ring"

[destinations."block.>"]
messages-max = 50
overflow = "block"

[destinations."mortal.>"]
dead-letter = "dead.mortal"
deliveries-max = 3

[destinations."patient.>"]
redelivery-delay = { min = "200ms", multiplier = 2, max = "500ms" }

[destinations."hasty.>"]
ack-deadline = "400ms"

[destinations."last.>"]
last-value-key = "key"

[destinations."lasting.>"]
non-destructive = true

[destinations."fleeting.>"]
auto-delete = true

[destinations."idle.>"]
idle-expiry = "400ms"

[destinations."stamped.>"]
sender-name = true

[destinations."least.>"]
dispatch = "least-outstanding"

[destinations."pair.>"]
consumers-max = 2
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Broker:
    def __init__(self, binary, folder, shards, name="broker", config=CONFIG, arguments=(), keeps=False):
        self.binary = binary
        self.shards = shards
        self.config_path = os.path.join(folder, f"{name}-{shards}.toml")
        self.log_path = os.path.join(folder, f"{name}-{shards}.log")
        self.arguments = list(arguments)
        # One that keeps its data can be started again.
        self.data = os.path.join(folder, f"{name}-{shards}.data") if keeps else None
        if keeps:
            shutil.rmtree(self.data, ignore_errors=True)
        self.host = "127.0.0.1"
        self.port = None
        self.process = None
        with open(self.config_path, "w") as file:
            file.write(config)
        open(self.log_path, "w").close()

    def start(self):
        # Clients that recover come back to the port that they know.
        self.port = self.port or free_port()
        command = [
            self.binary,
            "serve",
            "--listen",
            f"{self.host}:{self.port}",
            "--shards",
            str(self.shards),
            *(["--data-dir", self.data] if self.data else ["--in-memory"]),
            "--config",
            self.config_path,
            *self.arguments,
        ]
        self.log = open(self.log_path, "ab")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(
                    f"the broker ended with {self.process.returncode} at its start:\n{self.log_tail()}"
                )
            try:
                socket.create_connection((self.host, self.port), 1).close()
                return self
            except OSError:
                if time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError(
                        f"the broker does not listen after {START_SECONDS} s:\n{self.log_tail()}"
                    )
                time.sleep(0.02)

    @property
    def url(self):
        return f"{self.host}:{self.port}"

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def how_it_ended(self):
        """The exit code, or the name of the signal."""
        code = self.process.poll()
        return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        return 0

    def processor_seconds(self):
        """Time spent by all threads, in user and kernel mode."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        """Asks the broker to end; its exit code, or None when it had to be killed."""
        if self.process is None:
            return None
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        finally:
            self.log.close()

    def discard(self):
        """Ends it with what it keeps."""
        self.stop()
        shutil.rmtree(self.data)

    def kill(self):
        if self.alive():
            self.process.kill()
            self.process.wait()

    def log_tail(self, lines=25):
        with open(self.log_path, errors="replace") as log:
            return "".join(log.readlines()[-lines:])
