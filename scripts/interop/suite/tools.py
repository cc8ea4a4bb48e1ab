"""The client libraries of other languages: fetched once into the output folder, never into the tree."""

import os
import shutil
import subprocess
import sys

from .broker import CONFIG, Broker


# What each folder of Python's packages has; one for each, as some need others than the rest does.
PYTHON = {
    "pika": ["pika==1.4.4"],
    "aio-pika": ["aio-pika==9.6.1"],
    "celery": ["celery==5.5.3"],
}


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
        self.pika_folder = self.python_folder("pika")
        self.python_programs = os.path.join(suite_folder, "python")
        self.amqplib_folder = os.path.join(output, "amqplib")
        self.channels_folder = os.path.join(output, "java091")
        self.go_program = os.path.join(output, "go", "interop")
        os.makedirs(output, exist_ok=True)
        self.started = 0

    def broker(self, shards, name, config=CONFIG, arguments=(), keeps=False):
        self.started += 1
        name = f"{name}-{self.started}"
        return Broker(self.binary, self.output, shards, name, config, arguments, keeps).start()

    def prepare(self):
        self.prepare_node("rhea", self.rhea_folder)
        self.prepare_node("amqplib", self.amqplib_folder)
        self.prepare_java("jms", self.jms_folder, "Interop")
        self.prepare_java("java091", self.channels_folder, "Channels")
        self.prepare_go()
        self.prepare_python()

    def prepare_node(self, name, folder):
        source = os.path.join(self.suite_folder, name)
        os.makedirs(folder, exist_ok=True)
        for file in os.listdir(source):
            shutil.copy(os.path.join(source, file), folder)
        if not os.path.exists(os.path.join(folder, f"node_modules/{name}/package.json")):
            command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
            fetch(name, command, folder)

    def prepare_java(self, name, folder, program):
        source = os.path.join(self.suite_folder, name)
        os.makedirs(folder, exist_ok=True)
        pom, classpath = os.path.join(source, "pom.xml"), classpath_file(folder)
        if not os.path.exists(classpath) or os.path.getmtime(classpath) < os.path.getmtime(pom):
            goal = ["dependency:build-classpath", f"-Dmdep.outputFile={classpath}"]
            fetch(f"the libraries of {program}", ["mvn", "-q", "-B", "-f", pom, *goal], folder)
        sources = [
            os.path.join(source, file) for file in sorted(os.listdir(source)) if file.endswith(".java")
        ]
        built = os.path.join(folder, f"{program}.class")
        if is_older(built, sources):
            command = ["javac", "-nowarn", "-cp", read_classpath(folder), "-d", folder, *sources]
            fetch(f"the program {program}", command, folder)

    def prepare_go(self):
        source = os.path.join(self.suite_folder, "go")
        if is_older(self.go_program, [os.path.join(source, file) for file in os.listdir(source)]):
            fetch("the Go program", ["go", "build", "-o", self.go_program, "."], source)

    def python_folder(self, name):
        return os.path.join(self.output, name)

    def prepare_python(self):
        for name, packages in PYTHON.items():
            folder = self.python_folder(name)
            stamp = os.path.join(folder, "packages")
            wanted = " ".join(packages)
            if os.path.exists(stamp) and open(stamp).read() == wanted:
                continue
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
            fetch(
                name,
                [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, *packages],
                folder,
            )
            with open(stamp, "w") as file:
                file.write(wanted)

    def java(self):
        return java(self.jms_folder, "Interop")

    def node(self):
        return ["node", os.path.join(self.rhea_folder, "interop.js")]

    def programs(self):
        """Those of clients of AMQP 0-9-1: how each is started, without its case, port and name."""
        python = ["env", f"PYTHONPATH={self.python_folder('aio-pika')}", sys.executable]
        return {
            "aio-pika": [*python, os.path.join(self.python_programs, "asynchronous.py")],
            "amqplib": ["node", os.path.join(self.amqplib_folder, "interop.js")],
            "go": [self.go_program],
            "java": java(self.channels_folder, "Channels"),
            "php": ["php", os.path.join(self.suite_folder, "php", "interop.php")],
        }


def classpath_file(folder):
    return os.path.join(folder, "classpath")


def read_classpath(folder):
    with open(classpath_file(folder)) as file:
        return file.read().strip()


def is_older(built, sources):
    return not os.path.exists(built) or os.path.getmtime(built) < max(map(os.path.getmtime, sources))


def java(folder, program):
    """The command that runs a program; small heaps and the simple collector start quickest."""
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *options, "-cp", f"{folder}:{read_classpath(folder)}", program]


def fetch(what, command, folder):
    """Registries have hiccups: tried three times."""
    for attempt in range(3):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode == 0:
            return
    raise SystemExit(
        f"{what} cannot be had ({' '.join(command[:3])}…):\n{(done.stdout + done.stderr)[-3000:]}"
    )
