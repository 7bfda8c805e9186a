"""One compose file as it runs: its services, what they say, and clients on the host."""

import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from threading import Thread

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from engine import STOP_S, run, wait_for
from images import ROOT

UP_S, CLIENT_S = 600, 60
QUIET = {"log_level": "0"}  # what a client tells of brokers that were killed on purpose
NAME = "barnabas-check"
COMPOSE_FILE = "docker-compose.yml"


class Project:
    """What compose started of one file, with these profiles."""

    def __init__(self, docker: str, compose: Sequence[str], file: str, *profiles: str) -> None:
        self.docker = docker
        options = [f"--profile={profile}" for profile in profiles]
        self.command = [*compose, "--file", str(ROOT / "docker" / file), "--project-name", NAME, *options]

    def compose(self, *arguments: str, timeout_s: float = UP_S) -> str:
        return run([*self.command, *arguments], timeout_s=timeout_s)

    def up(self, *services: str) -> None:
        """Start them, and wait until those that have a probe are healthy."""
        self.compose("up", "--detach", "--no-build", *services)
        for service in services:
            self.wait_healthy(service)

    def wait_healthy(self, service: str) -> None:
        health = "{{if .State.Health}}{{.State.Health.Status}}{{else}}{{.State.Status}}{{end}}"
        wait_for(f"health of {service}", lambda: self.inspect(service, health) in ("healthy", "running"), UP_S)

    def stop(self, *services: str, status: str = "0") -> None:
        """SIGTERM ends them cleanly, within the time that the file grants them."""
        began = time.monotonic()
        self.compose("stop", *services, timeout_s=STOP_S)
        for service in services:
            found = self.inspect(service, "{{.State.ExitCode}}")
            assert found == status, f"{service} ended with status {found} after {time.monotonic() - began:.0f} s"

    def kill(self, service: str) -> None:
        """SIGKILL as from the kernel: what `docker kill` ends is not restarted."""
        process = self.inspect(service, "{{.State.Pid}}")
        image = self.inspect(service, "{{.Config.Image}}")
        outside = ["--rm", "--pid=host", "--user=0", "--entrypoint=bash"]
        run([self.docker, "run", *outside, image, "-c", f"kill -KILL {process}"])

    def container(self, service: str) -> str:
        labels = {"project": NAME, "service": service}
        filters = [f"--filter=label=com.docker.compose.{label}={value}" for label, value in labels.items()]
        return run([self.docker, "ps", "--all", "--quiet", *filters]).strip()

    def inspect(self, service: str, what: str) -> str:
        return run([self.docker, "inspect", "--format", what, self.container(service)]).strip()

    def inside(self, service: str, script: str) -> str:
        """What a shell beside the service says."""
        return run([self.docker, "exec", self.container(service), "bash", "-c", script]).strip()

    def log(self, service: str) -> list[str]:
        return self._log(service)

    def timed_log(self, service: str) -> list[str]:
        """Return the log lines, each after its timestamp."""
        return self._log(service, "--timestamps")

    def _log(self, service: str, *options: str) -> list[str]:
        command = [self.docker, "logs", *options, self.container(service)]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
        return result.stdout.splitlines()


@contextmanager
def running(docker: str, compose: Sequence[str], file: str, *profiles: str) -> Iterator[Project]:
    """A project of which nothing is left at the end."""
    project = Project(docker, compose, file, *profiles)
    try:
        yield project
    except BaseException:
        print(
            run([*project.command, "logs", "--no-color", "--tail=60"], timeout_s=STOP_S, check=False), file=sys.stderr
        )
        raise
    finally:
        run([*project.command, "down", "--volumes", "--timeout=30"], timeout_s=STOP_S, check=False)


class Follower:
    """Shows what the services say, as they say it, and keeps it."""

    def __init__(self, project: Project) -> None:
        command = [*project.command, "logs", "--no-color", "--follow"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._lines: list[str] = []
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None, "opened as a pipe"
        for line in self._process.stdout:
            print(line, end="", flush=True)
            self._lines.append(line)

    def said(self, service: str, pattern: str) -> list[str]:
        """What the pattern finds in the lines of a service."""
        found = []
        for line in list(self._lines):
            name, _, text = line.partition("|")
            if name.startswith(service):
                found += re.findall(pattern, text)
        return found

    def end(self) -> None:
        """Wait for the last lines of services that have ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        self._process.kill()
        self._reader.join()


def produce(client: dict[str, str], topic: str, records: int) -> None:
    """Write from the host; returns once all are acknowledged by all replicas. Raises AssertionError."""
    failed: list[object] = []
    producer = Producer({**QUIET, **client, "enable.idempotence": "true", "message.timeout.ms": CLIENT_S * 1000})
    for number in range(records):
        producer.produce(topic, str(number), on_delivery=lambda error, _: failed.append(error) if error else None)
    waiting = producer.flush(CLIENT_S)
    assert not waiting and not failed, f"{waiting} records not acknowledged, {len(failed)} failed: {failed[:1]}"


def count(client: dict[str, str], topic: str) -> int:
    """How many records a client on the host reads, from the first to the last. Raises TimeoutError."""
    settings = {"group.id": "host", "enable.auto.commit": "false", "enable.partition.eof": "true"}
    consumer = Consumer({**QUIET, **client, **settings})
    try:
        partitions = consumer.list_topics(topic, timeout=CLIENT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        found: Counter[object] = Counter()
        ended: set[int] = set()
        deadline = time.monotonic() + CLIENT_S
        while len(ended) < len(partitions):
            for message in consumer.consume(5000, timeout=1):
                error = message.error()
                found[error and error.code()] += 1
                if error and error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} not read to its end within {CLIENT_S} s: {found}")
        return found[None]
    finally:
        consumer.close()


def is_refused(client: dict[str, str]) -> bool:
    """Whether the broker tells such a client nothing."""
    try:
        AdminClient({**QUIET, **client}).list_topics(timeout=5)
    except KafkaException:
        return True
    return False


def here(*variables: str) -> dict[str, str]:
    """Has the compose files publish at ports that are free here, and how clients on the host reach them."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in variables]
        ports = [str(one.getsockname()[1]) for one in sockets]
    os.environ.update(zip(variables, ports, strict=True))
    return {"bootstrap.servers": ",".join(f"localhost:{port}" for port in ports)}
