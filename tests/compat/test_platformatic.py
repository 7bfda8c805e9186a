"""@platformatic/kafka against the broker."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.compat.members import PATIENCE_S, SESSION_MS, MemberProcess, Traffic, wait_shared
from tests.compat.report import COLUMNS, ClientReport
from tests.node import install_packages, run_node
from tests.server_process import wait_until

PACKAGE = Path(__file__).parent / "platformatic"
# It has zstd from Node.js, and only 22.15 and later have that.
FEATURES = [name for name in COLUMNS if name != "zstd"]


@pytest.mark.node
@pytest.mark.timeout(180)
def test_platformatic(broker: str, compat: Callable[[str, str], ClientReport]) -> None:
    folder = install_packages(PACKAGE)
    version = json.loads((folder / "node_modules/@platformatic/kafka/package.json").read_text())["version"]
    with compat("@platformatic/kafka", version) as client:
        result = run_node(folder, "scenario.js", [broker], timeout=150)
        client.take_lines(result.stdout + result.stderr, FEATURES)


@pytest.mark.node
@pytest.mark.verify
@pytest.mark.timeout(240)
def test_members_share_and_commit(group_broker: str, tmp_path: Path) -> None:
    """Nothing is left out while a member comes and one goes. What is consumed once and no more is not asked of this
    client: across a rebalance it goes on with what it had fetched before.
    """
    group, topic = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("group", "topic"))
    traffic = Traffic(group_broker, topic)
    command = [
        "node",
        str(install_packages(PACKAGE) / "member.js"),
        group_broker,
        group,
        topic,
        "roundrobin",
        str(SESSION_MS),
    ]

    def wait_got(what: str, *members: MemberProcess) -> None:
        before = [len(each.got) for each in members]
        wait_until(
            lambda: all(len(each.got) > count for each, count in zip(members, before, strict=True)),
            timeout_s=PATIENCE_S,
            what=what,
        )

    try:
        with (
            MemberProcess(command, tmp_path / "first.log") as first,
            MemberProcess(command, tmp_path / "second.log") as second,
        ):
            wait_shared(first, second)
            wait_got("both consume", first, second)
            first.end()
            wait_shared(second)
            everything = traffic.stop()
            wait_until(
                lambda: (
                    first.got | second.got == everything and sum(traffic.committed(group).values()) == len(everything)
                ),
                timeout_s=PATIENCE_S,
                what="everything is consumed and committed",
            )
            second.end()
    finally:
        traffic.stop()
