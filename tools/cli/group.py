"""`barnabas group`: list, describe, lag, reset-offsets, delete and related commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from ...clients.admin import (
    GroupDescription,
    GroupListing,
    GroupMember,
    Outcome,
    PartitionLag,
    ShareGroupDescription,
    ShareMemberDescription,
    StreamsGroupDescription,
    StreamsMemberDescription,
)
from ...clients.admin.share_groups import SHARE
from ...clients.admin.streams_groups import STREAMS
from ...protocol.errors import KafkaError
from . import completion
from .client_settings import DEFAULT_BOOTSTRAP, admin_of
from .group_options import (
    StateFilter,
    Topics,
    TypeFilter,
    named_partitions,
    report_outcomes,
    require_consumer_group,
)
from .group_reset import reset_offsets
from .session import (
    Bootstrap,
    Json,
    Row,
    Yes,
    ask_first,
    print_json,
    print_rows,
    run,
    say,
    watch_rows,
)

app = typer.Typer(
    help="List, describe and delete groups of all types; show and reset offsets of consumer groups.",
    no_args_is_help=True,
    add_completion=False,
)

Described = GroupDescription | ShareGroupDescription | StreamsGroupDescription
Groups = Annotated[list[str], typer.Argument(help="The groups.", autocompletion=completion.groups)]
SomeGroups = Annotated[
    list[str] | None, typer.Argument(help="Groups; all by default.", autocompletion=completion.groups)
]


@app.command("list")
def list_groups(
    *,
    state: Annotated[
        list[StateFilter] | None, typer.Option("--state", case_sensitive=False, help="Only groups in this state.")
    ] = None,
    kind: Annotated[
        list[TypeFilter] | None, typer.Option("--type", case_sensitive=False, help="Only groups of this type.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List the groups of all types with their states."""

    async def work() -> list[GroupListing]:
        async with admin_of(bootstrap) as admin:
            return await admin.list_groups(states=state or (), types=kind or ())

    rows = [{"group": g.group_id, "type": g.type, "state": g.state, "protocol": g.protocol_type} for g in run(work())]
    print_rows(rows, as_json=json)


