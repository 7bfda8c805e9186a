"""Common options of `barnabas group`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from ...clients.admin import Admin, Outcome, ShareGroupDescription, StreamsGroupDescription
from ...protocol.topic_partition import TopicPartition
from . import completion
from .session import print_json, say, warn

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:P,P…]",
        help="Topic, or partitions of a topic; may be repeated.",
        autocompletion=completion.topics,
    ),
]


class StateFilter(StrEnum):
    """States of groups of all types."""

    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    NOT_READY = "NotReady"
    EMPTY = "Empty"
    DEAD = "Dead"


class TypeFilter(StrEnum):
    """Types of groups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


async def require_consumer_group(admin: Admin, group_id: str) -> None:
    """Raise ValueError for a share group or a streams group, with the name of its command."""
    described = (await admin.describe_groups_of_all_types([group_id]))[group_id]
    for kind, name in ((ShareGroupDescription, "share"), (StreamsGroupDescription, "streams")):
        if isinstance(described, kind):
            raise ValueError(f"{group_id!r} is a {name} group: use barnabas {name}-group")


async def named_partitions(admin: Admin, topics: Sequence[str]) -> list[TopicPartition]:
    """`TOPIC` or `TOPIC:0,1`. Raises ValueError, and KafkaError for a topic that does not exist."""
    found: set[TopicPartition] = set()
    for text in topics:
        name, _, some = text.partition(":")
        try:
            indexes = [int(index) for index in some.split(",")] if some else None
        except ValueError:
            raise ValueError(f"{text!r} is not TOPIC or TOPIC:0,1") from None
        found.update(await admin.partitions_of(name, indexes))
    return sorted(found)


def report_outcomes(
    verb: str, what: str, outcomes: dict[str, Outcome], *, as_json: bool, with_messages: bool = True
) -> None:
    """Print the outcome of each name. Raises typer.Exit with status 1 if there is an error.

    Without messages, which only repeat the name, an error is printed as its code.
    """
    if as_json:
        print_json([{what: name, "error": error.code.name if error else None} for name, error in outcomes.items()])
    elif not outcomes:
        typer.echo(f"{what} does not exist", err=True)
    for name, error in outcomes.items():
        if error is not None:
            warn(f"{what} {name}: {error if with_messages else error.code.name}")
        elif not as_json:
            say(f"{verb} {what} {name}")
    if any(error is not None for error in outcomes.values()):
        raise typer.Exit(1)
