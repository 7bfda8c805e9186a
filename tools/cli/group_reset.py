"""`barnabas group reset-offsets`: new offsets for groups, a preview without --execute."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

import typer

from ...clients.admin import raise_first
from ...clients.admin.share_groups import SHARE
from ...clients.admin.streams_groups import STREAMS
from ...clients.host import now_ms
from ...clients.offset_reset import (
    Reset,
    ResetKind,
    ResetTarget,
    plan_reset,
    require_inactive,
)
from . import completion
from .client_settings import DEFAULT_BOOTSTRAP, admin_of
from .group_options import (
    Topics,
    named_partitions,
    require_consumer_group,
)
from .session import (
    Bootstrap,
    Json,
    Row,
    parse_time_ms,
    print_rows,
    run,
)

ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="Reset to the log start offset.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="Reset to the log end offset.")]
ToCurrent = Annotated[
    bool,
    typer.Option("--to-current", help="Reset to the committed offset, or to the log end offset if none is committed."),
]
ToOffset = Annotated[
    int | None, typer.Option("--to-offset", help="Reset to this offset, or to the nearest offset of the log.")
]
ShiftBy = Annotated[
    int | None, typer.Option("--shift-by", metavar="N", help="Forward by N offsets; back if N is negative.")
]
ToDatetime = Annotated[
    str | None,
    typer.Option(
        "--to-datetime", metavar="TIME", help="Reset to the first record at or after this time: ms or ISO 8601."
    ),
]
ByDuration = Annotated[
    str | None,
    typer.Option(
        "--by-duration",
        metavar="PnDTnHnMnS",
        help="Reset to the first record of the last hours or days, for example PT2H for two hours.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the changes (the default).")]
Execute = Annotated[bool, typer.Option("--execute", help="Apply the changes.")]

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII)


def reset_offsets(
    groups: Annotated[list[str] | None, typer.Argument(help="The groups.", autocompletion=completion.groups)] = None,
    *,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="All classic and consumer groups.")] = False,
    topic: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics for which the group has committed offsets.")
    ] = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOffset = None,
    shift_by: ShiftBy = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    dry_run: DryRun = False,
    execute: Execute = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Reset the committed offsets of inactive groups. Without --execute, print a preview.

    barnabas group reset-offsets readers --all-topics --to-earliest --execute
    barnabas group reset-offsets readers -t flights:0,1 -t planes --by-duration PT2H
    """
    require_one_mode(dry_run=dry_run, execute=execute)
    if bool(topic) == all_topics:
        raise typer.BadParameter("no topics given: use --topic (may be repeated) or --all-topics")
    if bool(groups) == all_groups:
        raise typer.BadParameter("expected either group ids or --all-groups")
    target = single_target(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        shift_by=shift_by,
        to_datetime=to_datetime,
        by_duration=by_duration,
    )
    steps = run(_reset(bootstrap, groups, topic, target, execute=execute))
    print_rows([reset_row(group_id, step) for group_id, step in steps], as_json=json)
    report_preview(execute=execute)


async def _reset(
    bootstrap: str, groups: list[str] | None, topics: list[str] | None, target: ResetTarget, *, execute: bool
) -> list[tuple[str, Reset]]:
    """Plan all groups before the first change."""
    async with admin_of(bootstrap) as admin:
        ids = groups or [g.group_id for g in await admin.list_groups() if g.type not in (SHARE, STREAMS)]
        partitions = None if topics is None else await named_partitions(admin, topics)
        plans = {}
        for group_id in ids:
            if groups:
                await require_consumer_group(admin, group_id)
            await require_inactive(admin, group_id)
            plans[group_id] = await plan_reset(admin, group_id, partitions, target)
            if groups and not plans[group_id]:
                raise ValueError(f"group {group_id!r} has no committed offsets: select topics with --topic")
        if execute:
            for group_id, plan in plans.items():
                raise_first(await admin.alter_group_offsets(group_id, {s.partition: s.after for s in plan}))
        return [(group_id, step) for group_id, plan in plans.items() for step in plan]


def require_one_mode(*, dry_run: bool, execute: bool) -> None:
    """Raise typer.BadParameter for --dry-run with --execute."""
    if dry_run and execute:
        raise typer.BadParameter("--dry-run and --execute exclude each other")


def single_target(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None = None,
) -> ResetTarget:
    """Return the target that the options name. Raises typer.BadParameter for none and for several."""
    flags = {ResetKind.EARLIEST: to_earliest, ResetKind.LATEST: to_latest, ResetKind.CURRENT: to_current}
    targets = [ResetTarget(kind) for kind, wanted in flags.items() if wanted]
    targets += [ResetTarget(ResetKind.OFFSET, to_offset)] if to_offset is not None else []
    targets += [ResetTarget(ResetKind.SHIFT, shift_by)] if shift_by is not None else []
    targets += [ResetTarget(ResetKind.TIME, _time_ms(to_datetime))] if to_datetime is not None else []
    targets += [ResetTarget(ResetKind.TIME, now_ms() - _duration_ms(by_duration))] if by_duration is not None else []
    if len(targets) != 1:
        raise typer.BadParameter(
            "expected exactly one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime "
            "and --by-duration"
        )
    return targets[0]


def report_preview(*, execute: bool) -> None:
    """Print on standard error that a preview changes nothing."""
    if not execute:
        typer.echo("no offset was changed: add --execute to apply this preview", err=True)


def _time_ms(text: str) -> int:
    try:
        return parse_time_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _duration_ms(text: str) -> int:
    """Parse ISO 8601, such as `PT2H30M` or `P1D`."""
    match = _DURATION.fullmatch(text.upper())
    if match is None or not any(match.groups()):
        raise typer.BadParameter(f"{text!r}: invalid duration. Expected a duration such as P1D or PT2H30M")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    try:
        return round(timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds() * 1000)
    except OverflowError:
        raise typer.BadParameter(f"{text!r}: the duration exceeds the range of timestamps") from None


def reset_row(group_id: str, step: Reset, *, before: str = "committed") -> Row:
    """Return one change; `before` is the name of the present offset."""
    return {
        "group": group_id,
        "topic": step.partition.topic,
        "partition": step.partition.partition,
        before: step.before,
        "new offset": step.after,
    }
