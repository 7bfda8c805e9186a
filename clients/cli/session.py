"""What the commands share: how they are told the cluster, how they end, and how they print."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from ...protocol.errors import KafkaError
from .reasons import reason

T = TypeVar("T")

BOOTSTRAP_VARIABLE = "BARNABAS_BOOTSTRAP_SERVER"
Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar=BOOTSTRAP_VARIABLE,
        metavar="HOST:PORT,…",
        help="Brokers to ask first.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; nobody is asked in a pipe.")]
NOTHING = "nothing to show"
Row = Mapping[str, object]


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
    except OSError as error:
        fail(reason(error))


def fail(message: str, *, status: int = 1) -> NoReturn:
    """Say what went wrong and end."""
    print(f"barnabas: {message}", file=sys.stderr)
    raise typer.Exit(status)


def ask_first(question: str, *, yes: bool) -> None:
    """What cannot be undone is done after whoever sits at a terminal has said so."""
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True, err=True)


def print_json(value: object) -> None:
    """One JSON document; easy to read and coloured on a terminal, on one line in a pipe."""
    if not sys.stdout.isatty():
        print(json.dumps(value, ensure_ascii=False))
        return
    from rich.console import Console

    Console(soft_wrap=True).print_json(json.dumps(value), ensure_ascii=False)


def print_rows(rows: Sequence[Row], *, as_json: bool = False, title: str | None = None) -> None:
    """Rows of the same columns: a table on a terminal, tab-separated in a pipe, or a JSON list."""
    if as_json:
        print_json([dict(row) for row in rows])
    elif not rows:
        print(NOTHING, file=sys.stderr)
    elif sys.stdout.isatty():
        _print_table(rows, title)
    else:
        for cells in [list(rows[0]), *(map(_text, row.values()) for row in rows)]:
            print("\t".join(cells))


def _print_table(rows: Sequence[Row], title: str | None) -> None:
    from rich.console import Console

    Console().print(rows_table(rows, title))


def rows_table(rows: Sequence[Row], title: str | None = None) -> Any:
    """Rows of the same columns as a table of rich's."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in rows[0] if rows else ():
        numeric = all(isinstance(row[name], int | float) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{v:,}" if isinstance(v, int) and not isinstance(v, bool) else _text(v) for v in row.values()))
    return table


async def watch_rows(look: Callable[[], Awaitable[Sequence[Row]]], *, as_json: bool) -> NoReturn:
    """Show rows every second until interrupted: in one place of a terminal, one below the other in a pipe."""
    if as_json or not sys.stdout.isatty():
        while True:
            print_rows(await look(), as_json=as_json)
            sys.stdout.flush()
            await asyncio.sleep(1)
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            rows = await look()
            live.update(rows_table(rows) if rows else NOTHING, refresh=True)
            await asyncio.sleep(1)


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(_text, value)) or "-"
    return str(value)


def parse_time_ms(text: str) -> int:
    """Milliseconds since 1970, or a date as ISO 8601 writes it (local time unless it says). Raises ValueError."""
    if text.lstrip("-").isdecimal():
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ValueError(f"{text!r} is no time like 1700000000000 or 2024-05-01T12:30:00") from None


def readable_time(timestamp_ms: int) -> str:
    """A time of the log as a date of this machine's zone, to the millisecond; `-` for none.

    A number that is no date, as of a producer that counts microseconds, stays one.
    """
    if timestamp_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def readable_size(size: int) -> str:
    """Bytes in the unit that leaves up to three digits before the point."""
    number, units = float(size), ["B", "kB", "MB", "GB", "TB", "PB"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        del units[0]
    return f"{size} B" if units[0] == "B" else f"{number:.1f} {units[0]}"


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


@contextmanager
def record_counter(done: str) -> Iterator[Callable[[int], None]]:
    """How many records there were so far, on stderr, if that is a terminal; call what this yields with their number."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console

    began = time.monotonic()
    with Console(stderr=True).status(f"{done} 0 records") as status:
        yield lambda count: status.update(
            f"{done} {count:,} records, {count / max(time.monotonic() - began, 0.001):,.0f}/s"
        )
