"""`barnabas offsets`: the offsets of a topic's partitions, or the offsets at a time."""

from __future__ import annotations

from typing import Annotated

import typer

from ...clients.admin import Admin
from ...protocol.special_timestamps import EARLIEST, LATEST, MAX_TIMESTAMP
from ...protocol.topic_partition import TopicPartition
from . import completion
from .client_settings import DEFAULT_BOOTSTRAP, admin_of
from .session import (
    Bootstrap,
    Json,
    Row,
    parse_time_ms,
    print_rows,
    readable_time,
    run,
)

app = typer.Typer(add_completion=False)
_NAMED = {"beginning": EARLIEST, "end": LATEST, "max-timestamp": MAX_TIMESTAMP}


@app.command()
def offsets(
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=completion.topics)],
    *,
    at: Annotated[
        str | None,
        typer.Option("--offset", "--at", "-o", help="beginning, end, max-timestamp, or a time: ms or ISO 8601."),
    ] = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", help="Only this partition.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show the log start and end offset of each partition, or the first offset at or after a time."""

    async def work() -> list[Row]:
        async with admin_of(bootstrap) as admin:
            partitions = await admin.partitions_of(topic, partition)
            return await (_ends(admin, partitions) if at is None else _at(admin, partitions, at))

    print_rows(run(work()), as_json=json)


async def _ends(admin: Admin, partitions: list[TopicPartition]) -> list[Row]:
    first = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    end = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    return [
        {
            "partition": tp.partition,
            "beginning": first[tp].offset,
            "end": end[tp].offset,
            "records": end[tp].offset - first[tp].offset,
        }
        for tp in partitions
    ]


async def _at(admin: Admin, partitions: list[TopicPartition], at: str) -> list[Row]:
    timestamp = _NAMED[at] if at in _NAMED else parse_time_ms(at.removeprefix("@"))
    found = await admin.list_offsets(dict.fromkeys(partitions, timestamp))
    return [
        {
            "partition": tp.partition,
            "offset": found[tp].offset if found[tp].offset >= 0 else None,
            "timestamp": found[tp].timestamp if found[tp].timestamp >= 0 else None,
            "date": readable_time(found[tp].timestamp) if found[tp].timestamp >= 0 else None,
        }
        for tp in partitions
    ]
