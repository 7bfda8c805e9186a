"""`barnabas group`: list, describe, lag, reset-offsets, delete, and what belongs to them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer

from ...protocol.errors import KafkaError
from ...protocol.topic_partition import TopicPartition
from ..admin import Admin, raise_first
from ..group_admin import GroupListing, Outcome, PartitionLag
from ..group_descriptions import GroupDescription
from ..host import now_ms
from ..offset_reset import Reset, ResetKind, ResetTarget, plan_reset, require_inactive
from .session import DEFAULT_BOOTSTRAP, Bootstrap, Json, Row, parse_time_ms, print_json, print_rows, run

app = typer.Typer(
    help="List, describe and delete consumer groups; see and set how far they have come.",
    no_args_is_help=True,
    add_completion=False,
)

Groups = Annotated[list[str], typer.Argument(help="The groups.")]
SomeGroups = Annotated[list[str] | None, typer.Argument(help="The groups; all if none is named.")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC[:P,P…]", help="A topic, or some partitions of it; may be repeated."),
]
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII)


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


As = Annotated[Output, typer.Option("--output", help="table or json; --json is short for the latter.")]


@app.command("list")
def list_groups(
    *,
    state: Annotated[list[str] | None, typer.Option("--state", help="Only groups in it: Stable, Empty, …")] = None,
    kind: Annotated[list[str] | None, typer.Option("--type", help="Only these: classic, consumer.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: As = Output.TABLE,
    json: Json = False,
) -> None:
    """List the groups of the cluster."""

    async def work() -> list[GroupListing]:
        async with Admin(bootstrap) as admin:
            return await admin.list_groups(states=state or (), types=kind or ())

    rows = [{"group": g.group_id, "type": g.type, "state": g.state, "protocol": g.protocol_type} for g in run(work())]
    print_rows(rows, as_json=_as_json(output, json))


@app.command()
def describe(
    groups: SomeGroups = None,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: As = Output.TABLE,
    json: Json = False,
) -> None:
    """Show state, coordinator and members, with what each of them reads."""

    async def work() -> list[GroupDescription]:
        async with Admin(bootstrap) as admin:
            ids = groups or [g.group_id for g in await admin.list_groups()]
            described = await admin.describe_groups(ids)
            errors = [answer for answer in described.values() if isinstance(answer, KafkaError)]
            if errors and groups:
                raise errors[0]
            return [answer for answer in described.values() if not isinstance(answer, KafkaError)]

    described = run(work())
    if _as_json(output, json):
        print_json([_described(group) for group in described])
        return
    for group in described:
        assignor = f"  assignor {group.assignor}" if group.assignor else ""
        print(
            f"group {group.group_id}  {group.type}  {group.state}{assignor}  "
            f"coordinator {group.coordinator}  members {len(group.members)}"
        )
        if group.members:
            print_rows(_member_rows(group))


@app.command()
def lag(
    groups: SomeGroups = None,
    *,
    topic: Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only this one; may be repeated.")] = None,
    partitions: Annotated[bool, typer.Option("--partitions", "-p", help="A line for each partition.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: As = Output.TABLE,
    json: Json = False,
) -> None:
    """Show how far groups are behind the end of their topics; those without members, too.

    barnabas group lag                    every group and topic
    barnabas group lag readers -p         every partition of one group
    """

    async def work() -> list[PartitionLag]:
        async with Admin(bootstrap) as admin:
            return await admin.group_lag(groups or None)

    lags = [one for one in run(work()) if not topic or one.partition.topic in topic]
    print_rows(_partition_rows(lags) if partitions else _topic_rows(lags), as_json=_as_json(output, json))


@app.command()
def reset_offsets(
    groups: Annotated[list[str] | None, typer.Argument(help="The groups.")] = None,
    *,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="Every group there is.")] = False,
    topic: Topics = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Every topic the group has committed.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="The first record there is.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the last record.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="Where it is; the end where it is nowhere.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", help="This offset, as far as it exists.")] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="N records on, or with -N back.")
    ] = None,
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", metavar="TIME", help="The first record at or after: ms or ISO 8601.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", metavar="PnDTnHnMnS", help="As --to-datetime, so long ago.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done: the default.")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Do it.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: As = Output.TABLE,
    json: Json = False,
) -> None:
    """Set what inactive groups have committed. Without --execute it is only shown.

    barnabas group reset-offsets readers --all-topics --to-earliest --execute
    barnabas group reset-offsets readers -t flights:0,1 -t planes --by-duration PT2H
    """
    if dry_run and execute:
        raise typer.BadParameter("give --dry-run or --execute")
    if bool(topic) == all_topics:
        raise typer.BadParameter("give --topic (once or more) or --all-topics")
    if bool(groups) == all_groups:
        raise typer.BadParameter("name groups or give --all-groups")
    flags = {ResetKind.EARLIEST: to_earliest, ResetKind.LATEST: to_latest, ResetKind.CURRENT: to_current}
    times = [_time_ms(to_datetime)] if to_datetime is not None else []
    times += [now_ms() - _duration_ms(by_duration)] if by_duration is not None else []
    targets = [ResetTarget(kind) for kind, wanted in flags.items() if wanted]
    targets += [ResetTarget(ResetKind.OFFSET, to_offset)] if to_offset is not None else []
    targets += [ResetTarget(ResetKind.SHIFT, shift_by)] if shift_by is not None else []
    targets += [ResetTarget(ResetKind.TIME, time) for time in times]
    if len(targets) != 1:
        raise typer.BadParameter("give one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, …")
    steps = run(_reset(bootstrap, groups, topic, targets[0], execute=execute))
    print_rows([_reset_row(group_id, step) for group_id, step in steps], as_json=_as_json(output, json))
    if not execute:
        typer.echo("nothing was changed: this was a dry run, --execute does it", err=True)


async def _reset(
    bootstrap: str, groups: list[str] | None, topics: list[str] | None, target: ResetTarget, *, execute: bool
) -> list[tuple[str, Reset]]:
    """All groups are planned before the first is changed."""
    async with Admin(bootstrap) as admin:
        ids = groups or [g.group_id for g in await admin.list_groups()]
        partitions = None if topics is None else await _partitions(admin, topics)
        plans = {}
        for group_id in ids:
            await require_inactive(admin, group_id)
            plans[group_id] = await plan_reset(admin, group_id, partitions, target)
        if execute:
            for group_id, plan in plans.items():
                raise_first(await admin.alter_group_offsets(group_id, {s.partition: s.after for s in plan}))
        return [(group_id, step) for group_id, plan in plans.items() for step in plan]


@app.command()
def delete(
    groups: Groups, *, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, output: As = Output.TABLE, json: Json = False
) -> None:
    """Delete groups that have no members, with all they have committed."""

    async def work() -> dict[str, Outcome]:
        async with Admin(bootstrap) as admin:
            return await admin.delete_groups(groups)

    _report("deleted", "group", run(work()), as_json=_as_json(output, json))


@app.command()
def delete_offsets(
    group: Annotated[str, typer.Argument(help="The group.")],
    *,
    topic: Topics = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: As = Output.TABLE,
    json: Json = False,
) -> None:
    """Forget what a group has committed of topics that it does not read any more."""
    if not topic:
        raise typer.BadParameter("give --topic")

    async def work() -> dict[str, Outcome]:
        async with Admin(bootstrap) as admin:
            outcomes = await admin.delete_group_offsets(group, await _partitions(admin, topic))
            return {str(tp): outcome for tp, outcome in outcomes.items()}

    _report("deleted", "offset", run(work()), as_json=_as_json(output, json))


@app.command()
def remove_members(
    group: Annotated[str, typer.Argument(help="The group.")],
    *,
    instance: Annotated[
        list[str] | None,
        typer.Option("--instance", "-i", help="Only this static member; all members if none is named."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: As = Output.TABLE,
    json: Json = False,
) -> None:
    """Throw members out; those that are alive will join again."""

    async def work() -> dict[str, Outcome]:
        async with Admin(bootstrap) as admin:
            return await admin.remove_members(group, instance)

    _report("removed", "member", run(work()), as_json=_as_json(output, json))


def _as_json(output: Output, json: bool) -> bool:
    return json or output is Output.JSON


async def _partitions(admin: Admin, topics: Sequence[str]) -> list[TopicPartition]:
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


def _time_ms(text: str) -> int:
    try:
        return parse_time_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _duration_ms(text: str) -> int:
    """ISO 8601, as `PT2H30M` or `P1D`."""
    match = _DURATION.fullmatch(text.upper())
    if match is None or not any(match.groups()):
        raise typer.BadParameter(f"{text!r} is no duration like P1D or PT2H30M")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return round(timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds() * 1000)


def _report(verb: str, what: str, outcomes: dict[str, Outcome], *, as_json: bool) -> None:
    """One line for each; any error makes the exit status 1."""
    if as_json:
        print_json([{what: name, "error": str(error) if error else None} for name, error in outcomes.items()])
    for name, error in outcomes.items():
        if error is not None:
            typer.echo(f"barnabas: {what} {name}: {error}", err=True)
        elif not as_json:
            print(f"{verb} {what} {name}")
    if any(error is not None for error in outcomes.values()):
        raise typer.Exit(1)


def _member_rows(group: GroupDescription) -> list[Row]:
    return [
        {
            "member": m.member_id,
            "instance": m.group_instance_id,
            "client": m.client_id,
            "host": m.host,
            "partitions": [str(tp) for tp in m.assigned],
        }
        for m in group.members
    ]


def _described(group: GroupDescription) -> dict[str, object]:
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol": group.protocol_type,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator,
        "members": [
            {
                "member": m.member_id,
                "instance": m.group_instance_id,
                "client": m.client_id,
                "host": m.host,
                "topics": sorted(m.topics),
                "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in m.assigned],
            }
            for m in group.members
        ],
    }


def _partition_rows(lags: Sequence[PartitionLag]) -> list[Row]:
    return [
        {
            "group": one.group_id,
            "topic": one.partition.topic,
            "partition": one.partition.partition,
            "committed": one.committed,
            "end": one.end,
            "lag": one.lag,
            "member": one.member_id,
            "client": one.client_id,
            "host": one.host,
        }
        for one in lags
    ]


def _topic_rows(lags: Sequence[PartitionLag]) -> list[Row]:
    """Sums by group and topic; what was never committed counts as nothing, and is said in `uncommitted`."""
    by_topic: dict[tuple[str, str], list[PartitionLag]] = {}
    for one in lags:
        by_topic.setdefault((one.group_id, one.partition.topic), []).append(one)
    return [
        {
            "group": group_id,
            "topic": topic,
            "partitions": len(some),
            "members": len({one.member_id for one in some if one.member_id is not None}),
            "lag": sum(one.lag for one in some if one.lag is not None),
            "uncommitted": sum(one.committed is None for one in some),
        }
        for (group_id, topic), some in by_topic.items()
    ]


def _reset_row(group_id: str, step: Reset) -> Row:
    return {
        "group": group_id,
        "topic": step.partition.topic,
        "partition": step.partition.partition,
        "committed": step.before,
        "new offset": step.after,
    }
