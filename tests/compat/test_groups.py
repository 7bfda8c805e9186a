"""Groups of clients in Java, JavaScript, Go and Python: join, leave, crash and come back while records flow.

Every record is consumed once: what a member got and committed, nobody gets again, and nothing is left out.
"""

import sys
import uuid
from pathlib import Path

import pytest
from tests.compat.members import (
    PARTITIONS,
    PATIENCE_S,
    SESSION_MS,
    MemberProcess,
    Traffic,
    check_each_once,
    wait_shared,
)
from tests.compat.test_java import program
from tests.golang import built
from tests.java import java_command
from tests.node import installed
from tests.server_process import wait_until

pytestmark = pytest.mark.timeout(240)

HERE = Path(__file__).parent
JAVA = {
    "3.9.1": ("member", "poll"),
    "4.1.1": ("member", "poll"),
    "0.10.2.2": ("member", "poll_0_10"),
}


def command_of(client: str, version: str, folder: Path) -> list[str]:
    """What starts a member; arguments are added."""
    if client == "java":
        classpath = program(JAVA[version], f"org.apache.kafka:kafka-clients:{version}", folder)
        return java_command("Member", classpath, [])
    if client == "kafkajs":
        return ["node", str(installed(HERE / "kafkajs") / "member.js")]
    if client == "franz-go":
        return [str(built(HERE / "franzgo")), "member"]
    return [sys.executable, str(HERE / "python_member.py"), client]


CLIENTS = [
    pytest.param("java", "4.1.1", "CooperativeStickyAssignor", marks=pytest.mark.java),
    pytest.param("java", "4.1.1", "RangeAssignor", marks=[pytest.mark.java, pytest.mark.verify]),
    pytest.param("java", "3.9.1", "RangeAssignor", marks=pytest.mark.java),
    pytest.param("java", "3.9.1", "CooperativeStickyAssignor", marks=[pytest.mark.java, pytest.mark.verify]),
    pytest.param("java", "0.10.2.2", "RoundRobinAssignor", marks=pytest.mark.java),
    pytest.param("kafkajs", "", "RoundRobin", marks=pytest.mark.node),
    pytest.param("franz-go", "", "cooperative-sticky", marks=pytest.mark.golang),
    pytest.param("franz-go", "", "range", marks=[pytest.mark.golang, pytest.mark.verify]),
    pytest.param("confluent", "", "range"),
    pytest.param("confluent", "", "cooperative-sticky"),
    pytest.param("kafka-python", "", "range"),
    pytest.param("kafka-python", "", "cooperative-sticky"),
    pytest.param("aiokafka", "", "roundrobin"),
]


@pytest.mark.parametrize(("client", "version", "strategy"), CLIENTS)
def test_members_come_and_go(group_broker: str, client: str, version: str, strategy: str, tmp_path: Path) -> None:
    command = command_of(client, version, tmp_path)
    group, topic = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("group", "topic"))
    members: list[MemberProcess] = []

    def join() -> MemberProcess:
        arguments = [group_broker, group, topic, strategy, str(SESSION_MS)]
        members.append(MemberProcess([*command, *arguments], tmp_path / f"member-{len(members)}.log"))
        return members[-1]

    def wait_consuming(*some: MemberProcess) -> None:
        before = [len(each.consumed) for each in some]
        wait_until(
            lambda: all(len(each.consumed) > count for each, count in zip(some, before, strict=True)),
            timeout_s=PATIENCE_S,
            what="the members consume",
        )

    traffic = Traffic(group_broker, topic)
    try:
        first = join()
        wait_shared(first)
        wait_consuming(first)
        second = join()
        wait_shared(first, second)
        wait_consuming(first, second)
        if client not in ("kafkajs", "aiokafka"):
            check_revoked(first, is_cooperative="ooperative" in strategy)
        second.kill()
        # What it had committed without having said so counts.
        committed = traffic.committed(group)
        second.consumed += [place for place in second.uncommitted if place[1] < committed.get(place[0], 0)]
        wait_shared(first)
        third = join()
        wait_shared(first, third)
        wait_consuming(first, third)
        first.leave()
        wait_shared(third)
        wait_consuming(third)
        third.leave()
        fourth = join()
        wait_shared(fourth)
        check_each_once(traffic.stop(), members)
        fourth.leave()
    finally:
        traffic.stop()
        for member in members:
            member.kill()


def check_revoked(member: MemberProcess, *, is_cooperative: bool) -> None:
    """When another joins, a member gives up what that one gets; an eager one gives up everything first."""
    assert max(len(each) for each in member.revoked) == (PARTITIONS // 2 if is_cooperative else PARTITIONS)
