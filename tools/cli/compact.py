"""`barnabas compact`: compact a topic of a running broker, or a directory without a broker; show the state of logs."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from .client_settings import DEFAULT_BOOTSTRAP, parse_settings
from .compact_folder import compact_folder
from .local_broker import LocalBroker
from .session import (
    Bootstrap,
    Json,
    Row,
    fail,
    print_json,
    print_rows,
    run,
    say,
)

app = typer.Typer(add_completion=False)

_LOOK_SECONDS = 0.25
_WATCH_SECONDS = 1.0


@app.command("compact", no_args_is_help=True)
def compact(
    target: Annotated[str, typer.Argument(metavar="[TOPIC|FOLDER]", help="Topic, or directory of a partition.")] = "",
    *,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the results of a compaction without changing the log.")
    ] = False,
    ignore_lag: Annotated[
        bool, typer.Option("--ignore-lag", help="Include records younger than min.compaction.lag.ms.")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="Show the state of the log cleaner for each log.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh continuously.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="For a directory: topic setting; may be repeated."),
    ] = None,
    hash_name: Annotated[
        str, typer.Option("--hash", help="For a directory: hash algorithm for the keys, or exact.")
    ] = "MD5",
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="URL of the broker's health port, if the command cannot find it."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Compact a topic or the directory of a partition now: keep the last record of each key.

    A topic is compacted by its broker, which must run on this machine. The dirty ratio is ignored, and the active
    segment is included. A directory of Barnabas or Apache Kafka is compacted by this command; no broker may use it.
    """
    if "/" in target or (re.search(r"-\d+$", target) and Path(target).is_dir()):
        if status or watch or partition is not None:
            raise typer.BadParameter("--status, --watch and --partition require a topic, not a directory")
        compact_folder(Path(target), parse_settings(settings or ()), hash_name=hash_name, dry_run=dry_run, as_json=json)
        return
    broker = LocalBroker(url or run(LocalBroker.find(bootstrap)))
    if status or watch:
        _show(broker, target or None, watch=watch, as_json=json)
    elif not target:
        raise typer.BadParameter("expected a topic, a directory, or --status")
    else:
        wish = {"topic": target, "dry_run": str(dry_run).lower(), "ignore_lag": str(ignore_lag).lower()}
        if partition is not None:
            wish["partition"] = str(partition)
        answer = run(_compact(broker, wish, is_quiet=json or dry_run))
        if json:
            print_json(answer)
        elif dry_run:
            indexes = {size["partition"] for size in answer["sizes"]}
            print_rows([_wish_row(one) for one in answer["partitions"] if one["partition"] in indexes])
        else:
            print_rows(_done_rows(answer))


async def _compact(broker: LocalBroker, wish: Mapping[str, str], *, is_quiet: bool) -> Any:
    """Send the request, and show progress until the response arrives."""
    work = asyncio.create_task(asyncio.to_thread(broker.post, "/compaction", wish))
    if is_quiet or not sys.stderr.isatty():
        return await work
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), transient=True) as live:
        while not work.done():
            await asyncio.wait([work], timeout=_LOOK_SECONDS)
            facts = await asyncio.to_thread(broker.get, "/compaction", {"topic": wish["topic"]})
            live.update(_going_on(facts["partitions"]))
    return work.result()


def _show(broker: LocalBroker, topic: str | None, *, watch: bool, as_json: bool) -> None:
    query = {"topic": topic} if topic else {}
    if not watch:
        facts = broker.get("/compaction", query)
        if as_json:
            print_json(facts)
            return
        print_rows(_status_rows(facts["partitions"]))
        for one in facts["partitions"]:
            if one["uncleanable"]:
                say(f"{one['topic']}-{one['partition']} is skipped: {one['uncleanable']}")
        return
    try:
        _watch(broker, query, as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _watch(broker: LocalBroker, query: Mapping[str, str], *, as_json: bool) -> None:
    """Show the state repeatedly: in place on a terminal, line by line in a pipe."""
    if as_json or not sys.stdout.isatty():
        while True:
            print_json(broker.get("/compaction", query))
            sys.stdout.flush()
            time.sleep(_WATCH_SECONDS)
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console()) as live:
        while True:
            live.update(_going_on(broker.get("/compaction", query)["partitions"]))
            time.sleep(_LOOK_SECONDS)


def _going_on(partitions: Iterable[Mapping[str, Any]]) -> Any:
    """Build a table with a bar for each log that is being cleaned."""
    from rich import box
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for name in ("partition", "bytes", "dirty", "doing", "", "reclaimed"):
        table.add_column(name, justify="right" if name in ("bytes", "dirty", "reclaimed") else "left")
    for one in partitions:
        bar = ProgressBar(total=max(one["phase_total"], 1), completed=one["phase_done"], width=30)
        table.add_row(
            f"{one['topic']}-{one['partition']}",
            f"{one['bytes']:,}",
            f"{one['dirty_ratio']:.0%}",
            {"map": "learning keys", "clean": "rewriting"}.get(one["phase"], one["uncleanable"] or ""),
            bar if one["phase"] else "",
            f"{one['reclaimed_bytes']:,}",
        )
    return table


def _status_rows(partitions: Iterable[Mapping[str, Any]]) -> list[Row]:
    return [_status_row(one) for one in partitions]


def _status_row(one: Mapping[str, Any]) -> Row:
    last = one["last_pass"]
    return {
        "partition": f"{one['topic']}-{one['partition']}",
        "bytes": one["bytes"],
        "dirty": f"{one['dirty_ratio']:.1%}",
        "cleanable": one["cleanable_bytes"],
        "last run": None if last is None else _ago(time.time() - last["ended_ms"] / 1000),
        "reclaimed": one["reclaimed_bytes"],
        "collisions": None if last is None else f"{last['stats']['map_collision_rate']:.4f}",
        "state": "uncleanable" if one["uncleanable"] else one["phase"] or "idle",
    }


def _ago(seconds: float) -> str:
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} ago"
    return f"{max(seconds, 0):.0f} s ago"


def _wish_row(one: Mapping[str, Any]) -> Row:
    """Show the input of a pass: the dirty part, and the newest segment."""
    return {
        "topic": one["topic"],
        "partition": one["partition"],
        "bytes": one["bytes"],
        "clean bytes": one["clean_bytes"],
        "to clean": one["cleanable_bytes"] + one["active_bytes"],
        "records at most": one["log_end_offset"] - one["first_dirty_offset"],
        "state": one["uncleanable"] or one["phase"] or "idle",
    }


def _done_rows(answer: Mapping[str, Any]) -> list[Row]:
    sizes = answer["sizes"]
    if not sizes:
        fail("no log was compacted")
    name = answer["partitions"][0]["topic"]
    return [
        {
            "partition": f"{name}-{size['partition']}",
            "bytes before": size["bytes_before"],
            "bytes after": size["bytes_after"],
            "records read": sum(p["stats"]["messages_read"] for p in _passes(answer, name, size)),
            "records kept": sum(p["stats"]["messages_written"] for p in _passes(answer, name, size)[-1:]),
            "passes": len(_passes(answer, name, size)),
            "seconds": round(sum(p["seconds"] for p in _passes(answer, name, size)), 2),
        }
        for size in sizes
    ]


def _passes(answer: Mapping[str, Any], name: str, size: Mapping[str, Any]) -> list[Any]:
    return [one for one in answer["passes"] if one["topic_partition"] == f"{name}-{size['partition']}"]
