"""The consumer protocol of groups (KIP-848) with the clients that speak it: Kafka's own for Java, and librdkafka.

Members come, go and crash while records flow; groups go over from the classic protocol and back again; topics are found
by a regular expression that the broker evaluates. Every record is consumed once throughout.
"""

import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.compat.members import (
    BUILDING,
    PATIENCE_S,
    SESSION_MS,
    MemberProcess,
    Plays,
    Traffic,
    check_each_once,
    crash,
    play_together,
    wait_shared,
)
from tests.compat.test_java import program
from tests.java import java_command
from tests.server_process import wait_until

pytestmark = pytest.mark.timeout(240)

HERE = Path(__file__).parent
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that has members of the consumer protocol heard of often, and waits for nobody."""
    with BarnabasServer(tmp_path_factory.mktemp("broker"), properties=SETTINGS) as server:
        yield server.bootstrap


class Scene:
    """A group that reads a topic which is being written to."""

    def __init__(self, broker: str, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.group, self.topic = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("group", "topic"))
        self.admin = AdminClient({"bootstrap.servers": broker})
        self.traffic = Traffic(broker, self.topic)
        self.members: list[MemberProcess] = []

    def join(self, client: str, strategy: str) -> MemberProcess:
        """Start a member: `java <version>` or `confluent`."""
        if client.startswith("java"):
            coordinates = f"org.apache.kafka:kafka-clients:{client.split()[1]}"
            with BUILDING:
                command = java_command("Member", program(("member", "poll"), coordinates, self.folder), [])
        else:
            command = [sys.executable, str(HERE / "python_member.py"), client]
        arguments = [self.broker, self.group, self.topic, strategy, str(SESSION_MS)]
        self.members.append(MemberProcess([*command, *arguments], self.folder / f"{len(self.members)}.log"))
        return self.members[-1]

    def share(self, *members: MemberProcess) -> None:
        """All partitions are shared by these members, and each of them gets records."""
        wait_shared(*members)
        before = [len(each.consumed) for each in members]
        wait_until(
            lambda: all(len(each.consumed) > count for each, count in zip(members, before, strict=True)),
            timeout_s=PATIENCE_S,
            what="the members consume",
        )

    def crash(self, member: MemberProcess) -> None:
        """End a member without a word."""
        crash(member, self.traffic, self.group)

    def kind(self) -> tuple[str, str]:
        """Type and state of the group as its members' tools show it."""
        found = self.admin.describe_consumer_groups([self.group])[self.group].result(30)
        return found.type.name, found.state.name

    def close(self) -> None:
        self.traffic.stop()
        for member in self.members:
            member.kill()


@pytest.fixture(scope="module")
def plays(broker: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plays]:
    def start(name: str, parameters: dict[str, Any], folder: Path) -> None:
        play = play_members if name == "test_members_come_and_go" else play_migration
        with closing(Scene(broker, folder)) as scene:
            play(scene, **parameters)

    names = "test_members_come_and_go", "test_a_group_goes_over_and_back"
    with play_together(request, names, start, tmp_path_factory) as started:
        yield started


CLIENTS = [pytest.param("java 4.4.0", marks=pytest.mark.java), "confluent"]


@pytest.mark.parametrize("client", CLIENTS)
def test_members_come_and_go(plays: Plays, request: pytest.FixtureRequest, client: str) -> None:
    plays[request.node.nodeid].result()


def play_members(scene: Scene, client: str) -> None:
    first = scene.join(client, "consumer")
    scene.share(first)
    second = scene.join(client, "consumer")
    scene.share(first, second)
    assert scene.kind() == ("CONSUMER", "STABLE")
    assert all(len(each) <= 3 for each in first.revoked), "it kept what it did not have to give up"
    scene.crash(second)
    scene.share(first)
    third = scene.join(client, "consumer")
    scene.share(first, third)
    first.leave()
    scene.share(third)
    third.leave()
    wait_until(lambda: scene.kind() == ("CONSUMER", "EMPTY"), timeout_s=PATIENCE_S, what="the group is empty")
    fourth = scene.join(client, "consumer")
    scene.share(fourth)
    check_each_once(scene.traffic.stop(), scene.members)
    fourth.leave()


