"""Brokers, quotas, rules and `top` on the command line."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.tools.cli.test_consistency import COMMAND
from typer.testing import CliRunner

from barnabas.testing import Broker
from barnabas.tools.cli.app import app

runner = CliRunner()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"t": 3, "quiet": 1}) as running:
        yield running


def rows(broker: Broker, *words: str) -> list[dict[str, Any]]:
    done = runner.invoke(app, [*words, "-b", broker.bootstrap, "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_brokers_and_their_disks(broker: Broker) -> None:
    (one,) = rows(broker, "broker", "list")
    assert (one["address"], one["controller"], one["not_in_sync"]) == (broker.bootstrap, True, 0)
    assert one["leads"] == one["holds"]
    (disk,) = rows(broker, "broker", "log-dirs")
    assert (disk["broker"], disk["error"]) == (one["broker"], None)
    assert rows(broker, "broker", "log-dirs", str(one["broker"])) != []


def test_quotas_are_set_listed_and_removed(broker: Broker) -> None:
    at = ["-b", broker.bootstrap]
    done = runner.invoke(
        app, ["quota", "set", "producer_byte_rate=1000", "-u", "anna", "--client-id", "<default>", *at]
    )
    assert done.stdout == "altered quotas of user anna, client-id <default>: producer_byte_rate\n", done.output
    (quota,) = rows(broker, "quota", "list")
    assert (quota["user"], quota["client-id"], quota["value"]) == ("anna", "<default>", 1000.0)
    for words, status in (
        (["set", "nonsense=1", "-u", "anna"], 1),
        (["set", "producer_byte_rate=much", "-u", "anna"], 2),
        (["set", "producer_byte_rate=1"], 2),
        (["remove", "producer_byte_rate", "-u", "anna", "--client-id", "<default>"], 0),
    ):
        assert runner.invoke(app, ["quota", *words, *at]).exit_code == status
    assert rows(broker, "quota", "list") == []


def test_rules_are_added_listed_and_removed() -> None:
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Broker({"t": 1}, config=settings) as broker:
        at = ["-b", broker.bootstrap]
        add = [
            "acl",
            "add",
            "--principal",
            "User:anna",
            "-t",
            "or",
            "--prefixed",
            "--operation",
            "Read",
            "--operation",
            "describe-configs",
        ]
        assert runner.invoke(app, [*add, *at]).exit_code == 0
        assert runner.invoke(app, ["acl", "add", "--principal", "User:bob", "-G", "*", "--deny", *at]).exit_code == 0
        assert [(r["name"], r["operation"]) for r in rows(broker, "acl", "list", "-t", "orders")] == [
            ("or", "Read"),
            ("or", "DescribeConfigs"),
        ]
        assert [(r["principal"], r["permission"]) for r in rows(broker, "acl", "list", "--principal", "User:bob")] == [
            ("User:bob", "Deny")
        ]
        both = rows(broker, "acl", "list", "-t", "orders", "-G", "readers")
        assert {(r["resource"], r["name"]) for r in both} == {("Topic", "or"), ("Group", "*")}
        assert len(rows(broker, "acl", "remove", "-t", "or", "--prefixed", "--operation", "Read")) == 1
        assert len(rows(broker, "acl", "list")) == 2
        add = [
            "acl",
            "add",
            "--principal",
            "User:eve",
            "-t",
            "or",
            "--prefixed",
            "--cluster",
            "--operation",
            "Create",
            *at,
        ]
        assert runner.invoke(app, add).exit_code == 0
        removed = rows(broker, "acl", "remove", "--principal", "User:eve", "-t", "or", "--prefixed", "--cluster")
        assert {r["resource"] for r in removed} == {"Topic", "Cluster"}
        assert (
            runner.invoke(app, ["acl", "add", "--principal", "User:x", "-t", "t", "--operation", "Fly", *at]).exit_code
            == 2
        )
        assert runner.invoke(app, ["acl", "add", "--principal", "User:x", *at]).exit_code == 2


def test_a_broker_without_rules_says_so(broker: Broker) -> None:
    done = runner.invoke(app, ["acl", "list", "-b", broker.bootstrap])
    assert (done.exit_code, "SECURITY_DISABLED" in done.stderr) == (1, True)


def test_top_shows_what_moves(broker: Broker, tmp_path: Path) -> None:
    broker.produce("t", [b"x"] * 10)
    consumed = runner.invoke(app, ["consume", "t", "-G", "readers", "-c", "4", "-b", broker.bootstrap])
    assert consumed.exit_code == 0
    done = runner.invoke(app, ["top", "-i", "0.1", "-c", "2", "-b", broker.bootstrap])
    assert done.exit_code == 0, (done.output, done.exception)
    first, second = map(json.loads, done.stdout.splitlines())
    assert [topic["topic"] for topic in first["topics"]] == ["quiet", "t"]
    assert second["groups"] == [{"group": "readers", "type": "classic", "members": 0, "lag": 6}]
    assert second["brokers"][0]["controller"]
    assert second["brokers"][0]["free"] > 0
    assert first["topics"][1].keys() == {"topic", "partitions", "records_per_second", "bytes_per_second", "bytes"}
    assert first["time"] <= second["time"]


def test_top_on_a_terminal_has_a_clock_and_ends_with_q(broker: Broker) -> None:
    controller, terminal = pty.openpty()
    try:
        command = [*COMMAND, "top", "-i", "0.2", "-b", broker.bootstrap]
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "160", "LINES": "50"}
        process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
        try:
            shown = b""
            while b"q: quit" not in shown:
                assert select.select([controller], [], [], 60)[0], shown
                shown += os.read(controller, 65536)
            assert re.search(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", shown)
            assert b"records/s" in shown
            broker.produce("t", [b"x" * 1000] * 100)
            while b"kB/s" not in shown:
                assert select.select([controller], [], [], 60)[0], shown
                shown += os.read(controller, 65536)
            os.write(controller, b"q")
            drained = threading.Thread(target=_drain, args=(controller,), daemon=True)
            drained.start()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(terminal)
        os.close(controller)


def _drain(controller: int) -> None:
    with suppress(OSError):
        while os.read(controller, 65536):
            continue


def test_the_defaults_of_all_brokers_are_altered_without_a_name(broker: Broker) -> None:
    command = ["config", "alter", "broker", "--set", "log.retention.ms=86400000", "-b", broker.bootstrap]
    done = runner.invoke(app, [*command, "--dry-run"])
    assert (done.exit_code, done.stdout) == (0, "would alter the defaults of every broker: log.retention.ms\n")
    done = runner.invoke(app, [*command[:3], "1", *command[3:], "--dry-run"])
    assert (done.exit_code, done.stdout) == (0, "would alter broker 1: log.retention.ms\n")
