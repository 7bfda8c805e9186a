"""Groups of clients in Java, JavaScript, Go and Python: join, leave, crash and come back while records flow.

Every record is consumed once: what a member got and committed, nobody gets again, and nothing is left out.
"""

import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.barnabas_server import BarnabasServer
from tests.compat.go_clients import go_client
from tests.compat.members import (
    BUILDING,
    PARTITIONS,
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
from tests.node import install_packages
from tests.server_process import wait_until

pytestmark = pytest.mark.timeout(240)

HERE = Path(__file__).parent
JAVA = {
    "3.9.1": ("member", "poll"),
    "4.4.0": ("member", "poll"),
    "0.10.2.2": ("member", "poll_0_10"),
}

IN_GO = {"franz-go": "franzgo", "sarama": "sarama", "kafka-go": "kafkago"}


def command_of(client: str, version: str, folder: Path) -> list[str]:
    """What starts a member; arguments are added."""
    if client == "java":
        classpath = program(JAVA[version], f"org.apache.kafka:kafka-clients:{version}", folder)
        return java_command("Member", classpath, [])
    if client == "kafkajs":
        return ["node", str(install_packages(HERE / "kafkajs") / "member.js")]
    if client in IN_GO:
        return [str(go_client(IN_GO[client])), "member"]
    return [sys.executable, str(HERE / "python_member.py"), client]


CLIENTS = [
    pytest.param("java", "4.4.0", "CooperativeStickyAssignor", marks=pytest.mark.java),
    pytest.param("java", "4.4.0", "RangeAssignor", marks=[pytest.mark.java, pytest.mark.verify]),
    pytest.param("java", "3.9.1", "RangeAssignor", marks=[pytest.mark.java, pytest.mark.verify]),
    pytest.param("java", "3.9.1", "CooperativeStickyAssignor", marks=[pytest.mark.java, pytest.mark.verify]),
    pytest.param("java", "0.10.2.2", "RoundRobinAssignor", marks=pytest.mark.java),
    pytest.param("kafkajs", "", "RoundRobin", marks=pytest.mark.node),
    pytest.param("franz-go", "", "cooperative-sticky", marks=pytest.mark.golang),
    pytest.param("franz-go", "", "range", marks=[pytest.mark.golang, pytest.mark.verify]),
    pytest.param("sarama", "", "range", marks=[pytest.mark.golang, pytest.mark.verify]),
    pytest.param("kafka-go", "", "roundrobin", marks=[pytest.mark.golang, pytest.mark.verify]),
    pytest.param("confluent", "", "range"),
    pytest.param("confluent", "", "cooperative-sticky"),
    pytest.param("kafka-python", "", "range", marks=pytest.mark.verify),
    pytest.param("kafka-python", "", "cooperative-sticky"),
    pytest.param("aiokafka", "", "roundrobin"),
]


class Crew:
    """The members of one group, and records for them to consume."""

    def __init__(self, bootstrap: str, command: list[str], strategy: str, folder: Path) -> None:
        self.group, topic = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("group", "topic"))
        self.members: list[MemberProcess] = []
        self.traffic = Traffic(bootstrap, topic)
        self._command = [*command, bootstrap, self.group, topic, strategy, str(SESSION_MS)]
        self._folder = folder

    def join(self) -> MemberProcess:
        """Start another member."""
        self.members.append(MemberProcess(self._command, self._folder / f"member-{len(self.members)}.log"))
        return self.members[-1]

    def wait_consuming(self, *members: MemberProcess) -> None:
        """Each of them consumes something more."""
        before = [len(each.consumed) for each in members]

        def is_consumed() -> bool:
            for member in members:
                member.check()
            return all(len(each.consumed) > count for each, count in zip(members, before, strict=True))

        wait_until(is_consumed, timeout_s=PATIENCE_S, what="the members consume")

    def finish(self) -> None:
        """No more records: whoever comes last consumes what is left, and everything was consumed once."""
        last = self.join()
        wait_shared(last)
        check_each_once(self.traffic.stop(), self.members)
        last.leave()

    def close(self) -> None:
        """End everything, whatever state it is in."""
        self.traffic.stop()
        for member in self.members:
            member.kill()


@pytest.fixture(scope="module")
def plays(
    group_broker: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Plays]:
    def start(_: str, parameters: dict[str, Any], folder: Path) -> None:
        play(group_broker, **parameters, folder=folder)

    with play_together(request, "test_members_come_and_go", start, tmp_path_factory) as started:
        yield started


@pytest.mark.parametrize(("client", "version", "strategy"), CLIENTS)
def test_members_come_and_go(
    plays: Plays, request: pytest.FixtureRequest, client: str, version: str, strategy: str
) -> None:
    plays[request.node.nodeid].result()


def play(bootstrap: str, *, client: str, version: str, strategy: str, folder: Path) -> None:
    """Let members of one client join, crash and leave while records flow."""
    with BUILDING:
        command = command_of(client, version, folder)
    with closing(Crew(bootstrap, command, strategy, folder)) as crew:
        first = crew.join()
        wait_shared(first)
        crew.wait_consuming(first)
        second = crew.join()
        wait_shared(first, second)
        crew.wait_consuming(first, second)
        if client not in ("kafkajs", "aiokafka"):
            check_revoked(first, is_cooperative="ooperative" in strategy)
        crash(second, crew.traffic, crew.group)
        wait_shared(first)
        third = crew.join()
        wait_shared(first, third)
        crew.wait_consuming(first, third)
        first.leave()
        wait_shared(third)
        crew.wait_consuming(third)
        third.leave()
        crew.finish()


def test_members_and_offsets_outlive_a_killed_broker(tmp_path: Path) -> None:
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
    command = command_of("confluent", "", tmp_path)
    with (
        BarnabasServer(tmp_path / "broker", properties=settings) as server,
        closing(Crew(server.bootstrap, command, "range", tmp_path)) as crew,
    ):
        members = crew.join(), crew.join()
        wait_shared(*members)
        for _ in range(2):
            crew.wait_consuming(*members)
            server.kill()
            server.start()
            crew.wait_consuming(*members)
        for member in members:
            member.leave()
        crew.finish()


def check_revoked(member: MemberProcess, *, is_cooperative: bool) -> None:
    """When another joins, a member gives up what that one gets; an eager one gives up everything first."""
    assert max(len(each) for each in member.revoked) == (PARTITIONS // 2 if is_cooperative else PARTITIONS)
