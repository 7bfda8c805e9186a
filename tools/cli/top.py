"""`barnabas top`: brokers, the busiest topics and the groups with the largest lag, refreshed."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import typer

from ...clients.admin import Admin
from ...protocol.special_timestamps import LATEST
from ...protocol.topic_partition import TopicPartition
from .broker import broker_rows
from .client_settings import DEFAULT_BOOTSTRAP, admin_of
from .session import (
    Bootstrap,
    Row,
    print_json,
    readable_size,
    rows_table,
    run,
)

app = typer.Typer(add_completion=False)


class ClusterSnapshot(NamedTuple):
    """The state of the cluster at a time (seconds, monotonic)."""

    at: float
    ends: Mapping[TopicPartition, int]
    sizes: Mapping[str, int]
    """The bytes of all replicas of each topic."""
    leader_sizes: Mapping[TopicPartition, int]
    """The bytes of the leader's replica of each partition."""
    brokers: list[Row]
    lags: list[Row]


@app.command()
def top(
    *,
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.1, help="Seconds between two refreshes.")] = 2,
    most: Annotated[int, typer.Option("--most", min=1, help="Number of topics and groups to show.")] = 15,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Number of refreshes.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show brokers, the topics with the highest rates and the groups with the largest lag.

    In a pipe, print JSON lines. On a terminal, the key q ends the command.
    """

    async def work() -> None:
        async with admin_of(bootstrap) as admin:
            await _watch(admin, interval, most, count)

    run(work())


async def _watch(admin: Admin, interval: float, most: int, count: int | None) -> None:
    before = await _look(admin)
    screen = _screen() if sys.stdout.isatty() else None
    ended = asyncio.Event()
    try:
        with _quit_key(ended) if screen is not None else nullcontext():
            while count != 0 and not ended.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(interval):
                        await ended.wait()
                        break
                now = await _look(admin)
                rows = _topic_rows(before, now)
                if screen is None:
                    print_json(
                        {"time": _clock(), "brokers": now.brokers, "topics": rows[:most], "groups": now.lags[:most]}
                    )
                    sys.stdout.flush()
                else:
                    screen.update(_page(now, rows, most), refresh=True)
                before, count = now, count and count - 1
    finally:
        if screen is not None:
            screen.stop()


def _clock() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


@contextmanager
def _quit_key(ended: asyncio.Event) -> Iterator[None]:
    """Set the event when the user presses q. Until the exit, the terminal delivers each key without Enter."""
    if not sys.stdin.isatty():
        yield
        return
    import termios  # not on Windows, where `isatty` of a pseudo terminal is the exception
    import tty

    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)

    def read() -> None:
        keys = os.read(descriptor, 64)
        if not keys or keys[:1] in (b"q", b"Q"):
            ended.set()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _screen() -> Any:
    from rich.live import Live

    live = Live(auto_refresh=False, screen=True)
    live.start()
    return live


def _page(now: ClusterSnapshot, topics: list[Row], most: int) -> Any:
    from rich.console import Group
    from rich.text import Text

    rate = sum(int(str(row["bytes/s"] or 0)) for row in topics)
    records = sum(int(str(row["records/s"])) for row in topics)
    shown = [_readable(row, "bytes", "bytes/s") for row in topics[:most]]
    return Group(
        Text(f"{_clock()}   {records:,} records/s   {readable_size(rate)}/s   q: quit"),
        rows_table([_readable(row, "bytes", "free") for row in now.brokers], "brokers"),
        rows_table(shown, f"topics ({len({tp.topic for tp in now.ends})} in total), by records per second"),
        rows_table(now.lags[:most], f"groups ({len(now.lags)} in all), by lag"),
    )


def _readable(row: Row, *names: str) -> Row:
    """Return a row with these numbers of bytes in units."""
    return {
        name: readable_size(value) if name in names and isinstance(value, int) else value for name, value in row.items()
    }


async def _look(admin: Admin) -> ClusterSnapshot:
    brokers = await broker_rows(admin)
    topics = [topic for topic in await admin.describe_topics() if not topic.is_internal]
    led = [TopicPartition(t.name, p.index) for t in topics for p in t.partitions.values() if p.leader_id >= 0]
    ends = await admin.list_offsets(dict.fromkeys(led, LATEST))
    at = time.monotonic()
    sizes: dict[str, int] = {}
    leader_sizes: dict[TopicPartition, int] = {}
    if any(row["bytes"] is not None for row in brokers):
        leaders = {TopicPartition(t.name, p.index): p.leader_id for t in topics for p in t.partitions.values()}
        for one in await admin.describe_log_dirs():
            for tp, size in one.sizes.items():
                sizes[tp.topic] = sizes.get(tp.topic, 0) + size
                if leaders.get(tp) == one.broker_id:
                    leader_sizes[tp] = size
    offsets = {tp: offset.offset for tp, offset in ends.items()}
    return ClusterSnapshot(at, offsets, sizes, leader_sizes, brokers, await _lag_rows(admin))


async def _lag_rows(admin: Admin) -> list[Row]:
    """Return the groups of all types by their lag."""
    behind: dict[str, int] = {}
    types: dict[str, str] = {}
    members: dict[str, set[str]] = {}
    for one in await admin.group_lag():
        behind[one.group_id] = behind.get(one.group_id, 0) + (one.lag or 0)
        types[one.group_id] = one.type
        members.setdefault(one.group_id, set()).update(one.members)
    order = sorted(behind, key=lambda group_id: (-behind[group_id], group_id))
    return [
        {"group": group_id, "type": types[group_id], "members": len(members[group_id]), "lag": behind[group_id]}
        for group_id in order
    ]


def _topic_rows(before: ClusterSnapshot, now: ClusterSnapshot) -> list[Row]:
    """Return topics by their rates per second since the previous refresh. New partitions count as 0.

    The rate in bytes is the growth of the leaders' logs; a log that retention has shortened counts as 0.
    """
    came: dict[str, int] = {}
    grown: dict[str, int] = {}
    partitions: dict[str, int] = {}
    for tp, end in now.ends.items():
        came[tp.topic] = came.get(tp.topic, 0) + end - before.ends.get(tp, end)
        size = now.leader_sizes.get(tp, 0)
        grown[tp.topic] = grown.get(tp.topic, 0) + max(0, size - before.leader_sizes.get(tp, size))
        partitions[tp.topic] = partitions.get(tp.topic, 0) + 1
    seconds = max(now.at - before.at, 0.001)
    order = sorted(came, key=lambda topic: (-came[topic], topic))
    return [
        {
            "topic": topic,
            "partitions": partitions[topic],
            "records/s": round(came[topic] / seconds),
            "bytes/s": round(grown[topic] / seconds),
            "bytes": now.sizes.get(topic),
        }
        for topic in order
    ]
