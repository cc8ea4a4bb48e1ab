"""The client libraries of other languages: fetched once into the output folder, never into the tree."""

import os
import shutil
import subprocess
import sys

from .broker import CONFIG, Broker


class External:
    """A broker that runs already and is not ours to stop."""

    def __init__(self, url):
        self.url = url
        self.host, port = url.rsplit(":", 1)
        self.port = int(port)
        self.shards = 1


class Tools:
    def __init__(self, binary, suite_folder, output):
        self.binary = binary
        self.suite_folder = suite_folder
        self.output = output
        self.rhea_folder = os.path.join(output, "rhea")
        self.jms_folder = os.path.join(output, "jms")
        self.pika_folder = os.path.join(output, "pika")
        os.makedirs(output, exist_ok=True)
        self.started = 0

    def broker(self, shards, name, config=CONFIG, arguments=(), keeps=False):
        self.started += 1
        name = f"{name}-{self.started}"
        return Broker(self.binary, self.output, shards, name, config, arguments, keeps).start()

    def prepare(self):
        self.prepare_rhea()
        self.prepare_jms()
        self.prepare_pika()

    def prepare_rhea(self):
        source = os.path.join(self.suite_folder, "rhea")
        os.makedirs(self.rhea_folder, exist_ok=True)
        for name in os.listdir(source):
            shutil.copy(os.path.join(source, name), self.rhea_folder)
        if not os.path.exists(os.path.join(self.rhea_folder, "node_modules/rhea/package.json")):
            fetch(
                "rhea",
                ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"],
                self.rhea_folder,
            )

    def prepare_jms(self):
        source = os.path.join(self.suite_folder, "jms")
        os.makedirs(self.jms_folder, exist_ok=True)
        pom, classpath = os.path.join(source, "pom.xml"), self.classpath_file()
        if not os.path.exists(classpath) or os.path.getmtime(classpath) < os.path.getmtime(pom):
            fetch(
                "Qpid JMS",
                [
                    "mvn",
                    "-q",
                    "-B",
                    "-f",
                    pom,
                    "dependency:build-classpath",
                    f"-Dmdep.outputFile={classpath}",
                ],
                self.jms_folder,
            )
        sources = [
            os.path.join(source, name) for name in sorted(os.listdir(source)) if name.endswith(".java")
        ]
        newest = max(map(os.path.getmtime, sources))
        built = os.path.join(self.jms_folder, "Interop.class")
        if not os.path.exists(built) or os.path.getmtime(built) < newest:
            fetch(
                "the JMS program",
                ["javac", "-nowarn", "-cp", self.classpath(), "-d", self.jms_folder, *sources],
                self.jms_folder,
            )

    def prepare_pika(self):
        if not os.path.exists(os.path.join(self.pika_folder, "pika/__init__.py")):
            os.makedirs(self.pika_folder, exist_ok=True)
            fetch(
                "pika",
                [sys.executable, "-m", "pip", "install", "--quiet", "--target", self.pika_folder, "pika==1.4.4"],
                self.pika_folder,
            )

    def classpath_file(self):
        return os.path.join(self.jms_folder, "classpath")

    def classpath(self):
        with open(self.classpath_file()) as file:
            return file.read().strip()

    def java(self):
        """The command that runs the JMS program; small heaps and the simple collector start quickest."""
        return [
            "java",
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{self.jms_folder}:{self.classpath()}",
            "Interop",
        ]

    def node(self):
        return ["node", os.path.join(self.rhea_folder, "interop.js")]


def fetch(what, command, folder):
    """Registries have hiccups: tried three times."""
    for attempt in range(3):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode == 0:
            return
    raise SystemExit(
        f"{what} cannot be had ({' '.join(command[:3])}…):\n{(done.stdout + done.stderr)[-3000:]}"
    )
