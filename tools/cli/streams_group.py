"""`barnabas streams-group`: list, describe, reset-offsets, delete-offsets and delete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from ...clients.admin import Admin, GroupListing, Outcome, StreamsGroupDescription, StreamsTask, raise_first
from ...clients.admin.streams_groups import STREAMS
from ...clients.offset_reset import Reset, plan_streams_reset, require_inactive_streams_group
from ...protocol.errors import KafkaError
from ...protocol.special_timestamps import EARLIEST
from ...protocol.topic_partition import TopicPartition
from . import completion
from .client_settings import DEFAULT_BOOTSTRAP, admin_of
from .group_options import named_partitions, report_outcomes
from .group_reset import (
    ByDuration,
    DryRun,
    Execute,
    ShiftBy,
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
from .session import Bootstrap, Json, Row, Yes, ask_first, print_rows, run, say

app = typer.Typer(
    help="List, describe and delete streams groups; show and reset their offsets.",
    no_args_is_help=True,
    add_completion=False,
)

Group = Annotated[str, typer.Argument(help="The streams group.", autocompletion=completion.streams_groups)]
Groups = Annotated[list[str] | None, typer.Argument(help="Streams groups.", autocompletion=completion.streams_groups)]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="All streams groups.")]
InputTopics = Annotated[
    list[str] | None,
    typer.Option(
        "--input-topic",
        "--topic",
        "-t",
        metavar="TOPIC[:P,P…]",
        help="Input topic, or partitions of an input topic; may be repeated.",
        autocompletion=completion.topics,
    ),
]
AllInputTopics = Annotated[
    bool, typer.Option("--all-input-topics", help="All input topics in which the group has committed offsets.")
]
AllInternalTopics = Annotated[
    bool,
    typer.Option("--delete-all-internal-topics", help="Also delete the repartition and changelog topics of the group."),
]


class StreamsStateFilter(StrEnum):
    """States of streams groups."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@app.command("list")
