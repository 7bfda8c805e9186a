"""Common parts of the commands: the cluster's address, exit statuses, and output."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from ...common.printable_text import printable, printable_json
from ...common.room_logger import room_logger
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
        help="Bootstrap servers.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation, which is required on a terminal only.")]
NOTHING = "no entries"
Row = Mapping[str, object]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the command; errors become one line on stderr and exit status 1, an interrupt 130."""
    return _finish(work, asyncio.new_event_loop)


def run_fast(work: Coroutine[Any, Any, T]) -> T:
    """`run` on uvloop if it is installed, for benchmarks."""
    try:
        import uvloop
    except ImportError:
        return run(work)
    return _finish(work, uvloop.new_event_loop)


class _Warnings(logging.Handler):
    """A log handler that prints the warnings of clients in the form of the errors of commands."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def _show_warnings() -> None:
    clients = room_logger("clients")
    if not any(isinstance(handler, _Warnings) for handler in clients.handlers):
        clients.addHandler(_Warnings(logging.WARNING))


def _finish(work: Coroutine[Any, Any, T], new_loop: Callable[[], asyncio.AbstractEventLoop]) -> T:
    _show_warnings()
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_until_terminated(work))
    except KafkaError as error:
        fail(str(error))
    except TimeoutError as error:
        fail(str(error) or "no response in time")
    except ValueError as error:
        fail(str(error), status=2)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # The reader of standard output has closed it, as `head` does; Python must not report its remaining buffer at
        # exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except OSError as error:
        fail(reason(error))


async def _until_terminated(work: Coroutine[Any, Any, T]) -> T:
    """Await the work; SIGTERM and SIGHUP cancel it, so that it commits, leaves its group and closes its connections.

    Raises typer.Exit with the status that a shell reports for the signal. An ignored signal, such as SIGHUP under
    nohup, remains ignored.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    received: list[int] = []

    def cancel(number: int) -> None:
        received.append(number)
        if task is not None:
            task.cancel()

    handled = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    if threading.current_thread() is not threading.main_thread():
        handled = []  # signals require the main thread; a command in another thread belongs to a larger program
    for number in handled:
        loop.add_signal_handler(number, cancel, number)
    try:
        return await work
    except asyncio.CancelledError:
        if not received:
            raise
        raise typer.Exit(128 + received[0]) from None
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def fail(message: str, *, status: int = 1) -> NoReturn:
    """Print an error, which may contain text of a server or a client, as one line and exit with that status."""
    warn(message)
    raise typer.Exit(status)


def say(text: str) -> None:
    """Print one line in which names of clients can neither begin another line nor control the terminal."""
    print(printable(text))


def warn(text: str) -> None:
    """`say` on standard error, with the name of the program first."""
    print(f"barnabas: {printable(text)}", file=sys.stderr)


def ask_first(question: str, *, yes: bool) -> None:
    """Ask the user at a terminal for confirmation of an irreversible operation."""
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True, err=True)


def json_keys(value: object) -> object:
    """Return a value whose keys are names in snake_case: a column `not in sync` is `not_in_sync` in JSON."""
    if isinstance(value, Mapping):
        return {_json_key(key): json_keys(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_keys(one) for one in value]
    return value


def _json_key(key: object) -> str:
    text = str(key)
    return f"{text.removesuffix('/s')}{'_per_second' if text.endswith('/s') else ''}".replace(" ", "_")


def print_json(value: object, *, own_keys: bool = True) -> None:
    """Print one JSON document; indented and coloured on a terminal, on one line in a pipe.

    The keys of its objects are printed in snake_case, unless they are names of a user (`own_keys` is False).
    """
    if own_keys:
        value = json_keys(value)
    if not sys.stdout.isatty():
        print(printable_json(json.dumps(value, ensure_ascii=False)))
        return
    from rich.console import Console
    from rich.highlighter import JSONHighlighter
    from rich.text import Text

    text = printable_json(json.dumps(value, ensure_ascii=False, indent=2))
    Console(soft_wrap=True).print(JSONHighlighter()(Text(text)))


def print_rows(rows: Sequence[Row], *, as_json: bool = False, title: str | None = None) -> None:
    """Print rows of the same columns: a table on a terminal, tab-separated in a pipe, or a JSON list."""
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
    """Return rows of the same columns as a table of rich."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in rows[0] if rows else ():
        numeric = all(isinstance(row[name], int | float) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        cells = (f"{v:,}" if isinstance(v, int) and not isinstance(v, bool) else _text(v) for v in row.values())
        table.add_row(*map(Text, cells))  # as text: a group may be named [/x], which is markup in a str
    return table


async def watch_rows(look: Callable[[], Awaitable[Sequence[Row]]], *, as_json: bool) -> NoReturn:
    """Show rows every second until interrupted: in place on a terminal, one below the other in a pipe."""
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
    return printable(str(value))


def parse_time_ms(text: str) -> int:
    """Parse milliseconds since 1970, or an ISO 8601 date (local time by default). Raises ValueError."""
    if text.lstrip("-").isdecimal():
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ValueError(
            f"{text!r}: invalid time. Expected a time such as 1700000000000 or 2024-05-01T12:30:00"
        ) from None


def readable_time(timestamp_ms: int) -> str:
    """Format a timestamp as a date in the local zone, to the millisecond; `-` for none.

    A number outside of the range of dates, such as microseconds of a producer, is printed as a number.
    """
    if timestamp_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def readable_size(size: int) -> str:
    """Format bytes in the unit with up to three digits before the point."""
    number, units = float(size), ["B", "kB", "MB", "GB", "TB", "PB"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        del units[0]
    return f"{size} B" if units[0] == "B" else f"{number:.1f} {units[0]}"


@contextmanager
def progress_bar(description: str) -> Iterator[Callable[[float], None]]:
    """Yield a function that draws a bar on stderr, if that is a terminal, for the completed part, 0 to 1."""
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
    """Yield a function that shows the number of records on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console

    began = time.monotonic()
    with Console(stderr=True).status(f"{done} 0 records") as status:
        yield lambda count: status.update(
            f"{done} {count:,} records, {count / max(time.monotonic() - began, 0.001):,.0f}/s"
        )
