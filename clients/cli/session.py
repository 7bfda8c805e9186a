"""What the commands share: how they are told the cluster, how they end, and how they print."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from ...protocol.errors import KafkaError
from ...protocol.properties import parse_properties
from ..security import PLAINTEXT, Security, security_of

T = TypeVar("T")

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="BARNABAS_BOOTSTRAP_SERVER",
        metavar="HOST:PORT,…",
        help="Brokers to ask first.",
    ),
]
DEFAULT_BOOTSTRAP = "localhost:9092"
command_config: ContextVar[Path | None] = ContextVar("command_config", default=None)
"""The client.properties of this command line."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Row = Mapping[str, object]


def security() -> Security:
    """What `--command-config` says about who both ends are; a file that cannot be read ends the command."""
    path = command_config.get()
    if path is None:
        return PLAINTEXT
    try:
        return security_of(parse_properties(path.read_text(encoding="iso-8859-1")))
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}", status=2)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the command's work; errors become one line on stderr and exit status 1, an interrupt 130."""
    return _finish(work, asyncio.new_event_loop)


def run_fast(work: Coroutine[Any, Any, T]) -> T:
    """`run` on uvloop where it is installed, for those who measure."""
    try:
        import uvloop
    except ImportError:
        return run(work)
    return _finish(work, uvloop.new_event_loop)


def _finish(work: Coroutine[Any, Any, T], new_loop: Callable[[], asyncio.AbstractEventLoop]) -> T:
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(work)
    except KafkaError as error:
        fail(str(error))
    except TimeoutError as error:
        fail(str(error) or "no answer in time")
    except ValueError as error:
        fail(str(error), status=2)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # The reader of our output has seen enough, as `head` does; what Python still holds must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


def fail(message: str, *, status: int = 1) -> NoReturn:
    """Say what went wrong and end."""
    print(f"barnabas: {message}", file=sys.stderr)
    raise typer.Exit(status)


def print_json(value: object) -> None:
    """One JSON document; easy to read on a terminal, on one line in a pipe."""
    print(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def print_rows(rows: Sequence[Row], *, as_json: bool = False, title: str | None = None) -> None:
    """Rows of the same columns: a table on a terminal, tab-separated in a pipe, or a JSON list."""
    if as_json:
        print_json([dict(row) for row in rows])
    elif not rows:
        print("nothing to show", file=sys.stderr)
    elif sys.stdout.isatty():
        _print_table(rows, title)
    else:
        for cells in [list(rows[0]), *(map(_text, row.values()) for row in rows)]:
            print("\t".join(cells))


def _print_table(rows: Sequence[Row], title: str | None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in rows[0]:
        numeric = all(isinstance(row[name], int | float) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{v:,}" if isinstance(v, int) and not isinstance(v, bool) else _text(v) for v in row.values()))
    Console().print(table)


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(_text, value)) or "-"
    return str(value)


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` options. Raises typer.BadParameter."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE")
        settings[key.strip()] = value
    return settings


def parse_time_ms(text: str) -> int:
    """Milliseconds since 1970, or a date as ISO 8601 writes it (local time unless it says). Raises ValueError."""
    if text.lstrip("-").isdecimal():
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ValueError(f"{text!r} is no time like 1700000000000 or 2024-05-01T12:30:00") from None


@contextmanager
def progress_bar(description: str) -> Iterator[Callable[[float], None]]:
    """A bar on stderr, if that is a terminal; call what this yields with the part that is done, 0 to 1."""
    if not sys.stderr.isatty():
        yield lambda part: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=1.0)
        yield lambda part: progress.update(task, completed=part)
