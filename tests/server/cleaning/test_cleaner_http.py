"""The cleaner over the broker's local port, and the command that speaks to it; a folder without a broker."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.cleaning.test_log_cleaner import COMPACT, TOPIC, churn, fill, state_of

from barnabas import Broker
from barnabas.tools.cli import main

GUARD = {"X-Barnabas": "test"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    config = {"health.port": "0", "log.cleaner.enable": "false"}
    with Broker(data_dir=tmp_path / "data", config=config) as running:
        running.create_topic(TOPIC, 2, COMPACT)
        asyncio.run(fill(running, churn(1500)))
        yield running


def ask(broker: Broker, method: str, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
    assert broker.server.health is not None
    url = broker.server.health.url.replace("/health", path)
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(["compact", *arguments])
    said = capsys.readouterr()
    return status, said.out + said.err


def test_a_page_in_a_browser_can_neither_look_nor_ask(broker: Broker) -> None:
    assert ask(broker, "POST", f"/compaction?topic={TOPIC}")[0] == 403
    assert ask(broker, "OPTIONS", f"/compaction?topic={TOPIC}", **GUARD)[0] == 404
    assert ask(broker, "GET", "/compaction", Host="evil.example:80")[0] == 403
    assert ask(broker, "POST", f"/compaction?topic={TOPIC}", Host="evil.example:80", **GUARD)[0] == 403
    assert ask(broker, "GET", "/health", Host="pod.example:80")[0] == 200


def test_compaction_and_what_there_is_to_see_of_it(broker: Broker) -> None:
    deadline = time.monotonic() + 60
    while True:
        status, before = ask(broker, "GET", "/compaction")
        assert status == 200
        dirty = before["partitions"][0]  # type: ignore[index]
        assert dirty["last_pass"] is None
        if dirty["dirty_ratio"] == 1.0:
            break
        assert time.monotonic() < deadline, "closed segments are not on disk"
    assert ask(broker, "POST", f"/compaction?topic={TOPIC}&dry_run=true", **GUARD)[1]["passes"] == []
    status, done = ask(broker, "POST", f"/compaction?topic={TOPIC}", **GUARD)
    assert status == 200 and len(done["passes"]) == 1  # type: ignore[arg-type]
    _, after = ask(broker, "GET", f"/compaction?topic={TOPIC}")
    clean = after["partitions"][0]  # type: ignore[index]
    assert clean["dirty_ratio"] == 0.0 and clean["reclaimed_bytes"] > 0
    metrics = ask(broker, "GET", "/metrics")[1]["metrics"]
    assert metrics["kafka.log:type=LogCleaner,name=cleaner-recopy-percent"] < 20  # type: ignore[index]


@pytest.mark.parametrize(
    ("query", "status"),
    [("", 400), ("topic=t&partition=x", 400), ("topic=none", 404), ("topic=t&partition=7", 404), ("topic=plain", 409)],
)
def test_what_cannot_be_done_is_said(broker: Broker, query: str, status: int) -> None:
    broker.create_topic("plain")
    assert ask(broker, "POST", f"/compaction?{query}", **GUARD)[0] == status


def test_the_command_finds_the_port_and_says_what_was_done(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("-b", broker.bootstrap)
    status, said = command(capsys, TOPIC, "--dry-run", *at)
    assert status == 0 and "to clean" in said
    status, said = command(capsys, TOPIC, "--partition", "0", "--json", *at)
    assert status == 0 and json.loads(said)["passes"][0]["stats"]["messages_written"] == 20
    status, said = command(capsys, "--status", *at)
    assert status == 0 and "0.0%" in said
    assert command(capsys, "nothing", *at)[0] == 1
    assert asyncio.run(state_of(broker)) == dict(churn(1500))


def test_a_folder_is_compacted_when_its_broker_is_gone(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data" / f"{TOPIC}-0"
    status, said = command(capsys, str(folder))
    assert status == 1 and "in use" in said
    broker.__exit__()
    try:
        files = sorted(path.name for path in folder.iterdir())
        status, said = command(capsys, str(folder), "--dry-run", "--json")
        assert (status, sorted(path.name for path in folder.iterdir())) == (0, files)
        expected = json.loads(said)
        assert expected["records_kept"] == 20
        status, said = command(capsys, str(folder), "--json")
        assert (status, json.loads(said)) == (0, expected | {"dry_run": False})
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
        assert f"{TOPIC} 0 1500" in (tmp_path / "data" / "cleaner-offset-checkpoint").read_text()
    finally:
        broker.__enter__()
    assert asyncio.run(state_of(broker)) == dict(churn(1500))


def test_a_copy_of_one_partition_is_enough(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "elsewhere" / f"{TOPIC}-0"
    copy.mkdir(parents=True)
    for path in (tmp_path / "data" / f"{TOPIC}-0").glob("*.log"):
        (copy / path.name).write_bytes(path.read_bytes())
    status, said = command(capsys, str(copy), "--json")
    assert (status, json.loads(said)["records_kept"]) == (0, 20)
    assert sorted(path.name for path in copy.parent.iterdir()) == [copy.name]
    assert command(capsys, str(copy.parent))[0] == 1
