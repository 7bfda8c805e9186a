"""`barnabas cluster start --controllers kafka`: three controllers of Apache Kafka and brokers of Barnabas."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kafka import KafkaTools, kafka_jars
from tests.server_process import wait_until
from tests.tools.cli.running import Run, run_command

from barnabas.clients.admin import Admin, NewTopic, raise_first
from barnabas.clients.consumer import Consumer
from barnabas.clients.producer import Producer
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.tools.cli.local_cluster import LocalCluster

DEADLINE_S = 60
VERSION = "4.4.0"
CONTROLLER_NAMES = ["controller 101", "controller 102", "controller 103"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a cluster may be made; nothing of it outlives the test."""
    folder = tmp_path / "cluster"
    yield folder
    if (folder / "cluster.json").exists():
        for member in LocalCluster.load(folder).members:
            member.send(signal.SIGKILL)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], folder: Path) -> Run:
    """Runs a command of `barnabas cluster`; gives its status, output and errors."""

    def command(name: str, *arguments: str) -> tuple[int, str, str]:
        return run_command(capfd, ["cluster", name, *arguments, "--data", str(folder)])

    return command


def kafka_home(folder: Path, jars: list[Path]) -> Path:
    """A directory such as the one of a release."""
    (folder / "libs").mkdir(parents=True)
    for jar in jars:
        (folder / "libs" / jar.name).symlink_to(jar)
    return folder


def rows(run: Run) -> dict[str, dict[str, object]]:
    _, out, err = run("status", "--json")
    assert err == ""
    return {row["process"]: row for row in json.loads(out)}


async def create(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        raise_first(await admin.create_topics([NewTopic(topic, 2)]))


async def create_and_fill(bootstrap: str) -> None:
    await create(bootstrap, "t")
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        found: list[int] = []
        async with asyncio.timeout(DEADLINE_S):
            while found != [2, 2]:  # until this broker has the topic
                (topic,) = await admin.describe_topics(["t"])
                found = [len(one.replicas) for one in topic.partitions.values()]
        await producer.send_and_wait("t", b"1", partition=0)


async def first_value(bootstrap: str) -> bytes | None:
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        async with asyncio.timeout(DEADLINE_S):
            return (await consumer.getone()).value


@pytest.mark.java
@pytest.mark.verify
@pytest.mark.timeout(400)
def test_controllers_of_kafka_and_two_brokers_start_stop_and_lose_a_controller(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home = kafka_home(tmp_path / "kafka", kafka_jars(VERSION))
    arguments = ["--controllers", "kafka", "--kafka-home", str(home), "-n", "2", "--port", "0", "--json"]
    status, out, err = run("start", *arguments)
    assert status == 0, err
    bootstrap = json.loads(out)["bootstrap"]
    found = rows(run)
    assert list(found) == [*CONTROLLER_NAMES, "broker 1", "broker 2"]
    assert {row["state"] for row in found.values()} == {"running"}
    assert sorted(str(found[name]["quorum"]) for name in CONTROLLER_NAMES) == ["leader", "voter", "voter"]
    assert found["broker 1"]["quorum"] == "observer"
    status, out, err = run_command(capfd, ["cluster", "quorum", "--bootstrap-server", bootstrap, "--json"])
    assert status == 0, err
    described = json.loads(out)
    assert {row["id"] for row in described["replicas"]} == {101, 102, 103, 1, 2}
    asyncio.run(create_and_fill(bootstrap))
    victim = next(str(row["process"]) for row in found.values() if row["controller"]).split()[1]
    assert run("kill", victim)[0] == 0
    wait_until(
        lambda: any(row["controller"] for row in rows(run).values()), timeout_s=DEADLINE_S, what="another controller"
    )
    asyncio.run(create(bootstrap, "u"))
    assert run("start", victim)[0] == 0
    status, out, err = run("stop")
    assert (status, err) == (0, "")
    assert [line.split()[1] for line in out.splitlines()] == ["broker"] * 2 + ["controller"] * 3
    # The broker needs a majority of the controllers.
    assert "without a majority of the controllers" in run("start", "1")[2]
    assert run("start", "--controllers", "builtin")[2].endswith("has a cluster with --controllers kafka\n")
    status, _, err = run("start")  # with the home of the first start
    assert status == 0, err
    assert asyncio.run(first_value(bootstrap)) == b"1"
    dumped = KafkaTools().output("kafka-features", "--bootstrap-server", bootstrap, "describe")
    assert "metadata.version" in dumped
    assert run("stop")[0] == 0


@pytest.mark.parametrize(
    ("jars", "java", "reason"),
    [
        (None, "17.0.1", "controllers of Apache Kafka require its jars: set --kafka-home or KAFKA_HOME"),
        ([], "17.0.1", "no Apache Kafka release"),
        (["kafka_2.13-3.9.1.jar"], "17.0.1", "Apache Kafka 3.9 is too old. Controllers require release 4.0 or later"),
        (["kafka_2.13-4.4.0.jar"], "11.0.2", "Java 11 is too old. Install Java 17 or later"),
        (["kafka_2.13-4.4.0.jar"], "1.8.0_292", "Java 8 is too old"),
        (["kafka_2.13-4.4.0.jar"], None, "java: not found in PATH, and JAVA_HOME is not set"),
        (["kafka_2.13-4.4.0.jar"], "", "`java -version` printed no version"),
    ],
)
def test_missing_or_old_java_and_jars_are_reported_before_anything_starts(
    run: Run,
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    jars: list[str] | None,
    java: str | None,
    reason: str,
) -> None:
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    if java is not None:
        (programs / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{java}\" 2025-01-01' >&2\n")
        (programs / "java").chmod(0o755)
    if jars is not None:
        monkeypatch.setenv("KAFKA_HOME", str(kafka_home(tmp_path / "kafka", [tmp_path / name for name in jars])))
    status, _, err = run("start", "--controllers", "kafka", "--port", "0")
    assert status == 1
    assert reason in err
    assert [path.name for path in folder.iterdir()] == ["lock"]
