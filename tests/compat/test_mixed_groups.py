"""Our consumer in one group with those of other projects: each leads in turn, and every record is consumed once."""

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.barnabas_server import BarnabasServer
from tests.compat.members import (
    BUILDING,
    SESSION_MS,
    MemberProcess,
    Plays,
    Traffic,
    check_each_once,
    play_together,
    wait_shared,
)
from tests.compat.test_groups import command_of
from tests.kafka import KafkaServer

pytestmark = pytest.mark.timeout(240)

HERE = Path(__file__).parent
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
}
JAVA_NAMES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
GROUPS = [
    pytest.param("range", ["aiokafka", "confluent"]),
    pytest.param("range", ["kafka-python", "confluent"]),
    pytest.param("roundrobin", ["aiokafka", "confluent"], marks=pytest.mark.verify),
    pytest.param("cooperative-sticky", ["confluent", "kafka-python"]),
    pytest.param("cooperative-sticky", ["java", "franz-go"], marks=[pytest.mark.java, pytest.mark.golang]),
    pytest.param("sticky", ["java", "java"], marks=[pytest.mark.java, pytest.mark.verify]),
    pytest.param("range", ["java", "kafka-python"], marks=[pytest.mark.java, pytest.mark.verify]),
    pytest.param("cooperative-sticky", ["barnabas", "barnabas"]),
    pytest.param("consumer", ["confluent", "java"], marks=pytest.mark.java),
]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Our broker, with short sessions allowed."""
    with BarnabasServer(tmp_path_factory.mktemp("broker"), properties=SETTINGS) as server:
        yield server.bootstrap


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Apache Kafka, set the same way."""
    with KafkaServer(tmp_path_factory.mktemp("kafka"), properties=SETTINGS) as server:
        yield server.bootstrap


def member_command(client: str, folder: Path) -> list[str]:
    if client == "barnabas":
        return [sys.executable, str(HERE / "barnabas_member.py")]
    with BUILDING:
        return command_of(client, "4.4.0" if client == "java" else "", folder)


def play(bootstrap: str, strategy: str, others: list[str], folder: Path) -> None:
    """Three members; each of the first two to come is the group's leader for a while, and leaves."""
    group, topic = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("group", "topic"))
    members: list[MemberProcess] = []

    def join(client: str) -> MemberProcess:
        name = JAVA_NAMES.get(strategy, strategy) if client == "java" else strategy
        arguments = [bootstrap, group, topic, name, str(SESSION_MS)]
        own = folder / f"member-{len(members)}"
        own.mkdir()
        members.append(MemberProcess([*member_command(client, own), *arguments], own / "stderr.log"))
        return members[-1]

    traffic = Traffic(bootstrap, topic)
    try:
        our_first = join("barnabas")
        wait_shared(our_first)
        one = join(others[0])
        wait_shared(our_first, one)
        two = join(others[1])
        wait_shared(our_first, one, two)
        our_first.leave()
        wait_shared(one, two)
        our_second = join("barnabas")
        wait_shared(one, two, our_second)
        one.leave()
        wait_shared(two, our_second)
        two.leave()
        wait_shared(our_second)
        check_each_once(traffic.stop(), members)
        our_second.leave()
    finally:
        traffic.stop()
        for member in members:
            member.kill()


@pytest.fixture(scope="module")
def plays(ours: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plays]:
    def start(_: str, parameters: dict[str, Any], folder: Path) -> None:
        play(ours, **parameters, folder=folder)

    with play_together(request, "test_members_of_several_projects_share", start, tmp_path_factory) as started:
        yield started


@pytest.mark.parametrize(("strategy", "others"), GROUPS)
def test_members_of_several_projects_share(
    plays: Plays, request: pytest.FixtureRequest, strategy: str, others: list[str]
) -> None:
    plays[request.node.nodeid].result()


@pytest.fixture(scope="module")
def plays_on_kafka(
    theirs: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Plays]:
    def start(_: str, parameters: dict[str, Any], folder: Path) -> None:
        play(theirs, **parameters, folder=folder)

    with play_together(request, "test_they_share_on_apache_kafka", start, tmp_path_factory) as started:
        yield started


@pytest.mark.java
@pytest.mark.verify
@pytest.mark.parametrize(
    ("strategy", "others"),
    [
        ("range", ["aiokafka", "java"]),
        ("cooperative-sticky", ["confluent", "java"]),
        ("sticky", ["java", "barnabas"]),
        ("consumer", ["confluent", "java"]),
    ],
)
def test_they_share_on_apache_kafka(
    plays_on_kafka: Plays, request: pytest.FixtureRequest, strategy: str, others: list[str]
) -> None:
    plays_on_kafka[request.node.nodeid].result()
