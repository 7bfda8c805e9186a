"""`barnabas streams-group`, lag of groups of all types, and the examples of docs/streams-groups.md."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.clients.streams.streams_application import StreamsApplication
from tests.clients.streams.streams_brokers import bootstrap
from tests.tools.cli.running import Run, run_command

from barnabas.clients import Admin, NewTopic, Producer, raise_first
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.tools.cli import main

__all__ = ["bootstrap"]

PAGE = (Path(__file__).parents[3] / "docs" / "streams-groups.md").read_text()
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


async def prepare(bootstrap: str, topic: str) -> None:
    """Create a topic of two partitions with ten records each."""
    async with Admin(bootstrap) as admin:
        raise_first(await admin.create_topics([NewTopic(topic, 2, 1)]))
    async with Producer(bootstrap) as producer:
        await asyncio.gather(*[await producer.send(topic, b"%d" % n, partition=n % 2) for n in range(RECORDS)])


async def commit(bootstrap: str, group: str, offsets: dict[TopicPartition, int]) -> None:
    async with Admin(bootstrap) as admin:
        raise_first(await admin.alter_streams_group_offsets(group, offsets))


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"lines{next(_numbers)}"
    asyncio.run(prepare(bootstrap, name))
    return name


def test_describe_a_group_with_members(run: Run, bootstrap: str, topic: str) -> None:
    group = f"app-{topic}"
    repartition, changelog = f"{group}-words-repartition", f"{group}-counts-changelog"
    with StreamsApplication(bootstrap, group, topic):
        assert {"group": group, "state": "Stable"} in json.loads(run("streams-group", "list", "--json")[1])
        assert group in run("streams-group", "list", "--state", "stable")[1]
        assert group not in run("streams-group", "list", "--state", "empty")[1]
        assert group in run("group", "list", "--type", "streams")[1]
        assert group not in run("group", "list", "--type", "share")[1]

        _, out, _ = run("streams-group", "describe", group)
        assert out.splitlines()[0].split("\t") == ["group", "topic", "partition", "committed", "end", "lag"]
        assert "leader epoch" in run("streams-group", "describe", group, "--offsets", "--verbose")[1]
        rows = json.loads(run("streams-group", "describe", group, "--json")[1])
        # Without a committed offset the lag is the number of records, as in kafka-streams-groups.
        assert [(r["topic"], r["partition"], r["committed"], r["end"], r["lag"]) for r in rows] == [
            *[(repartition, p, None, 0, 0) for p in (0, 1)],
            *[(topic, p, None, 10, 10) for p in (0, 1)],
        ]
        (state,) = json.loads(run("streams-group", "describe", group, "--state", "--json")[1])
        assert (state["state"], state["members"], state["assignor"]) == ("Stable", 2, "sticky")
        assert state["group_epoch"] == state["target_assignment_epoch"] > 0
        members = json.loads(run("streams-group", "describe", group, "--members", "--json")[1])
        assert [(m["member"], m["process"]) for m in members] == [
            (f"{group}-thread-{n}", f"process-{n}") for n in (0, 1)
        ]
        assert sorted(task for m in members for task in m["active_tasks"]) == ["0_0", "0_1", "1_0", "1_1"]
        assert "target active tasks" not in run("streams-group", "describe", group, "--members")[1]
        topics = json.loads(run("streams-group", "describe", group, "--topology", "--json")[1])
        assert [(t["subtopology"], t["kind"], t["topic"], t["partitions"]) for t in topics] == [
            ("0", "source", topic, None),
            ("0", "repartition sink", repartition, None),
            ("1", "repartition source", repartition, 2),
            ("1", "changelog", changelog, 2),
        ]
        _, out, _ = run("group", "describe", group)
        assert out.startswith(f"group {group}  streams  Stable  assignor sticky  coordinator 127.0.0.1:")
        assert out.splitlines()[1].split("\t") == ["member", "instance", "client", "host", "tasks"]
        (described,) = json.loads(run("group", "describe", group, "--json")[1])
        assert (described["type"], described["state"]) == ("streams", "Stable")
        tasks = [task for member in described["members"] for task in member["tasks"]]
        assert sorted(tasks) == ["0_0", "0_1", "1_0", "1_1"]
        status, _, err = run("group", "remove-members", group)
        assert (status, err) == (2, f"barnabas: '{group}' is a streams group: use barnabas streams-group\n")
        for command in (
            ["reset-offsets", group, "-t", topic, "--to-latest", "--execute"],
            ["delete", group],
        ):
            status, _, err = run("streams-group", *command)
            assert (status, "NON_EMPTY_GROUP" in err) == (1, True), err
        status, _, err = run("streams-group", "delete-offsets", group, "-t", f"{topic}:0")
        assert (status, "GROUP_SUBSCRIBED_TO_TOPIC" in err) == (1, True), err
        (lag,) = [row for row in json.loads(run("group", "lag", "--json", "-t", topic)[1]) if row["group"] == group]
        assert lag == {
            "group": group,
            "type": "streams",
            "topic": topic,
            "partitions": 2,
            "members": 2,
            "lag": 0,
            "uncommitted": 2,
        }
        busiest = json.loads(run("top", "-c", "1", "-i", "0.1", "--most", "100")[1])["groups"]
        assert {"group": group, "type": "streams", "members": 2, "lag": 0} in busiest


def test_reset_and_delete_a_group_without_members(run: Run, bootstrap: str, topic: str) -> None:
    group = f"app-{topic}"
    repartition, changelog = f"{group}-words-repartition", f"{group}-counts-changelog"
    with StreamsApplication(bootstrap, group, topic, members=1):
        pass
    places = {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 6, TopicPartition(repartition, 0): 0}
    asyncio.run(commit(bootstrap, group, places))

    def committed() -> dict[tuple[str, int], int]:
        rows = json.loads(run("streams-group", "describe", group, "--json")[1])
        return {(row["topic"], row["partition"]): row["committed"] for row in rows}

    reset = ["streams-group", "reset-offsets", group]
    status, out, err = run(*reset, "--all-input-topics", "--to-earliest", "--json")
    assert (status, "add --execute" in err) == (0, True)
    steps = [(row["topic"], row["partition"], row["committed"], row["new_offset"]) for row in json.loads(out)]
    assert steps == [(topic, 0, 4, 0), (topic, 1, 6, 0)]
    assert committed() == {(topic, 0): 4, (topic, 1): 6, (repartition, 0): 0}
    assert run(*reset, "-t", f"{topic}:1", "--shift-by", "-2", "--execute")[::2] == (0, "")
    assert committed()[topic, 1] == 4
    status, _, err = run(*reset, "-t", repartition, "--to-latest")
    assert (status, "not an input topic" in err) == (2, True)
    status, _, err = run(*reset, "-t", topic, "--to-latest", "--delete-internal-topic", topic, "--execute")
    assert (status, "not an internal topic" in err) == (2, True)
    _, out, _ = run(*reset, "-t", topic, "--to-latest", "--delete-internal-topic", changelog, "--execute")
    assert out.endswith(f"deleted topic {changelog}\n")
    assert committed() == {(topic, 0): 10, (topic, 1): 10, (repartition, 0): 0}

    status, out, _ = run("streams-group", "delete-offsets", group, "-t", f"{topic}:0")
    assert (status, out) == (0, f"deleted offset {topic}-0\n")
    assert run("streams-group", "delete-offsets", group, "--all-input-topics")[1] == f"deleted offset {topic}-1\n"
    status, out, _ = run("streams-group", "delete", group, "--delete-all-internal-topics")
    assert (status, out) == (0, f"deleted topic {repartition}\ndeleted group {group}\n")
    for command in (["delete", group], ["describe", group], ["reset-offsets", group, "-t", topic, "--to-latest"]):
        status, _, err = run("streams-group", *command)
        assert (status, "GROUP_ID_NOT_FOUND" in err) == (1, True), err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe", "g", "--members", "--state"], "one of --offsets"),
        (["describe", "g", "--all-groups"], "expected either group ids or"),
        (["reset-offsets", "g", "--to-latest"], "--input-topic"),
        (["reset-offsets", "g", "-t", "t"], "--to-earliest"),
        (["reset-offsets", "g", "-t", "t", "--to-latest", "--dry-run", "--execute"], "exclude each other"),
        (["reset-offsets", "g", "-t", "t", "--to-latest", "--delete-all-internal-topics"], "require --execute"),
        (["delete-offsets", "g"], "--all-input-topics"),
        (["delete"], "--all-groups"),
    ],
)
def test_contradictory_options_are_refused(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert (main(["streams-group", *arguments]), message in capfd.readouterr().err) == (2, True)


@pytest.mark.verify
def test_the_examples_of_the_page(run: Run, bootstrap: str) -> None:
    python, shell = (re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) for kind in ("python", "sh"))
    (administration,) = (body.replace("localhost:9092", bootstrap) for body in python)
    showing, changing, settings = shell
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

    asyncio.run(prepare(bootstrap, "lines"))
    bash(settings)
    with StreamsApplication(bootstrap, "word-count", "lines"):
        out = bash(showing)
        scope: dict[str, Any] = {}
        exec(compile("async def example():\n" + textwrap.indent(administration, "    "), "page", "exec"), scope)
        asyncio.run(scope["example"]())
    assert "word-count\tStable" in out and "word-count-counts-changelog" in out
    asyncio.run(commit(bootstrap, "word-count", {TopicPartition("lines", p): 8 for p in (0, 1)}))
    out = bash(changing)
    assert "word-count\tlines\t0\t8\t3" in out
    assert out.endswith("deleted offset lines-1\ndeleted group word-count\n")
