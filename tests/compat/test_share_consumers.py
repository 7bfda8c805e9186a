"""Share consumers of Kafka's Java client and of librdkafka with a broker: delivery, acknowledgement, dead letters."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.barnabas_server import BarnabasServer
from tests.compat.test_java import program
from tests.java import java_command

pytestmark = [pytest.mark.verify, pytest.mark.timeout(300)]

VERSION = "4.4.0"
LOCK_MS = 3000
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "300",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "group.share.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasServer]:
    with BarnabasServer(tmp_path_factory.mktemp("broker"), properties=SETTINGS) as server:
        yield server


class ShareMemberProcess:
    """A member of a share group in a program, which executes one command at a time."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def do(self, command: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def poll(self, seconds: float = 20.0) -> dict[str, int]:
        """Return the next records, `partition:offset`, with their delivery counts; none after this time."""
        line = self.do(f"poll {int(seconds * 1000)}")
        assert line.startswith("got"), line
        return {place: int(count) for place, count in (one.split("=") for one in line.split()[1:])}

    def acknowledge(self, kind: str, *places: str) -> None:
        assert self.do(" ".join(["ack", kind, *places])) == "acknowledged"

    def commit(self) -> str:
        return self.do("commit")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait(60)


class World:
    """A share group that reads a topic of one partition from its first record."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.group, self.topic = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("group", "topic"))
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self.admin.create_topics([NewTopic(self.topic, 1)])[self.topic].result()
        self.members: list[ShareMemberProcess] = []
        self.set_group({"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(LOCK_MS)})

    def set_group(self, settings: dict[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, self.group, incremental_configs=entries)
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result()

    def produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        for number in range(count):
            producer.produce(self.topic, str(number).encode())
        assert producer.flush(30) == 0

    def join(self, *settings: str) -> ShareMemberProcess:
        """A member of Kafka's Java client joins."""
        classpath = program(("share_member",), f"org.apache.kafka:kafka-clients:{VERSION}", self.folder)
        return self.start(java_command("ShareMember", classpath, [self.bootstrap, self.group, self.topic, *settings]))

    def start(self, command: Sequence[str]) -> ShareMemberProcess:
        """Start a program with a member."""
        member = ShareMemberProcess(command)
        self.members.append(member)
        return member

    def close(self) -> None:
        """End all members."""
        for member in self.members:
            with suppress(OSError, ValueError, subprocess.TimeoutExpired):
                member.close()
            member.kill()

    def read(self, topic: str, count: int) -> list[tuple[bytes | None, dict[str, str]]]:
        """Return the values and headers of the first records of a topic."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        found: list[tuple[bytes | None, dict[str, str]]] = []
        deadline = time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and not message.error():
                headers = {str(name): bytes(value).decode() for name, value in message.headers() or []}  # type: ignore
                found.append((message.value(), headers))
        consumer.close()
        return found


@pytest.fixture
def world(broker: BarnabasServer, tmp_path: Path) -> Iterator[World]:
    made = World(broker.bootstrap, tmp_path)
    yield made
    made.close()


def poll_all(member: ShareMemberProcess, count: int) -> dict[str, int]:
    """Poll until this number of records has been delivered, and accept each poll's records as they come."""
    found: dict[str, int] = {}
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        some = member.poll()
        if some:
            found |= some
            member.acknowledge("ACCEPT", *some)
            assert "ok" in member.commit()
    return found


