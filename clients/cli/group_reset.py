"""`barnabas group reset-offsets`: where groups begin again, shown first and done with --execute."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

import typer

from ..admin import raise_first
from ..host import now_ms
from ..offset_reset import Reset, ResetKind, ResetTarget, plan_reset, require_inactive
from . import completion
from .client_settings import DEFAULT_BOOTSTRAP, admin_of
from .group_options import As, OutputFormat, Topics, named_partitions, wants_json
from .session import Bootstrap, Json, Row, parse_time_ms, print_rows, run

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII)


def reset_offsets(
    groups: Annotated[list[str] | None, typer.Argument(help="The groups.", autocompletion=completion.groups)] = None,
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
    output: As = OutputFormat.TABLE,
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
    print_rows([_reset_row(group_id, step) for group_id, step in steps], as_json=wants_json(output, json))
    if not execute:
        typer.echo("nothing was changed: this was a dry run, --execute does it", err=True)


async def _reset(
    bootstrap: str, groups: list[str] | None, topics: list[str] | None, target: ResetTarget, *, execute: bool
) -> list[tuple[str, Reset]]:
    """All groups are planned before the first is changed."""
    async with admin_of(bootstrap) as admin:
        ids = groups or [g.group_id for g in await admin.list_groups()]
        partitions = None if topics is None else await named_partitions(admin, topics)
        plans = {}
        for group_id in ids:
            await require_inactive(admin, group_id)
            plans[group_id] = await plan_reset(admin, group_id, partitions, target)
            if groups and not plans[group_id]:
                raise ValueError(f"group {group_id!r} has committed nothing: name topics with --topic")
        if execute:
            for group_id, plan in plans.items():
                raise_first(await admin.alter_group_offsets(group_id, {s.partition: s.after for s in plan}))
        return [(group_id, step) for group_id, plan in plans.items() for step in plan]


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
    try:
        return round(timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds() * 1000)
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is longer ago than anything") from None


def _reset_row(group_id: str, step: Reset) -> Row:
    return {
        "group": group_id,
        "topic": step.partition.topic,
        "partition": step.partition.partition,
        "committed": step.before,
        "new offset": step.after,
    }
