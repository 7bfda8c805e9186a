"""`barnabas reassign`: move replicas between brokers, in the JSON format of kafka-reassign-partitions."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ...clients.admin import PartitionReassignment, raise_first, spread_replicas
from ...clients.replication_throttle import remove_throttles, throttle_reassignment
from ...protocol.topic_partition import TopicPartition
from .client_settings import DEFAULT_BOOTSTRAP, admin_of
from .session import Bootstrap, Json, Row, Yes, ask_first, print_rows, run, say
from .topic_partitions import find_partitions

app = typer.Typer(help="Move replicas between brokers.", no_args_is_help=True, add_completion=False)

Plan = Annotated[Path, typer.Argument(metavar="FILE", help="Plan as JSON; - for standard input.")]
MAX_PLAN_BYTES = 64 << 20


@app.command()
def plan(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC[:0,1,5]…", help="Topics or partitions to move.")],
    *,
    brokers: Annotated[str, typer.Option("--brokers", metavar="ID,ID…", help="Brokers for the replicas.")],
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", min=1, help="New replication factor; unchanged by default."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print a plan that spreads the replicas over brokers and racks. Nothing is moved."""
    try:
        ids = sorted({int(one) for one in brokers.split(",")})
    except ValueError:
        raise typer.BadParameter(f"--brokers {brokers}: expected ids such as 1,2,3") from None

    async def work() -> dict[TopicPartition, list[int]]:
        async with admin_of(bootstrap) as admin:
            found = await find_partitions(admin, topics)
            live = {one.node_id: one.rack for one in (await admin.describe_cluster()).brokers}
            unknown = [one for one in ids if one not in live]
            if unknown:
                raise ValueError(f"broker {unknown[0]} is not live")
            factors = {one: replication_factor or len(info.replicas) for one, info in found.items()}
            return spread_replicas(factors, ids, live)

    print(plan_text(run(work())))


@app.command()
def execute(
    file: Plan,
    *,
    throttle: Annotated[
        int | None,
        typer.Option(
            "--throttle",
            metavar="BYTES",
            min=1,
            help="Limit of the replication traffic of each broker, in bytes per second.",
        ),
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Start the reassignments of a plan. `status` shows the progress."""
    wanted = read_plan(_text_of(file))
    ask_first(f"Move {len(wanted)} partitions?", yes=yes)

    async def work() -> str:
        async with admin_of(bootstrap) as admin:
            found = await find_partitions(admin, sorted({one.topic for one in wanted}))
            missing = [one for one in wanted if one not in found]
            if missing:
                raise ValueError(f"{missing[0].topic}-{missing[0].partition}: the partition does not exist")
            before = {one: list(found[one].replicas) for one in wanted}
            if throttle is not None:
                await throttle_reassignment(admin, before, wanted, throttle)
            raise_first(await admin.alter_partition_reassignments(wanted))
            return plan_text(before)

    previous = run(work())
    say(f"moving {len(wanted)} partitions. The plan that moves them back:")
    print(previous)


@app.command()
def status(*, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """Show the partitions whose reassignment is in progress."""

    async def work() -> list[Row]:
        async with admin_of(bootstrap) as admin:
            return [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "replicas": moving.replicas,
                    "adding": moving.adding_replicas,
                    "removing": moving.removing_replicas,
                }
                for one, moving in sorted((await admin.list_partition_reassignments()).items())
            ]

    print_rows(run(work()), as_json=json)


@app.command()
def cancel(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC[:0,1,5]…", help="Partitions; all that are moving by default.")
    ] = None,
    *,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Cancel reassignments. The partitions return to their former replicas."""
    ask_first("Cancel the reassignments?", yes=yes)

    async def work() -> int:
        async with admin_of(bootstrap) as admin:
            moving: Iterable[TopicPartition] = await admin.list_partition_reassignments()
            if topics:
                named = await find_partitions(admin, topics)
                moving = [one for one in moving if one in named]
            cancelled: dict[TopicPartition, Sequence[int] | None] = dict.fromkeys(moving)
            if cancelled:
                raise_first(await admin.alter_partition_reassignments(cancelled))
            return len(cancelled)

    say(f"cancelled {run(work())} reassignments")


@app.command()
def unthrottle(*, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Remove the throttles that `execute --throttle` has set, after all reassignments are complete."""

    async def work() -> dict[TopicPartition, PartitionReassignment]:
        async with admin_of(bootstrap) as admin:
            moving = await admin.list_partition_reassignments()
            if not moving:
                await remove_throttles(admin)
            return moving

    moving = run(work())
    if moving:
        raise typer.BadParameter(f"{len(moving)} partitions are still being reassigned")
    say("removed the throttles")


def plan_text(replicas: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return a plan in the format of kafka-reassign-partitions."""
    partitions = [
        {"topic": one.topic, "partition": one.partition, "replicas": list(ids)} for one, ids in sorted(replicas.items())
    ]
    return json_format.dumps({"version": 1, "partitions": partitions})


def read_plan(text: str) -> dict[TopicPartition, list[int]]:
    """Return the replicas of each partition of a plan. Raises typer.BadParameter."""
    try:
        document = json_format.loads(text)
        if document.get("version", 1) != 1:
            raise ValueError(f"unsupported version {document['version']}")
        found: dict[TopicPartition, list[int]] = {}
        for entry in document["partitions"]:
            topic_partition, replicas = (
                TopicPartition(_typed(entry["topic"], str), _typed(entry["partition"], int)),
                [_typed(one, int) for one in entry["replicas"]],
            )
            if topic_partition in found:
                raise ValueError(f"{topic_partition.topic}-{topic_partition.partition} is listed twice")
            if not replicas or len(set(replicas)) < len(replicas):
                raise ValueError(f"{topic_partition.topic}-{topic_partition.partition}: replicas {replicas}")
            found[topic_partition] = replicas
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise typer.BadParameter(
            f'invalid plan: {error}. Expected {{"version": 1, "partitions": '
            '[{"topic": "t", "partition": 0, "replicas": [1, 2]}]}'
        ) from None
    return found


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{value!r} is not of type {kind.__name__}")
    return value


def _text_of(file: Path) -> str:
    if str(file) == "-":
        return sys.stdin.read(MAX_PLAN_BYTES)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file}: {error}") from None
