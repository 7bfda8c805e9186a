"""`kafka-streams-groups.sh` of Kafka 4.4.0, option by option, prints the same on Barnabas and on Kafka 4.4.0, and
`barnabas streams-group` shows the same on both.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.compat.test_java import program
from tests.compat.test_kafka_streams import PATIENCE_S, App
from tests.compat.test_streams_groups import SETTINGS, STREAMS
from tests.compat.tool_session import ToolSession
from tests.java import java_command
from tests.kafka import KafkaServer
from tests.server_process import wait_until

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(900)]

GROUP = "words"
TOOL = "kafka-streams-groups"
RUNNING: Mapping[str, list[str]] = {
    "list": ["--list"],
    "list states": ["--list", "--state"],
    "list stable": ["--list", "--state", "Stable"],
    "list empty": ["--list", "--state", "Empty"],
    "describe": ["--describe", "--group", GROUP],
    "describe all": ["--describe", "--all-groups"],
    "describe verbose": ["--describe", "--group", GROUP, "--verbose"],
    "offsets": ["--describe", "--group", GROUP, "--offsets"],
    "members": ["--describe", "--group", GROUP, "--members"],
    "members verbose": ["--describe", "--group", GROUP, "--members", "--verbose"],
    "state": ["--describe", "--group", GROUP, "--state"],
    "state verbose": ["--describe", "--group", GROUP, "--state", "--verbose"],
    "topology": ["--describe", "--group", GROUP, "--topology"],
    "unknown group": ["--describe", "--group", "nothing"],
    "delete": ["--delete", "--group", GROUP],
    "reset": ["--reset-offsets", "--group", GROUP, "--input-topic", "lines", "--to-earliest", "--dry-run"],
    "delete offsets": ["--delete-offsets", "--group", GROUP, "--input-topic", "lines"],
}
STOPPED: Mapping[str, list[str]] = {
    "list": ["--list", "--state"],
    "describe": ["--describe", "--group", GROUP],
    "members": ["--describe", "--group", GROUP, "--members", "--verbose"],
    "state": ["--describe", "--group", GROUP, "--state", "--verbose"],
    "dry run": ["--reset-offsets", "--group", GROUP, "--input-topic", "lines", "--to-earliest", "--dry-run"],
    "all topics": ["--reset-offsets", "--group", GROUP, "--all-input-topics", "--to-latest", "--dry-run"],
    "partition": ["--reset-offsets", "--group", GROUP, "--input-topic", "lines:1", "--to-offset", "3", "--execute"],
    "shift": ["--reset-offsets", "--group", GROUP, "--input-topic", "lines:1", "--shift-by", "2", "--execute"],
    "current": ["--reset-offsets", "--group", GROUP, "--input-topic", "lines", "--to-current", "--execute"],
    "export": ["--reset-offsets", "--group", GROUP, "--input-topic", "lines", "--to-current", "--dry-run", "--export"],
    "after the resets": ["--describe", "--group", GROUP],
    "delete offsets": ["--delete-offsets", "--group", GROUP, "--input-topic", "lines:0"],
    "delete other offsets": ["--delete-offsets", "--group", GROUP, "--input-topic", "other"],
    "without an offset": ["--describe", "--group", GROUP, "--offsets", "--verbose"],
    "delete": ["--delete", "--group", GROUP],
    "afterwards": ["--list"],
    "delete again": ["--delete", "--group", GROUP],
    "reset nothing": ["--reset-offsets", "--group", GROUP, "--all-input-topics", "--to-earliest", "--dry-run"],
}
"""Commands on a group with and without members, in this order."""

OFFSETS = ("CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET", "OFFSET-LAG")
STATE = {
    "GROUP": "group",
    "COORDINATOR": "coordinator",
    "ASSIGNOR": "assignor",
    "STATE": "state",
    "GROUP-EPOCH": "group_epoch",
    "TARGET-ASSIGNMENT-EPOCH": "target_assignment_epoch",
    "#MEMBERS": "members",
}
MEMBER = {
    "GROUP": "group",
    "TOPOLOGY-EPOCH": "topology_epoch",
    "MEMBER-PROTOCOL": "protocol",
    "MEMBER-EPOCH": "member_epoch",
    "PROCESS": "process",
    "CLIENT-ID": "client",
}
TASKS = {
    "ACTIVE": "active_tasks",
    "STANDBY": "standby_tasks",
    "WARMUP": "warmup_tasks",
    "TARGET-ACTIVE": "target_active_tasks",
    "TARGET-STANDBY": "target_standby_tasks",
    "TARGET-WARMUP": "target_warmup_tasks",
}
"""Columns of Kafka's tool, and the keys of `barnabas streams-group --json`."""

