"""`barnabas share-group`, `barnabas consume --share-group`, and the examples of docs/share-groups.md."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.clients.share.share_brokers import bootstrap
from tests.tools.cli.running import Run, run_command

from barnabas.clients import Admin, NewTopic, Producer, ShareConsumer, raise_first
from barnabas.clients.admin import ConfigChange, ConfigResource
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.tools.cli import main

__all__ = ["bootstrap"]

PAGE = (Path(__file__).parents[3] / "docs" / "share-groups.md").read_text()
RECORDS = 20
_numbers = itertools.count(1)


@pytest.fixture
def run(bootstrap: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process; gives its status, output and errors."""
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", bootstrap)
    monkeypatch.setenv("COLUMNS", "120")

    def command(*arguments: str) -> tuple[int, str, str]:
        return run_command(capfd, list(arguments))

    return command


async def prepare(bootstrap: str, topic: str, groups: list[str]) -> None:
    """A topic of two partitions with ten records each, and groups that start with the first record."""
    async with Admin(bootstrap) as admin:
        raise_first(await admin.create_topics([NewTopic(topic, 2, 1)]))
        earliest = [ConfigChange("share.auto.offset.reset", "earliest")]
        raise_first(
            await admin.alter_configs({ConfigResource(ConfigResourceType.GROUP, group): earliest for group in groups})
        )
    async with Producer(bootstrap) as producer:
        await asyncio.gather(
            *[await producer.send(topic, b"%d" % number, partition=number % 2) for number in range(RECORDS)]
        )


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"shared{next(_numbers)}"
    asyncio.run(prepare(bootstrap, name, [f"group-{name}"]))
    return name


def wait_until(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.1)


def lag(run: Run, group: str) -> list[int | None]:
    status, out, _ = run("share-group", "describe", group, "--json")
    return [row["lag"] for row in json.loads(out)] if status == 0 else [None]


def test_consume_list_describe_reset_and_delete(run: Run, topic: str) -> None:
    group = f"group-{topic}"
    status, out, err = run("consume", topic, "--share-group", group, "-c", "8", "-f", "%p %s\\n")
    assert (status, err) == (0, "")
    assert len(out.splitlines()) == 8
    _, rest, _ = run("consume", topic, "--share-group", group, "-e", "-f", "%p %s\\n")
    assert sorted(out.splitlines() + rest.splitlines()) == sorted(f"{n % 2} {n}" for n in range(RECORDS))
    wait_until(lambda: lag(run, group) == [0, 0])

    assert {"group": group, "state": "Empty"} in json.loads(run("share-group", "list", "--json")[1])
    assert group in run("share-group", "list", "--state", "empty")[1]
    assert group not in run("share-group", "list", "--state", "stable")[1]
    _, out, _ = run("share-group", "describe", group)
    assert out.splitlines()[0].split("\t") == ["group", "topic", "partition", "start offset", "lag"]
    assert "leader epoch" in run("share-group", "describe", group, "--offsets", "--verbose")[1]
    (described,) = json.loads(run("share-group", "describe", group, "--state", "--json")[1])
    assert (described["state"], described["members"], described["assignor"]) == ("Empty", 0, "simple")
    assert json.loads(run("share-group", "describe", group, "--members", "--json")[1]) == []

    reset = ["share-group", "reset-offsets", group, "--all-topics", "--to-earliest", "--json"]
    status, out, err = run(*reset)
    assert status == 0
    steps = json.loads(out)
    assert [(row["topic"], row["partition"], row["new_offset"]) for row in steps] == [(topic, 0, 0), (topic, 1, 0)]
    # Kafka stores a start offset with a later state, so the coordinator may still report an earlier one.
    assert all(row["start_offset"] is None or 0 <= row["start_offset"] <= 10 for row in steps)
    assert "add --execute" in err
    assert lag(run, group) == [0, 0]
    assert run(*reset, "--execute")[0] == 0
    assert lag(run, group) == [10, 10]
    targets = {"--to-latest": 10, "--to-datetime=2001-01-01T00:00": 0, "--to-offset=4": 4, "--by-duration=P1D": 0}
    for target, offset in targets.items():
        _, out, _ = run("share-group", "reset-offsets", group, "-t", f"{topic}:1", target, "--json", "--dry-run")
        assert [(row["partition"], row["new_offset"]) for row in json.loads(out)] == [(1, offset)], target

    assert run("share-group", "delete-offsets", group, "-t", topic)[:2] == (0, f"deleted offsets of topic {topic}\n")
    assert run("share-group", "delete", group)[:2] == (0, f"deleted group {group}\n")
    status, _, err = run("share-group", "delete", group)
    assert (status, "GROUP_ID_NOT_FOUND" in err) == (1, True)
    status, _, err = run("share-group", "describe", group)
    assert (status, "GROUP_ID_NOT_FOUND" in err) == (1, True)