@app.command()
def describe(
    groups: SomeGroups = None,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show type, state, coordinator and members of groups of all types.

    The commands share-group and streams-group also show offsets, epochs and topologies.
    """

    async def work() -> list[Described]:
        async with admin_of(bootstrap) as admin:
            ids = groups or [g.group_id for g in await admin.list_groups()]
            described = await admin.describe_groups_of_all_types(ids)
            errors = [answer for answer in described.values() if isinstance(answer, KafkaError)]
            if errors and groups:
                raise errors[0]
            return [answer for answer in described.values() if not isinstance(answer, KafkaError)]

    described = run(work())
    if json:
        print_json([_described(group) for group in described])
        return
    for group in described:
        assignor = f"  assignor {group.assignor}" if group.assignor else ""
        say(
            f"group {group.group_id}  {_type(group)}  {group.state}{assignor}  "
            f"coordinator {group.coordinator}  members {len(group.members)}"
        )
        if group.members:
            print_rows(_member_rows(group))


@app.command()
def lag(
    groups: SomeGroups = None,
    *,
    topic: Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only this topic; may be repeated.")] = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="One line per partition.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh continuously.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show the lag of groups of all types, with or without members.

    For a share group, the start offset is shown instead of a committed offset, and records that are already
    acknowledged do not count.

    barnabas group lag                         all groups and topics
    barnabas group lag readers --partitions    every partition of one group
    """

    async def work() -> None:
        async with admin_of(bootstrap) as admin:

            async def look() -> list[Row]:
                found = await admin.group_lag(groups or None)
                lags = [one for one in found if not topic or one.partition.topic in topic]
                return _partition_rows(lags) if partitions else _topic_rows(lags)

            if watch:
                await watch_rows(look, as_json=json)
            print_rows(await look(), as_json=json)

    run(work())


app.command()(reset_offsets)


@app.command()
def delete(
    groups: Groups,
    *,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Delete groups without members, and their committed offsets."""
    ask_first(f"delete {', '.join(groups)} and their committed offsets?", yes=yes)

    async def work() -> dict[str, Outcome]:
        async with admin_of(bootstrap) as admin:
            return await admin.delete_groups(groups)

    report_outcomes("deleted", "group", run(work()), as_json=json, with_messages=False)


@app.command()
def delete_offsets(
    group: Annotated[str, typer.Argument(help="The group.", autocompletion=completion.groups)],
    *,
    topic: Topics = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Delete committed offsets of topics to which no member of the group is subscribed."""
    if not topic:
        raise typer.BadParameter("no topics given: use --topic")
    ask_first(f"delete the committed offsets of {group} in {', '.join(topic)}?", yes=yes)

    async def work() -> dict[str, Outcome]:
        async with admin_of(bootstrap) as admin:
            await require_consumer_group(admin, group)
            outcomes = await admin.delete_group_offsets(group, await named_partitions(admin, topic))
            return {str(tp): outcome for tp, outcome in outcomes.items()}

    report_outcomes("deleted", "offset", run(work()), as_json=json, with_messages=False)


@app.command()
def remove_members(
    group: Annotated[str, typer.Argument(help="The group.", autocompletion=completion.groups)],
    *,
    instance: Annotated[
        list[str] | None,
        typer.Option("--instance", help="Only this static member; all members by default."),
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Remove members from a group. Members that still run join again."""
    ask_first(f"remove {', '.join(instance) if instance else 'all members'} from {group}?", yes=yes)

    async def work() -> dict[str, Outcome]:
        async with admin_of(bootstrap) as admin:
            await require_consumer_group(admin, group)
            return await admin.remove_members(group, instance)

    report_outcomes("removed", "member", run(work()), as_json=json, with_messages=False)


def _type(group: Described) -> str:
    if isinstance(group, GroupDescription):
        return group.type
    return SHARE if isinstance(group, ShareGroupDescription) else STREAMS


def _member_rows(group: Described) -> list[Row]:
    """Return one row per member; a member of a streams group has tasks in place of partitions."""
    rows: list[Row] = []
    for m in group.members:
        assigned: Row = (
            {"tasks": [str(task) for task in m.assignment.active]}
            if isinstance(m, StreamsMemberDescription)
            else {"partitions": [str(tp) for tp in m.assigned]}
        )
        # Share groups have no static members.
        instance: Row = {} if isinstance(m, ShareMemberDescription) else {"instance": m.group_instance_id}
        rows.append({"member": m.member_id, **instance, "client": m.client_id, "host": m.host, **assigned})
    return rows


def _described(group: Described) -> dict[str, object]:
    return {
        "group": group.group_id,
        "type": _type(group),
        "state": group.state,
        "protocol": group.protocol_type if isinstance(group, GroupDescription) else _type(group),
        "assignor": group.assignor or None,
        "coordinator": group.coordinator,
        "members": [_described_member(m) for m in group.members],
    }


def _described_member(m: GroupMember | ShareMemberDescription | StreamsMemberDescription) -> dict[str, object]:
    described: dict[str, object] = {
        "member": m.member_id,
        "instance": None if isinstance(m, ShareMemberDescription) else m.group_instance_id,
        "client": m.client_id,
        "host": m.host,
    }
    if isinstance(m, StreamsMemberDescription):
        return {**described, "tasks": [str(task) for task in m.assignment.active]}
    partitions = [{"topic": tp.topic, "partition": tp.partition} for tp in m.assigned]
    return {**described, "topics": sorted(m.topics), "partitions": partitions}


def _partition_rows(lags: Sequence[PartitionLag]) -> list[Row]:
    return [
        {
            "group": one.group_id,
            "type": one.type,
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
    """Sum the lag by group and topic; partitions without an offset count as zero and in `uncommitted`."""
    by_topic: dict[tuple[str, str], list[PartitionLag]] = {}
    for one in lags:
        by_topic.setdefault((one.group_id, one.partition.topic), []).append(one)
    return [
        {
            "group": group_id,
            "type": some[0].type,
            "topic": topic,
            "partitions": len(some),
            "members": len(frozenset[str]().union(*(one.members for one in some))),
            "lag": sum(one.lag for one in some if one.lag is not None),
            "uncommitted": sum(one.committed is None for one in some),
        }
        for (group_id, topic), some in by_topic.items()
    ]