IDENTIFIERS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

MEMBER_IDS = re.compile(r"(?<= )[A-Za-z0-9_-]{22}(?= )")


def normalized(text: str, port: int) -> list[str]:
    """The lines without what differs between two runs: ids, addresses, widths of columns, logging."""
    text = IDENTIFIERS.sub("ID", text).replace(f":{port}", ":PORT")
    text = re.sub(r"StreamThread-\d", "StreamThread", MEMBER_IDS.sub("MEMBER", text))
    text = re.sub(r"(localhost|127\.0\.0\.1):PORT +\(\d\)", "BROKER", text)
    lines = (re.sub(r" +", " ", line).strip() for line in text.splitlines())
    return sorted(line for line in lines if line and not line.startswith(("[20", "at ", "SLF4J")))


def outputs(bootstrap: str, tools: ToolSession, folder: Path) -> dict[str, list[str]]:
    """Count words with one instance, and run all commands while it runs and after it has closed."""
    folder.mkdir()
    port = int(bootstrap.rpartition(":")[2])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 2, 1) for name in ("lines", "counts", "other")]).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce("lines", "to be or not to be", partition=number % 2)
    assert producer.flush(30) == 0
    classpath = program(("streams",), STREAMS, folder)
    arguments = [bootstrap, GROUP, "lines", "counts", str(folder / "state"), "at_least_once", "streams"]
    app = App(java_command("WordCount", classpath, arguments), folder / "app.log")
    found: dict[str, list[str]] = {}

    def run(when: str, commands: Mapping[str, list[str]]) -> None:
        for name, args in commands.items():
            status, text = tools.run(TOOL, "--bootstrap-server", bootstrap, *args)
            found[f"{when}: {name}"] = [f"exit {status}", *normalized(text, port)]

    try:
        app.wait_running()
        wait_until(lambda: counts(bootstrap).get("be") == 40, timeout_s=PATIENCE_S, what="all words are counted")
        wait_until(lambda: is_committed(bootstrap), timeout_s=PATIENCE_S, what="all offsets are committed")
        run("running", RUNNING)
        compare_own_command(bootstrap, tools)
        app.close()
        wait_until(
            lambda: "Empty" in tools.run(TOOL, "--bootstrap-server", bootstrap, "--list", "--state")[1],
            timeout_s=PATIENCE_S,
            what="the group is empty",
        )
        compare_own_reset(bootstrap, tools)
        run("stopped", STOPPED)
    finally:
        app.kill()
    found["topics"] = sorted(admin.list_topics(timeout=30).topics)
    return found


def own(bootstrap: str, *args: str) -> list[dict[str, Any]]:
    """The rows of `barnabas streams-group`."""
    command = [sys.executable, "-m", "barnabas.tools.cli", "streams-group", *args, "--json", "-b", bootstrap]
    result: list[dict[str, Any]] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return result


def rows(tools: ToolSession, bootstrap: str, *args: str) -> list[dict[str, str]]:
    """The table that the tool prints, by the names of its columns; the last column may contain spaces."""
    status, text = tools.run(TOOL, "--bootstrap-server", bootstrap, *args)
    assert status == 0, text
    lines = [line for line in text.splitlines() if line.strip()]
    header = lines[0].replace("COORDINATOR (ID)", "COORDINATOR").split()
    table = (re.sub(r"(:\d+) +\(\d+\)", r"\1", line).split(None, len(header) - 1) for line in lines[1:])
    return [dict(zip(header, row, strict=True)) for row in table]