@pytest.mark.parametrize(
    ("before", "strategy", "after"),
    [
        pytest.param("java 4.4.0", "CooperativeStickyAssignor", "java 4.4.0", marks=pytest.mark.java),
        pytest.param("java 3.9.1", "RangeAssignor", "confluent", marks=[pytest.mark.java, pytest.mark.verify]),
        # Not "cooperative-sticky": librdkafka's leader hands out user data, over which Kafka 4.1, too, refuses to
        # convert.
        pytest.param("confluent", "roundrobin", "confluent"),
        pytest.param("confluent", "range", "java 4.4.0", marks=[pytest.mark.java, pytest.mark.verify]),
    ],
)
def test_a_group_goes_over_and_back(
    plays: Plays, request: pytest.FixtureRequest, before: str, strategy: str, after: str
) -> None:
    plays[request.node.nodeid].result()


def play_migration(scene: Scene, before: str, strategy: str, after: str) -> None:
    """One member after the other is replaced by one that speaks the other protocol; the group never stops."""
    old = scene.join(before, strategy)
    scene.share(old)
    assert scene.kind() == ("CLASSIC", "STABLE")
    older = scene.join(before, strategy)
    scene.share(old, older)
    new = scene.join(after, "consumer")
    scene.share(old, older, new)
    assert scene.kind()[0] == "CONSUMER"
    old.leave()
    scene.share(older, new)
    scene.crash(older)
    scene.share(new)
    back = scene.join(before, strategy)
    scene.share(new, back)
    assert scene.kind()[0] == "CONSUMER"
    new.leave()
    scene.share(back)
    assert scene.kind() == ("CLASSIC", "STABLE")
    check_each_once(scene.traffic.stop(), scene.members)
    back.leave()


class PatternMember:
    """The Java program that subscribes by regular expression."""

    def __init__(self, classpath: list[Path], *arguments: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *java_command("PatternMember", classpath, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def wait_for(self, line: str) -> None:
        """Wait until that is the last it said."""
        wait_until(lambda: self.lines[-1:] == [line], timeout_s=PATIENCE_S, what=line)

    def leave(self) -> None:
        """Have it leave, and wait for its end."""
        self.process.communicate("\n", timeout=PATIENCE_S)


@pytest.mark.java
def test_the_broker_finds_topics_by_regular_expression(broker: str, tmp_path: Path) -> None:
    # Kafka's client 4.4.0 does not revoke the partitions of a deleted topic within a minute, with Apache Kafka neither.
    classpath = program(("pattern",), "org.apache.kafka:kafka-clients:4.1.1", tmp_path)
    admin = AdminClient({"bootstrap.servers": broker})
    stem = f"find-{uuid.uuid4().hex[:8]}"

    def create(name: str) -> None:
        admin.create_topics([NewTopic(f"{stem}.{name}", 1, 1)])[f"{stem}.{name}"].result(30)

    create("red")
    create("blue")
    create("other.red")
    member = PatternMember(classpath, broker, f"group-{stem}", rf"{stem}\.(?i:RED|[gb][a-z]+)")
    try:
        member.wait_for(f"assigned {stem}.blue-0 {stem}.red-0")
        create("green")
        member.wait_for(f"assigned {stem}.blue-0 {stem}.green-0 {stem}.red-0")
        admin.delete_topics([f"{stem}.blue"])[f"{stem}.blue"].result(30)
        member.wait_for(f"assigned {stem}.green-0 {stem}.red-0")
    finally:
        member.leave()
    refused = PatternMember(classpath, broker, f"group-{stem}", "back(?=reference)")
    try:
        refused.wait_for("invalid")
    finally:
        refused.leave()
