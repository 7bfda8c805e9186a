"""`barnabas share-group`: list, describe, reset-offsets, delete-offsets and delete."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from ...clients.admin import Admin, GroupListing, Outcome, ShareGroupDescription, SharePartitionOffset, raise_first
from ...clients.admin.share_groups import SHARE
from ...clients.offset_reset import Reset, plan_share_reset, require_empty_share_group
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from . import completion
from .client_settings import DEFAULT_BOOTSTRAP, admin_of
from .group_options import Topics, named_partitions, report_outcomes
from .group_reset import (
    ByDuration,
    DryRun,
    Execute,
    ToCurrent,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
    report_preview,
    require_one_mode,
    reset_row,
    single_target,
)
from .session import Bootstrap, Json, Row, Yes, ask_first, print_rows, run

app = typer.Typer(
    help="List, describe and delete share groups; show and reset their start offsets.",
    no_args_is_help=True,
    add_completion=False,
)

Group = Annotated[str, typer.Argument(help="The share group.", autocompletion=completion.share_groups)]
Groups = Annotated[list[str] | None, typer.Argument(help="Share groups.", autocompletion=completion.share_groups)]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="All share groups.")]


class ShareStateFilter(StrEnum):
    """States of share groups."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@app.command("list")
def list_groups(
    *,
    state: Annotated[
        list[ShareStateFilter] | None,
        typer.Option("--state", case_sensitive=False, help="Only groups in this state; may be repeated."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List the share groups of the cluster."""

    async def work() -> list[GroupListing]:
        async with admin_of(bootstrap) as admin:
            return await admin.list_groups(states=state or (), types=[SHARE])

    print_rows([{"group": g.group_id, "state": g.state} for g in run(work())], as_json=json)


@app.command()
def describe(
    groups: Groups = None,
    *,
    all_groups: AllGroups = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Start offset and lag of each partition (the default).")
    ] = False,
    members: Annotated[bool, typer.Option("--members", help="The members and their assigned partitions.")] = False,
    state: Annotated[bool, typer.Option("--state", help="State, coordinator and number of members.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Add epochs to tables; JSON always has them.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show start offsets and lag, members, or the state of share groups; of all groups by default.

    barnabas share-group describe workers
    barnabas share-group describe workers --members
    """
    if offsets + members + state > 1:
        raise typer.BadParameter("expected at most one of --offsets, --members and --state")
    if groups and all_groups:
        raise typer.BadParameter("expected either group ids or --all-groups")

    async def work() -> list[Row]:
        async with admin_of(bootstrap) as admin:
            ids = groups or [g.group_id for g in await admin.list_groups(types=[SHARE])]
            if members or state:
                described = [_found(one) for one in (await admin.describe_share_groups(ids)).values()]
                return _member_rows(described) if members else _state_rows(described)
            return await _offset_rows(admin, ids)

    rows = run(work())
    hidden = () if json or verbose else _EPOCHS
    print_rows([{name: row[name] for name in row if name not in hidden} for row in rows], as_json=json)


@app.command()
def reset_offsets(
    group: Group,
    *,
    topic: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics in which the group has start offsets.")
    ] = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOffset = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    dry_run: DryRun = False,
    execute: Execute = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Reset the start offsets of a share group without members. Without --execute, print a preview.

    If the new start offset is lower than the current one, the records between them are delivered again.

    barnabas share-group reset-offsets workers --all-topics --to-earliest --execute
    barnabas share-group reset-offsets workers -t flights:0,1 --to-datetime 2024-05-01T12:00
    """
    require_one_mode(dry_run=dry_run, execute=execute)
    if bool(topic) == all_topics:
        raise typer.BadParameter("no topics given: use --topic (may be repeated) or --all-topics")
    target = single_target(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        to_datetime=to_datetime,
        by_duration=by_duration,
    )

    async def work() -> list[Reset]:
        async with admin_of(bootstrap) as admin:
            await require_empty_share_group(admin, group)
            partitions = None if topic is None else await named_partitions(admin, topic)
            steps = await plan_share_reset(admin, group, partitions, target)
            if not steps:
                raise ValueError(f"group {group!r} has no start offsets: select topics with --topic")
            if execute:
                raise_first(await admin.alter_share_group_offsets(group, {s.partition: s.after for s in steps}))
            return steps

    rows = [reset_row(group, step, before="start offset") for step in run(work())]
    print_rows(rows, as_json=json)
    report_preview(execute=execute)


@app.command()
def delete_offsets(
    group: Group,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="The topic; may be repeated.", autocompletion=completion.topics),
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Delete the start offsets of topics of a share group without members."""
    if not topic:
        raise typer.BadParameter("no topics given: use --topic")
    ask_first(f"delete the offsets of {group} in {', '.join(topic)}?", yes=yes)

    async def work() -> dict[str, Outcome]:
        async with admin_of(bootstrap) as admin:
            return await admin.delete_share_group_offsets(group, topic)

    report_outcomes("deleted offsets of", "topic", run(work()), as_json=json)


@app.command()
def delete(
    groups: Groups = None,
    *,
    all_groups: AllGroups = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Delete share groups without members, with their offsets."""
    if bool(groups) == all_groups:
        raise typer.BadParameter("expected either group ids or --all-groups")
    ask_first(f"delete {', '.join(groups or ['all share groups'])} and their offsets?", yes=yes)

    async def work() -> dict[str, Outcome]:
        async with admin_of(bootstrap) as admin:
            ids = groups or [g.group_id for g in await admin.list_groups(types=[SHARE])]
            return await admin.delete_share_groups(ids)

    report_outcomes("deleted", "group", run(work()), as_json=json)


_EPOCHS = ("leader epoch", "group epoch", "assignment epoch", "member epoch")


def _found(one: ShareGroupDescription | KafkaError) -> ShareGroupDescription:
    if isinstance(one, KafkaError):
        raise one
    return one


async def _offset_rows(admin: Admin, ids: Sequence[str]) -> list[Row]:
    """Return one row per partition.

    Raises KafkaError also for a group that does not exist, for which the request for offsets reports no error.
    """
    for described in (await admin.describe_share_groups(ids)).values():
        if isinstance(described, KafkaError) and described.code is ErrorCode.GROUP_ID_NOT_FOUND:
            raise described
    rows = []
    for group_id, offsets in (await admin.list_share_group_offsets(ids)).items():
        if isinstance(offsets, KafkaError):
            raise offsets
        rows += [_offset_row(group_id, tp, offsets[tp]) for tp in sorted(offsets)]
    return rows


def _offset_row(group_id: str, tp: TopicPartition, at: SharePartitionOffset) -> Row:
    return {
        "group": group_id,
        "topic": tp.topic,
        "partition": tp.partition,
        "leader epoch": at.leader_epoch,
        "start offset": at.start_offset,
        "lag": at.lag,
    }


def _state_rows(groups: Sequence[ShareGroupDescription]) -> list[Row]:
    return [
        {
            "group": group.group_id,
            "state": group.state,
            "coordinator": group.coordinator,
            "assignor": group.assignor or None,
            "group epoch": group.group_epoch,
            "assignment epoch": group.assignment_epoch,
            "members": len(group.members),
        }
        for group in groups
    ]


def _member_rows(groups: Sequence[ShareGroupDescription]) -> list[Row]:
    return [
        {
            "group": group.group_id,
            "member": m.member_id,
            "client": m.client_id,
            "host": m.host,
            "rack": m.rack_id,
            "member epoch": m.member_epoch,
            "partitions": [str(tp) for tp in m.assigned],
        }
        for group in groups
        for m in group.members
    ]