def tasks(assignments: str) -> dict[str, list[str]]:
    """The tasks by kind of `ACTIVE: 0:[0,1]; 1:[0]; STANDBY: …`."""
    found: dict[str, list[str]] = {}
    kind = ""
    for part in filter(None, (part.strip() for part in assignments.split(";"))):
        named = re.fullmatch(r"(?:([A-Z-]+): )?(\S+):\[([\d,]+)\]", part)
        assert named, assignments
        kind = named[1] or kind
        found.setdefault(kind, []).extend(f"{named[2]}_{index}" for index in named[3].split(","))
    return {kind: sorted(some) for kind, some in found.items()}


def compare_own_command(bootstrap: str, tools: ToolSession) -> None:
    """`barnabas streams-group` shows the same description of a group with members as Kafka's tool."""
    assert own(bootstrap, "list") == [
        {"group": row["GROUP"], "state": row["STATE"]} for row in rows(tools, bootstrap, "--list", "--state")
    ]
    group = ("--describe", "--group", GROUP)
    offsets = [
        (r["TOPIC"], int(r["PARTITION"]), *(int(r[name]) for name in OFFSETS))
        for r in rows(tools, bootstrap, *group, "--offsets", "--verbose")
    ]
    assert [
        (r["topic"], r["partition"], r["committed"], r["leader_epoch"], r["end"], r["lag"])
        for r in own(bootstrap, "describe", GROUP)
    ] == sorted(offsets)
    ((state,), (own_state,)) = (
        rows(tools, bootstrap, *group, "--state", "--verbose"),
        own(bootstrap, "describe", GROUP, "--state"),
    )
    for name, column in STATE.items():
        assert str(own_state[column]) == state[name], name
    members = {r["MEMBER"]: r for r in rows(tools, bootstrap, *group, "--members", "--verbose")}
    own_members = own(bootstrap, "describe", GROUP, "--members")
    assert [m["member"] for m in own_members] == sorted(members)
    for member in own_members:
        there = members[member["member"]]
        for name, column in MEMBER.items():
            assert str(member[column]) == there[name], name
        assert {kind: member[column] for kind, column in TASKS.items() if member[column]} == tasks(there["ASSIGNMENTS"])


def compare_own_reset(bootstrap: str, tools: ToolSession) -> None:
    """`barnabas streams-group reset-offsets` plans the same reset of a group without members as Kafka's tool."""
    for target in (["--to-earliest"], ["--to-latest"], ["--to-offset", "3"], ["--shift-by", "-2"], ["--to-current"]):
        args = ["--reset-offsets", "--group", GROUP, "--all-input-topics", *target, "--dry-run"]
        planned = [(r["TOPIC"], int(r["PARTITION"]), int(r["NEW-OFFSET"])) for r in rows(tools, bootstrap, *args)]
        assert planned, target
        steps = own(bootstrap, "reset-offsets", GROUP, "--all-input-topics", *target)
        assert [(r["topic"], r["partition"], r["new_offset"]) for r in steps] == sorted(planned), target


def counts(bootstrap: str) -> dict[str, int]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    reader.assign([TopicPartition("counts", partition, 0) for partition in range(2)])
    try:
        messages = reader.consume(1000, 3)
        return {message.key().decode(): int(message.value()) for message in messages if message.error() is None}
    finally:
        reader.close()


def is_committed(bootstrap: str) -> bool:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        places = [TopicPartition(name, index) for name in ("lines", "words-words-repartition") for index in range(2)]
        ends = [reader.get_watermark_offsets(place, 30)[1] for place in places]
        return [one.offset for one in reader.committed(places, 30)] == ends
    finally:
        reader.close()


def test_the_tool_prints_the_same_as_on_kafka(tmp_path: Path) -> None:
    settings = SETTINGS | {"group.streams.num.standby.replicas": "0"}
    with ToolSession("4.4.0") as tools:
        with BarnabasServer(tmp_path / "barnabas", properties=settings) as server:
            here = outputs(server.bootstrap, tools, tmp_path / "here")
        with KafkaServer(tmp_path / "kafka", version="4.4.0", properties=settings) as kafka:
            there = outputs(kafka.bootstrap, tools, tmp_path / "there")
    differences = {name: (here[name], there[name]) for name in there if here[name] != there[name]}
    assert differences == {}
