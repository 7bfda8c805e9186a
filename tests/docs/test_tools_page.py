"""The options in docs/reference/tools.md exist: those of Barnabas, and those of Kafka's scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
import pytest
from tests.docs.page import DOCS
from tests.kafka import TOOL_CLASSES, KafkaTools
from typer.main import get_command

from barnabas.tools.cli.app import app

PAGE = (DOCS / "reference" / "tools.md").read_text(encoding="utf-8")
WITH_SUBCOMMANDS = ("kafka-features", "kafka-transactions", "kafka-cluster", "kafka-metadata-quorum")


@dataclass(frozen=True)
class Cell:
    """The code in one cell of a table, and the header of its column."""

    header: str
    row: str
    code: tuple[str, ...]


def cells(column: int) -> Iterator[Cell]:
    """Yield the cells of one column of all tables."""
    header: list[str] = []
    for line in PAGE.splitlines():
        row = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not row:
            header = []
        elif not header:
            header = row
        elif not row[0].startswith("---"):
            code = tuple(text.replace("\\|", "|") for text in re.findall(r"`([^`]+)`", row[column]))
            yield Cell(header[column], row[0], code)


def options_in(words: list[str]) -> list[str]:
    return [word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]


def all_options(command: Any, context: click.Context) -> set[str]:
    """Return the options of a command, of a group those of all its commands."""
    found = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        found |= all_options(command.get_command(context, name), context)
    return found


def find_command(path: list[str]) -> tuple[Any, list[str], int]:
    """Return the command that the first words name, its path, and the number of these words."""
    command: Any = get_command(app)
    context = click.Context(command)
    used: list[str] = []
    for word in path:
        if not hasattr(command, "list_commands") or word not in command.list_commands(context):
            break
        command = command.get_command(context, word)
        used.append(word)
    return command, used, len(used)


def test_the_options_of_barnabas_exist() -> None:
    missing, count = [], 0
    for cell in cells(1):
        base = cell.header.split()[1:]
        before: list[str] = []
        for code in cell.code:
            words = code.removeprefix("barnabas ").split()
            candidates = (
                [[], base, before[:1], before] if code.startswith("barnabas ") else [base, before[:1], before, []]
            )
            found = max((find_command([*start, *words]) for start in candidates), key=lambda one: one[2])
            known = all_options(found[0], click.Context(found[0]))
            before = found[1] or before
            for option in options_in(words):
                count += 1
                if option not in known:
                    missing.append((cell.row, code, option))
    assert missing == []
    assert count > 80


def kafka_options() -> dict[tuple[str, ...], set[tuple[str, str]]]:
    """Return the options that the page names, with their rows, by script and subcommand (or by several scripts)."""
    wanted: dict[tuple[str, ...], set[tuple[str, str]]] = {}
    for cell in cells(2):
        tools = tuple(re.findall(r"kafka-[a-z-]+", cell.header))
        for code in cell.code:
            words = code.split()
            if words[0].startswith("kafka-"):
                tools, words = (words[0],), words[1:]
            key = tools
            if len(tools) == 1 and tools[0] in WITH_SUBCOMMANDS and words and not words[0].startswith("-"):
                key = (tools[0], words[0])
            if options := [option for option in options_in(words) if option.startswith("--")]:
                wanted.setdefault(key, set()).update((option, cell.row) for option in options)
    return wanted


def test_each_option_of_kafka_has_a_script() -> None:
    of_all_scripts = {("--bootstrap-server", "brokers"), ("--command-config", "security file")}
    for key, options in kafka_options().items():
        if key:
            assert key[0] in TOOL_CLASSES, key
        else:
            assert options == of_all_scripts | {("--command-property", "single setting")}


@pytest.mark.java
@pytest.mark.verify
@pytest.mark.timeout(300)
def test_the_options_of_kafkas_scripts_exist() -> None:
    tools, helps = KafkaTools(), dict[tuple[str, ...], str]()

    def help_of(*command: str) -> str:
        if command not in helps:
            done = tools.run(*command, "--help")
            helps[command] = done.stdout + done.stderr
        return helps[command]

    missing = []
    for key, options in kafka_options().items():
        commands = [key] if key and key[0] in WITH_SUBCOMMANDS else [(tool,) for tool in key]
        text = "".join(help_of(*command) for command in commands)
        missing += [(key, row, option) for option, row in options if commands and not re.search(rf"{option}\b", text)]
    assert missing == []