@pytest.mark.parametrize("mode", ["batch_optimized", "record_limit"])
def test_java_accepts_releases_and_rejects(world: World, mode: str) -> None:
    world.produce(20)
    member = world.join(f"share.acquire.mode={mode}", "max.poll.records=50")
    first = member.poll()
    while len(first) < 20:
        # Each record of a poll has to be acknowledged before the next poll.
        member.acknowledge("RELEASE", *first)
        assert member.commit() == "committed 0=ok"
        first = member.poll()
    released = [place for place in first if int(place.split(":")[1]) % 5 == 0]
    rejected = [place for place in first if int(place.split(":")[1]) % 5 == 1]
    accepted = [place for place in first if place not in released + rejected]
    counts = {place: first[place] for place in released}
    for kind, places in (("RELEASE", released), ("REJECT", rejected), ("ACCEPT", accepted)):
        member.acknowledge(kind, *places)
    assert member.commit() == "committed 0=ok"
    again: dict[str, int] = {}
    while len(again) < len(released):
        some = member.poll()
        assert some, again
        again |= some
        member.acknowledge("ACCEPT", *some)
        assert member.commit() == "committed 0=ok"
    assert again == {place: count + 1 for place, count in counts.items()}
    assert member.poll(2.0) == {}


def test_java_renews_locks_and_loses_expired_ones(world: World) -> None:
    lock_s = 8
    world.set_group({"share.record.lock.duration.ms": str(lock_s * 1000)})
    world.produce(2)
    first, other = world.join(), world.join()
    assert set(first.poll()) == {"0:0", "0:1"}
    assert other.poll(0.2) == {}
    for _ in range(3):  # longer than one lock
        time.sleep(lock_s / 2)
        first.acknowledge("RENEW", "0:0", "0:1")
        assert first.commit() == "committed 0=ok"
        # The client returns renewed records again, with the delivery count that they had.
        assert first.poll() == {"0:0": 1, "0:1": 1}
        assert other.poll(0.2) == {}
    assert other.poll(2.0 * lock_s) == {"0:0": 2, "0:1": 2}
    first.acknowledge("ACCEPT", "0:0", "0:1")
    assert first.commit() != "committed 0=ok"
    other.acknowledge("ACCEPT", "0:0", "0:1")
    assert other.commit() == "committed 0=ok"


def test_records_of_a_crashed_member_are_delivered_again(world: World) -> None:
    world.set_group({"share.record.lock.duration.ms": "30000"})
    world.produce(10)
    first = world.join()
    held = first.poll()
    assert held
    other = world.join()
    assert set(other.poll(3.0)).isdisjoint(held)
    began = time.monotonic()
    first.kill()
    found = poll_all(other, len(held))
    assert time.monotonic() - began < 25, "before the locks expire"
    assert {place: found[place] for place in held} == dict.fromkeys(held, 2)


def test_dead_letters(world: World) -> None:
    queue = f"dlq.{world.topic}"
    world.set_group(
        {
            "share.delivery.count.limit": "2",
            "errors.deadletterqueue.topic.name": queue,
            "errors.deadletterqueue.copy.record.enable": "true",
        }
    )
    world.produce(2)
    member = world.join()
    assert set(member.poll()) == {"0:0", "0:1"}
    member.acknowledge("REJECT", "0:0")
    member.acknowledge("RELEASE", "0:1")
    assert member.commit() == "committed 0=ok"
    assert member.poll() == {"0:1": 2}
    member.acknowledge("RELEASE", "0:1")
    assert member.commit() == "committed 0=ok"
    assert member.poll(2.0) == {}
    letters = world.read(queue, 2)
    assert [value for value, _ in letters] == [b"0", b"1"]
    assert [headers["__dlq.errors.message"] for _, headers in letters] == [
        "Offset rejected by client.",
        "Offset delivery count exceeded the threshold.",
    ]
    assert letters[0][1]["__dlq.errors.topic"] == world.topic
    assert [headers["__dlq.errors.delivery.count"] for _, headers in letters] == ["1", "2"]


def test_confluent_kafka_shares_records_between_members(world: World) -> None:
    from confluent_kafka import ShareConsumer

    world.produce(200)
    settings = {"bootstrap.servers": world.bootstrap, "group.id": world.group}
    members = [ShareConsumer(settings) for _ in range(2)]
    for member in members:
        member.subscribe([world.topic])
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(found) < 200 and time.monotonic() < deadline:
        for member in members:
            for message in member.poll(timeout=0.5) or []:
                assert message.error() is None
                found.append(message.value())
    assert sorted(found, key=int) == [str(number).encode() for number in range(200)]
    for member in members:
        member.close()