def test_a_group_with_members_keeps_its_offsets(run: Run, bootstrap: str, topic: str) -> None:
    group = f"group-{topic}"

    async def while_reading(command: list[str]) -> tuple[int, str, str]:
        async with ShareConsumer(bootstrap, group, [topic], client_id="worker") as consumer:
            await consumer.getone()
            return await asyncio.to_thread(run, *command)

    members = json.loads(asyncio.run(while_reading(["share-group", "describe", group, "--members", "--json"]))[1])
    assert [(m["client"], m["partitions"]) for m in members] == [("worker", [f"{topic}-0", f"{topic}-1"])]
    for command in (["reset-offsets", group, "--all-topics", "--to-latest", "--execute"], ["delete", group]):
        status, _, err = asyncio.run(while_reading(["share-group", *command]))
        assert (status, "NON_EMPTY_GROUP" in err) == (1, True), err


def test_group_commands_describe_share_groups_and_name_the_command_for_their_offsets(
    run: Run, bootstrap: str, topic: str
) -> None:
    group = f"group-{topic}"

    async def while_reading(*command: str) -> tuple[int, str, str]:
        async with ShareConsumer(bootstrap, group, [topic], client_id="worker") as consumer:
            await consumer.getone()
            return await asyncio.to_thread(run, *command)

    status, out, err = asyncio.run(while_reading("group", "describe", group))
    assert (status, err) == (0, "")
    heading, *rows = out.splitlines()
    assert heading.startswith(f"group {group}  share  Stable  assignor simple  coordinator 127.0.0.1:")
    assert [row.split("\t")[1::2] for row in rows] == [["client", "partitions"], ["worker", f"{topic}-0,{topic}-1"]]
    (described,) = json.loads(asyncio.run(while_reading("group", "describe", group, "--json"))[1])
    assert (described["type"], described["protocol"], described["state"]) == ("share", "share", "Stable")
    assert [len(member["partitions"]) for member in described["members"]] == [2]
    assert group in [one["group"] for one in json.loads(run("group", "describe", "--json")[1])]
    listed = json.loads(run("group", "list", "--json")[1])
    assert {"group": group, "type": "share", "state": "Empty", "protocol": "share"} in listed
    for command in (
        ["reset-offsets", group, "-t", topic, "--to-latest", "--execute"],
        ["delete-offsets", group, "-t", topic],
        ["remove-members", group],
    ):
        hint = f"barnabas: '{group}' is a share group: use barnabas share-group\n"
        assert run("group", *command) == (2, "", hint)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["consume", "t", "--share-group", "g", "-G", "h"], "exclude each other"),
        (["consume", "t", "--share-group", "g", "-o", "end"], "share.auto.offset.reset"),
        (["consume", "^t.*", "--share-group", "g"], "patterns"),
        (["share-group", "describe", "g", "--members", "--state"], "one of --offsets"),
        (["share-group", "reset-offsets", "g", "--to-latest"], "--topic"),
        (["share-group", "reset-offsets", "g", "-t", "t"], "--to-earliest"),
        (
            ["share-group", "reset-offsets", "g", "-t", "t", "--to-latest", "--dry-run", "--execute"],
            "exclude each other",
        ),
        (["share-group", "delete"], "--all-groups"),
    ],
)
def test_contradictory_options_are_refused(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert (main(arguments), message in capfd.readouterr().err) == (2, True)


def test_a_topic_that_does_not_exist_is_an_error(run: Run) -> None:
    status, _, err = run("consume", "missing", "--share-group", "nobody", "-e")
    assert (status, "UNKNOWN_TOPIC_OR_PARTITION" in err) == (1, True)


def test_sigterm_accepts_what_was_printed_and_releases_the_rest(run: Run, bootstrap: str, topic: str) -> None:
    group = f"group-{topic}"
    command = [sys.executable, "-m", "barnabas.tools.cli", "consume", topic, "--share-group", group, "-b", bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"}) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(RECORDS)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    assert sorted(int(line) for line in lines) == list(range(RECORDS))
    wait_until(lambda: lag(run, group) == [0, 0])
    described = json.loads(run("share-group", "describe", group, "--state", "--json")[1])
    assert [(one["state"], one["members"]) for one in described] == [("Empty", 0)]


@pytest.mark.verify
def test_the_examples_of_the_page(run: Run, bootstrap: str, tmp_path: Path) -> None:
    python, shell = (re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) for kind in ("python", "sh"))
    reading, explicit, administration = (body.replace("localhost:9092", bootstrap) for body in python)
    settings, commands = shell
    environment = os.environ | {
        "BARNABAS_BOOTSTRAP_SERVER": bootstrap,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }

    def bash(script: str) -> str:
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def execute(body: str) -> None:
        scope: dict[str, Any] = {}
        exec(compile("async def example():\n" + textwrap.indent(body, "    "), "share-groups.md", "exec"), scope)
        asyncio.run(scope["example"]())

    async def send(value: bytes) -> None:
        async with Producer(bootstrap) as producer:
            await (await producer.send("orders", value))

    bash(settings)
    asyncio.run(prepare(bootstrap, "orders", ["packers"]))
    asyncio.run(send(b"the last order"))
    execute(reading)
    execute(explicit)
    wait_until(lambda: lag(run, "packers") == [0, 0])
    execute(administration)
    asyncio.run(send(b"one more"))
    out = bash(commands)
    assert "one more" in out
    assert out.endswith("deleted offsets of topic orders\ndeleted group workers\n")
