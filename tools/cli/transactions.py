"""`barnabas transactions`: list, describe, find-hanging, abort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from ...clients.admin import Admin
from ...clients.admin.transactions import OpenTransaction, TransactionDescription, TransactionListing
from ...clients.host import now_ms
from ...protocol.errors import KafkaError
from ...protocol.topic_partition import TopicPartition
from . import completion
from .client_settings import DEFAULT_BOOTSTRAP, admin_of
from .session import (
    Bootstrap,
    Json,
    Row,
    Yes,
    ask_first,
    fail,
    print_rows,
    run,
    say,
)

app = typer.Typer(
    help="List and describe transactions; find and abort hanging transactions.",
    no_args_is_help=True,
    add_completion=False,
)

MINUTE_MS = 60_000
LONGEST_MINUTES = 20
"""The longest transaction that Kafka permits by default, and five minutes."""

SomeTopics = Annotated[
    list[str] | None, typer.Argument(help="Topics; all by default.", autocompletion=completion.topics)
]
Partition = Annotated[int, typer.Argument(help="Partition number.")]


@app.command("list")
def list_transactions(
    *,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only transactions in this state, for example Ongoing.")
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", help="Only transactions of this producer id.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List the transactional ids of the cluster."""

    async def work() -> list[TransactionListing]:
        async with admin_of(bootstrap) as admin:
            return await admin.list_transactions(states=state or (), producer_ids=producer_id or ())

    rows: list[Row] = [
        {
            "transactional id": one.transactional_id,
            "coordinator": one.coordinator_id,
            "producer id": one.producer_id,
            "state": one.state,
        }
        for one in run(work())
    ]
    print_rows(rows, as_json=json)


@app.command()
def describe(
    names: Annotated[list[str], typer.Argument(help="The transactional ids.")],
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show the state and the producer of transactional ids, and the age and partitions of open transactions."""

    async def work() -> list[TransactionDescription]:
        async with admin_of(bootstrap) as admin:
            found = await admin.describe_transactions(names)
        described = []
        for answer in found.values():
            if isinstance(answer, KafkaError):
                raise answer
            described.append(answer)
        return described

    print_rows([_described(one) for one in run(work())], as_json=json)


def _described(one: TransactionDescription) -> Row:
    return {
        "transactional id": one.transactional_id,
        "state": one.state,
        "producer id": one.producer_id,
        "epoch": one.producer_epoch,
        "timeout ms": one.timeout_ms,
        "open ms": now_ms() - one.start_ms if one.start_ms >= 0 else None,
        "partitions": ", ".join(str(partition) for partition in one.partitions),
    }


@app.command("find-hanging")
def find_hanging(
    topics: SomeTopics = None,
    *,
    minutes: Annotated[
        int,
        typer.Option("--older-than", min=0, help="Only transactions without a new record for this number of minutes."),
    ] = LONGEST_MINUTES,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List transactions that are open on a partition, but unknown to their coordinator: they never end."""

    async def work() -> list[OpenTransaction]:
        async with admin_of(bootstrap) as admin:
            partitions = await _partitions(admin, topics)
            return await admin.find_hanging(partitions, older_than_ms=minutes * MINUTE_MS, now_ms=now_ms())

    print_rows([_open(one) for one in run(work())], as_json=json)


async def _partitions(admin: Admin, topics: Sequence[str] | None) -> list[TopicPartition]:
    names = topics or [one.name for one in await admin.describe_topics()]
    return [partition for name in names for partition in await admin.partitions_of(name)]


def _open(one: OpenTransaction) -> Row:
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "producer id": one.producer_id,
        "epoch": one.producer_epoch,
        "coordinator epoch": one.coordinator_epoch,
        "start offset": one.start_offset,
    }


@app.command()
def abort(
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=completion.topics)],
    partition: Partition,
    *,
    start_offset: Annotated[int, typer.Option("--start-offset", help="Start offset of the transaction.")],
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Abort a transaction on a partition that find-hanging has listed."""
    ask_first(f"abort the transaction on {topic}-{partition} that starts at offset {start_offset}?", yes=yes)

    async def work() -> OpenTransaction | None:
        async with admin_of(bootstrap) as admin:
            (place,) = await admin.partitions_of(topic, [partition])
            for one in await admin.open_transactions([place]):
                if one.start_offset == start_offset:
                    await admin.abort_transaction(one)
                    return one
            return None

    found = run(work())
    if found is None:
        fail(f"{topic}-{partition} has no transaction that starts at offset {start_offset}")
    say(f"aborted the transaction of producer {found.producer_id} on {topic}-{partition}")
