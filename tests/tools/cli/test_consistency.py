"""All commands together: short options, JSON, confirmations, Kafka's spellings, and the shape of errors."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command

from barnabas.tools.cli import session
from barnabas.tools.cli.app import app

COMMAND = [sys.executable, "-c", "import sys; from barnabas.tools.cli import main; sys.exit(main())"]
DESTRUCTIVE = ("delete", "remove", "abort", "unclean", "cancel", "downgrade")
"""Beginnings of the names of commands that cannot be undone."""
SPARK_BUT_AUDIT = "spark"
"""Jobs on Spark write tables, and only `audit` prints rows."""


def commands() -> Iterator[tuple[str, Any]]:
    """Yield each command with its whole name, groups of commands included."""

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        yield " ".join(path), command
        if hasattr(command, "list_commands"):
            for name in command.list_commands(None):
                yield from walk(command.get_command(None, name), (*path, name))

    return walk(get_command(app), ())


def options(command: Any) -> Iterator[tuple[set[str], set[str]]]:
    """Yield the short and the long spellings of each option."""
    for parameter in command.params:
        spellings = {one for one in (*parameter.opts, *parameter.secondary_opts) if one.startswith("-")}
        if spellings:
            short = {one for one in spellings if not one.startswith("--")}
            yield short, spellings - short


def test_a_short_option_has_one_meaning_in_all_commands() -> None:
    meanings: dict[str, dict[str, set[str]]] = defaultdict(dict)
    for path, command in commands():
        for shorts, longs in options(command):
            for short in shorts:
                meanings[short][path] = longs
    assert len(meanings) > 15
    different = {short: by_path for short, by_path in meanings.items() if not set.intersection(*by_path.values())}
    assert different == {}


def test_json_is_an_option_without_an_alternative() -> None:
    for path, command in commands():
        longs = set().union(*(longs for _, longs in options(command)))
        if not path.startswith(SPARK_BUT_AUDIT):
            assert "--output" not in longs, path
        if path.endswith(("list", "describe", "status")) or path.startswith("log-dirs list"):
            assert "--json" in longs, path


def test_commands_that_cannot_be_undone_ask() -> None:
    asking = 0
    for path, command in commands():
        if path.rpartition(" ")[2].startswith(DESTRUCTIVE):
            assert ({"-y"}, {"--yes"}) in list(options(command)), path
            asking += 1
    assert asking >= 14


def test_a_refused_confirmation_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: (_ for _ in ()).throw(typer.Abort))
    with pytest.raises(typer.Abort):
        session.ask_first("remove all members from g?", yes=False)
    session.ask_first("remove all members from g?", yes=True)


def test_kafkas_options_have_both_spellings() -> None:
    found = {path: [longs for _, longs in options(command)] for path, command in commands()}
    for path, spellings in (
        ("produce", {"--command-config", "--producer.config"}),
        ("produce", {"--command-property", "--producer-property"}),
        ("consume", {"--command-config", "--consumer.config"}),
        ("consume", {"--command-property", "--consumer-property"}),
        ("elections preferred", {"--command-config", "--admin.config"}),
        ("topic list", {"--command-config"}),
        ("topic list", {"--command-property"}),
        ("", {"--bootstrap-server"}),
    ):
        assert spellings in found[path], path


def test_keys_of_json_are_names() -> None:
    rows = [{"not in sync": 0, "records/s": 5, "configs": {"retention.ms": "1"}, "groups": [{"max lag": 1}]}]
    assert session.json_keys(rows) == [
        {"not_in_sync": 0, "records_per_second": 5, "configs": {"retention.ms": "1"}, "groups": [{"max_lag": 1}]}
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["topic", "create"], 2, "Missing argument 'names'. See barnabas topic create --help"),
        (["topic", "create", "t", "--nothing"], 2, "No such option: --nothing. See barnabas topic create --help"),
        (["topik"], 2, "No such command 'topik'"),
        (["topic", "create", "t", "--partitions", "x"], 2, "--partitions"),
        (["consume", "t", "-X", "no.such=1"], 2, "no.such"),
        (["topic", "list", "-b", "127.0.0.1:1"], 1, "connection refused"),
        (["start", "--nothing"], 2, "unrecognized arguments: --nothing. See barnabas start --help"),
        (["start", "--override", "num.partitions=x"], 2, "num.partitions"),
        (["coordinator"], 2, "required: --data. See barnabas coordinator --help"),
        (["group", "delete-offsets", "g"], 2, "no topics given: use --topic"),
    ],
)
def test_each_error_is_one_line_with_the_name_of_the_program(arguments: list[str], status: int, words: str) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == status
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert re.match(r"barnabas( start| coordinator)?: ", line)
    assert words in line
