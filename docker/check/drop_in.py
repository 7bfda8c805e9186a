"""Checks of compose files that are written for images of Kafka, and of the start time of the image."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from statistics import median

import yaml
from confluent_kafka.admin import AdminClient
from engine import STOP_S, run, say, wait_for
from images import ROOT
from project import CLIENT_S, QUIET, UP_S, Project, count, produce, running

SERVICES = ROOT / "docker/check/services"
IMAGE = "barnabas-broker"
STARTED = "Kafka Server started"
STARTS = 5


def check_drop_in(docker: str, compose: Sequence[str]) -> None:
    """Check that each service starts, serves tools in the container and clients on the host, and stops cleanly."""
    seconds = [start_seconds(docker) for _ in range(STARTS)]
    say(f"ready {median(seconds):.2f} s after docker run ({min(seconds):.2f} to {max(seconds):.2f} s)")
    for path in sorted(SERVICES.glob("*.yml")):
        with running(docker, compose, f"check/services/{path.name}") as project:
            took = check_service(project, yaml.safe_load(path.read_text()))
        say(f"{path.stem}: ready {took:.2f} s after the start of its container")


def check_service(project: Project, file: dict[str, object]) -> float:
    """Check a running service; return the seconds from the start of its container until it served clients."""
    services = file["services"]
    assert isinstance(services, dict)
    (name,) = (one for one, how in services.items() if one != "init" and how["image"] == IMAGE)
    project.compose("up", "--detach", "--no-build")
    wait_for(f"line {STARTED!r}", lambda: STARTED in " ".join(project.log(name)), UP_S)
    inside = f"--bootstrap-server {file['x-inside']} --topic checked"
    project.inside(name, f"kafka-topics.sh {inside} --create --partitions 1 --replication-factor 1")
    project.inside(name, f"printf 'one\\ntwo\\n' | kafka-console-producer.sh {inside}")
    read = project.inside(name, f"/opt/kafka/bin/kafka-console-consumer.sh {inside} --from-beginning --max-messages 2")
    assert read.splitlines() == ["one", "two"], read
    if "x-outside" in file:
        check_from_the_host(str(file["x-outside"]), str(file.get("x-user", "")))
    if "init" in services:
        wait_for("end of init", lambda: project.inspect("init", "{{.State.Status}}") == "exited", UP_S)
        assert project.inspect("init", "{{.State.ExitCode}}") == "0", project.log("init")
    began = time_of(project.inspect(name, "{{.State.StartedAt}}"))
    (line,) = (one for one in project.timed_log(name) if STARTED in one)
    project.stop(name)
    return time_of(line.split()[0]) - began


def check_from_the_host(address: str, user: str) -> None:
    client = {"bootstrap.servers": address}
    if user:
        name, _, password = user.partition(":")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            login = {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password}
            client = {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", **login}
            AdminClient({**QUIET, **client}).list_topics(timeout=CLIENT_S)
    produce(client, "checked", 100)
    assert count(client, "checked") == 102


def start_seconds(docker: str) -> float:
    """Return the seconds from `docker run` until the broker serves clients."""
    with container(docker) as (name, began):
        while "\nready " not in run([docker, "logs", name]):
            assert time.monotonic() < began + UP_S, run([docker, "logs", name])
            time.sleep(0.005)
        return time.monotonic() - began


@contextmanager
def container(docker: str) -> Iterator[tuple[str, float]]:
    began = time.monotonic()
    name = run([docker, "run", "--detach", IMAGE]).strip()
    try:
        yield name, began
    finally:
        run([docker, "rm", "--force", "--volumes", name], timeout_s=STOP_S, check=False)


def time_of(text: str) -> float:
    """Convert a timestamp of the container engine, which has nanoseconds, to Unix time."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", text)).timestamp()
