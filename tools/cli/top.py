"""`barnabas top`: brokers, the busiest topics and the groups with the largest lag, refreshed."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
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
    brokers: list[Row]
    lags: list[Row]


@app.command()
def top(
    *,
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.1, help="Seconds between two refreshes.")] = 2,
    most: Annotated[int, typer.Option("--most", "-n", min=1, help="Number of topics and groups.")] = 15,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Number of refreshes.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show brokers, the topics with the highest rates and the groups with the largest lag.

    In a pipe, print JSON lines.
    """

    async def work() -> None:
        async with admin_of(bootstrap) as admin:
            await _watch(admin, interval, most, count)

    run(work())


async def _watch(admin: Admin, interval: float, most: int, count: int | None) -> None:
    before = await _look(admin)
    screen = _screen() if sys.stdout.isatty() else None
    try:
        while count != 0:
            await asyncio.sleep(interval)
            now = await _look(admin)
            topics = _topic_rows(before, now)[:most]
            if screen is None:
                print_json({"brokers": now.brokers, "topics": topics, "groups": now.lags[:most]})
                sys.stdout.flush()
            else:
                screen.update(_page(now, topics, most), refresh=True)
            before, count = now, count and count - 1
    finally:
        if screen is not None:
            screen.stop()


def _screen() -> Any:
    from rich.live import Live

    live = Live(auto_refresh=False, screen=True)
    live.start()
    return live


def _page(now: ClusterSnapshot, topics: list[Row], most: int) -> Any:
    from rich.console import Group

    shown = [{**row, "bytes": readable_size(int(str(row["bytes"] or 0)))} for row in topics]
    return Group(
        rows_table(now.brokers, "brokers"),
        rows_table(shown, f"topics ({len({tp.topic for tp in now.ends})} in total), by records per second"),
        rows_table(now.lags[:most], f"groups ({len(now.lags)} in all), by lag"),
    )


async def _look(admin: Admin) -> ClusterSnapshot:
    brokers = await broker_rows(admin)
    topics = [topic for topic in await admin.describe_topics() if not topic.is_internal]
    led = [TopicPartition(t.name, p.index) for t in topics for p in t.partitions.values() if p.leader_id >= 0]
    ends = await admin.list_offsets(dict.fromkeys(led, LATEST))
    at = time.monotonic()
    sizes: dict[str, int] = {}
    if any(row["bytes"] is not None for row in brokers):
        for one in await admin.describe_log_dirs():
            for tp, size in one.sizes.items():
                sizes[tp.topic] = sizes.get(tp.topic, 0) + size
    return ClusterSnapshot(
        at, {tp: offset.offset for tp, offset in ends.items()}, sizes, brokers, await _lag_rows(admin)
    )


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
    """Return topics by their rate since the previous refresh; a new topic has no rate."""
    came: dict[str, int] = {}
    partitions: dict[str, int] = {}
    for tp, end in now.ends.items():
        came[tp.topic] = came.get(tp.topic, 0) + end - before.ends.get(tp, end)
        partitions[tp.topic] = partitions.get(tp.topic, 0) + 1
    seconds = max(now.at - before.at, 0.001)
    order = sorted(came, key=lambda topic: (-came[topic], topic))
    return [
        {
            "topic": topic,
            "partitions": partitions[topic],
            "records/s": round(came[topic] / seconds),
            "bytes": now.sizes.get(topic),
        }
        for topic in order
    ]