def list_groups(
    *,
    state: Annotated[
        list[StreamsStateFilter] | None,
        typer.Option("--state", case_sensitive=False, help="Only groups in this state; may be repeated."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List the streams groups of the cluster."""

    async def work() -> list[GroupListing]:
        async with admin_of(bootstrap) as admin:
            return await admin.list_groups(states=state or (), types=[STREAMS])

    print_rows([{"group": g.group_id, "state": g.state} for g in run(work())], as_json=json)


@app.command()
def describe(
    groups: Groups = None,
    *,
    all_groups: AllGroups = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Committed offset and lag of each partition (the default).")
    ] = False,
    members: Annotated[bool, typer.Option("--members", help="The members and their tasks.")] = False,
    state: Annotated[bool, typer.Option("--state", help="State, coordinator and number of members.")] = False,
    topology: Annotated[bool, typer.Option("--topology", help="The topics of each subtopology.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Add epochs and target tasks to tables; JSON always has them.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show offsets and lag, members, state or topology of streams groups; of all groups by default.

    barnabas streams-group describe word-count
    barnabas streams-group describe word-count --members --verbose
    """
    if offsets + members + state + topology > 1:
        raise typer.BadParameter("expected at most one of --offsets, --members, --state and --topology")
    if groups and all_groups:
        raise typer.BadParameter("expected either group ids or --all-groups")

    async def work() -> list[Row]:
        async with admin_of(bootstrap) as admin:
            ids = groups or [g.group_id for g in await admin.list_groups(types=[STREAMS])]
            described = await _describe(admin, ids)
            if members or state or topology:
                rows_of = _member_rows if members else _state_rows if state else _topology_rows
                return rows_of(described)
            return await _offset_rows(admin, described)

    rows = run(work())
    hidden = () if json or verbose else _VERBOSE
    print_rows([{name: row[name] for name in row if name not in hidden} for row in rows], as_json=json)


@app.command()
def reset_offsets(
    group: Group,
    *,
    input_topic: InputTopics = None,
    all_input_topics: AllInputTopics = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOffset = None,
    shift_by: ShiftBy = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    delete_internal_topic: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-internal-topic", help="With --execute, also delete this internal topic; may be repeated."
        ),
    ] = None,
    delete_all_internal_topics: AllInternalTopics = False,
    dry_run: DryRun = False,
    execute: Execute = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Reset the committed offsets of input topics of a streams group without members. Without --execute,
    print a preview.

    The repartition and changelog topics keep their records unless they are deleted, too.

    barnabas streams-group reset-offsets word-count --all-input-topics --to-earliest --execute
    barnabas streams-group reset-offsets word-count -t lines:0,1 --to-datetime 2024-05-01T12:00
    """
    require_one_mode(dry_run=dry_run, execute=execute)
    if bool(input_topic) == all_input_topics:
        raise typer.BadParameter("no input topics given: use --input-topic (may be repeated) or --all-input-topics")
    if delete_internal_topic and delete_all_internal_topics:
        raise typer.BadParameter("--delete-internal-topic and --delete-all-internal-topics exclude each other")
    if not execute and (delete_internal_topic or delete_all_internal_topics):
        raise typer.BadParameter("--delete-internal-topic and --delete-all-internal-topics require --execute")
    target = single_target(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        shift_by=shift_by,
        to_datetime=to_datetime,
        by_duration=by_duration,
    )

    async def work() -> tuple[list[Reset], list[str]]:
        async with admin_of(bootstrap) as admin:
            (described,) = await _describe(admin, [group])
            require_inactive_streams_group(described)
            internal = set(described.internal_topics())
            unknown = set(delete_internal_topic or ()) - internal
            if unknown:
                raise ValueError(f"{', '.join(sorted(unknown))}: not an internal topic of group {group!r}")
            partitions = None if input_topic is None else await named_partitions(admin, input_topic)
            steps = await plan_streams_reset(admin, described, partitions, target)
            if not steps:
                raise ValueError(f"group {group!r} has no committed offsets: select topics with --input-topic")
            deleted: list[str] = []
            if execute:
                changes = {step.partition: step.after for step in steps}
                raise_first(await admin.alter_streams_group_offsets(group, changes))
                unwanted = internal if delete_all_internal_topics else delete_internal_topic or ()
                deleted = await _delete_topics(admin, unwanted)
            return steps, deleted

    steps, deleted = run(work())
    print_rows([reset_row(group, step) for step in steps], as_json=json)
    for name in deleted if not json else ():
        say(f"deleted topic {name}")
    report_preview(execute=execute)


@app.command()
def delete_offsets(
    group: Group,
    *,
    input_topic: InputTopics = None,
    all_input_topics: AllInputTopics = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Delete committed offsets of input topics of a streams group without members."""
    if bool(input_topic) == all_input_topics:
        raise typer.BadParameter("no input topics given: use --input-topic (may be repeated) or --all-input-topics")
    ask_first(f"delete the offsets of {group} in {', '.join(input_topic or ['all input topics'])}?", yes=yes)

    async def work() -> dict[str, Outcome]:
        async with admin_of(bootstrap) as admin:
            if input_topic is None:
                (described,) = await _describe(admin, [group])
                inputs, committed = set(described.input_topics()), await _committed(admin, group)
                partitions = sorted(tp for tp in committed if tp.topic in inputs)
            else:
                partitions = await named_partitions(admin, input_topic)
            outcomes = await admin.delete_streams_group_offsets(group, partitions)
            return {str(tp): outcome for tp, outcome in outcomes.items()}

    report_outcomes("deleted", "offset", run(work()), as_json=json)


@app.command()
def delete(
    groups: Groups = None,
    *,
    all_groups: AllGroups = False,
    delete_all_internal_topics: AllInternalTopics = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Delete streams groups without members, with their committed offsets."""
    if bool(groups) == all_groups:
        raise typer.BadParameter("expected either group ids or --all-groups")
    objects = "offsets, repartition topics and changelog topics" if delete_all_internal_topics else "offsets"
    ask_first(f"delete {', '.join(groups or ['all streams groups'])} and their {objects}?", yes=yes)

    async def work() -> tuple[dict[str, Outcome], list[str]]:
        async with admin_of(bootstrap) as admin:
            ids = groups or [g.group_id for g in await admin.list_groups(types=[STREAMS])]
            described = await admin.describe_streams_groups(ids)
            outcomes = await admin.delete_streams_groups(ids)
            unwanted: set[str] = set()
            for group_id, one in described.items():
                if delete_all_internal_topics and not isinstance(one, KafkaError) and outcomes[group_id] is None:
                    unwanted.update(one.internal_topics())
            return outcomes, await _delete_topics(admin, unwanted)

    outcomes, deleted = run(work())
    for name in deleted if not json else ():
        say(f"deleted topic {name}")
    report_outcomes("deleted", "group", outcomes, as_json=json)


_VERBOSE = (
    "leader epoch",
    "group epoch",
    "target assignment epoch",
    "topology epoch",
    "member epoch",
    "protocol",
    "target active tasks",
    "target standby tasks",
    "target warmup tasks",
)
"""Columns that tables have only with --verbose."""


async def _describe(admin: Admin, ids: Sequence[str]) -> list[StreamsGroupDescription]:
    """Describe groups. Raises KafkaError for the first group with an error."""
    found = []
    for one in (await admin.describe_streams_groups(ids)).values():
        if isinstance(one, KafkaError):
            raise one
        found.append(one)
    return found


async def _committed(admin: Admin, group_id: str) -> Iterable[TopicPartition]:
    offsets = (await admin.list_streams_group_offsets([group_id]))[group_id]
    if isinstance(offsets, KafkaError):
        raise offsets
    return offsets


async def _delete_topics(admin: Admin, names: Iterable[str]) -> list[str]:
    """Delete topics and return their names. Topics that do not exist are ignored. Raises KafkaError."""
    existing = {topic.name for topic in await admin.describe_topics()} if names else set()
    unwanted = sorted(existing & set(names))
    if unwanted:
        raise_first(await admin.delete_topics(unwanted))
    return unwanted


async def _offset_rows(admin: Admin, groups: Sequence[StreamsGroupDescription]) -> list[Row]:
    """Return one row per partition that has a committed offset or is assigned.

    As in kafka-streams-groups, the lag of a partition without a committed offset is its number of records: an
    application without committed offsets starts at the log start offset.
    """
    by_id = {group.group_id: group for group in groups}
    offsets = await admin.list_streams_group_offsets(by_id)
    lags = await admin.group_lag(by_id)
    new = [one.partition for one in lags if one.committed is None and one.end is not None]
    first = await admin.list_offsets(dict.fromkeys(new, EARLIEST))
    rows: list[Row] = []
    for one in lags:
        committed = offsets[one.group_id]
        at = None if isinstance(committed, KafkaError) else committed.get(one.partition)
        start = first.get(one.partition)
        lag = one.lag if start is None or one.end is None else one.end - start.offset
        rows.append(
            {
                "group": one.group_id,
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "leader epoch": at.leader_epoch if at is not None and at.leader_epoch >= 0 else None,
                "committed": one.committed,
                "end": one.end,
                "lag": lag,
            }
        )
    return rows


def _state_rows(groups: Sequence[StreamsGroupDescription]) -> list[Row]:
    return [
        {
            "group": group.group_id,
            "state": group.state,
            "coordinator": group.coordinator,
            "assignor": group.assignor,
            "group epoch": group.group_epoch,
            "target assignment epoch": group.target_assignment_epoch,
            "topology epoch": group.topology_epoch,
            "members": len(group.members),
        }
        for group in groups
    ]


def _member_rows(groups: Sequence[StreamsGroupDescription]) -> list[Row]:
    return [
        {
            "group": group.group_id,
            "member": m.member_id,
            "process": m.process_id,
            "client": m.client_id,
            "host": m.host,
            "instance": m.group_instance_id,
            "rack": m.rack_id,
            "protocol": "classic" if m.is_classic else "streams",
            "member epoch": m.member_epoch,
            "topology epoch": m.topology_epoch,
            "active tasks": _names(m.assignment.active),
            "standby tasks": _names(m.assignment.standby),
            "warmup tasks": _names(m.assignment.warmup),
            "target active tasks": _names(m.target_assignment.active),
            "target standby tasks": _names(m.target_assignment.standby),
            "target warmup tasks": _names(m.target_assignment.warmup),
        }
        for group in groups
        for m in group.members
    ]


def _names(tasks: Iterable[StreamsTask]) -> list[str]:
    return [str(task) for task in tasks]


def _topology_rows(groups: Sequence[StreamsGroupDescription]) -> list[Row]:
    """Return one row per topic of a subtopology; only internal topics have a number of partitions."""
    rows: list[Row] = []
    for group in groups:
        for one in group.subtopologies:
            topics: list[tuple[str, str, int | None]] = [("source", name, None) for name in one.source_topics]
            topics += [("repartition source", t.name, t.partitions or None) for t in one.repartition_source_topics]
            topics += [("repartition sink", name, None) for name in one.repartition_sink_topics]
            topics += [("changelog", t.name, t.partitions or None) for t in one.state_changelog_topics]
            rows += [
                {
                    "group": group.group_id,
                    "subtopology": one.subtopology_id,
                    "kind": kind,
                    "topic": name,
                    "partitions": partitions,
                }
                for kind, name, partitions in topics
            ]
    return rows
