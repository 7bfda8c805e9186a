"""`barnabas consume`: a topic's records to a pipe or a terminal, as kcat does it; with --match it searches."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Annotated, NamedTuple

import typer

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..consumer import AutoOffsetReset, Consumer, IsolationLevel
from ..fetched_records import ConsumerRecord
from ..group.settings import GroupOptions
from . import completion
from .client_settings import DEFAULT_BOOTSTRAP, bootstrap_servers, client_arguments
from .record_format import record_writer
from .session import Bootstrap, parse_time_ms, run

app = typer.Typer(add_completion=False)

_DEFAULT_FORMAT = "%s\\n"
_POLL_MS = 500
_RESETS: dict[str, AutoOffsetReset] = {"beginning": "earliest", "end": "latest"}
_BATCH = 5000
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")


SchemaRegistryUrl = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        "-r",
        envvar="BARNABAS_SCHEMA_REGISTRY",
        metavar="URL",
        help="Decode Avro, JSON and Protobuf by this schema registry.",
    ),
]


class Topics(NamedTuple):
    """Topics by name, or as they were asked for, if a pattern says which: those whose whole name it matches."""

    names: list[str]
    pattern: re.Pattern[str] | None


class Task(NamedTuple):
    """What to read and when to end."""

    topics: Topics
    partitions: list[int] | None
    offset: str
    until_ms: int | None
    exit_at_end: bool
    most: int | None
    matches: Callable[[ConsumerRecord], bool]


@app.command()
def consume(
    topics: Annotated[
        list[str],
        typer.Argument(
            help="Topics; one that begins with ^ is a pattern, as '^orders\\..*'.", autocompletion=completion.topics
        ),
    ],
    *,
    offset: Annotated[
        str,
        typer.Option("--offset", "-o", help="beginning, end, an offset, -N (the last N), or @TIME (ms or ISO 8601)."),
    ] = "beginning",
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="End at records this late.")] = None,
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="End where the log ends now.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="End after so many records.")] = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", help="Only this one.")] = None,
    output_format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            help="%t topic, %p partition, %o offset, %T timestamp, %d date, %k key, %s value, %h headers, %K %S sizes.",
        ),
    ] = _DEFAULT_FORMAT,
    as_json: Annotated[bool, typer.Option("--json", "-J", help="A JSON envelope a line.")] = False,
    group: Annotated[
        str | None,
        typer.Option("--group", "-G", help="Share the partitions with the other members of this group, and commit."),
    ] = None,
    match: Annotated[
        str | None, typer.Option("--match", "-m", metavar="REGEX", help="Only records with it in key, value or header.")
    ] = None,
    registry: SchemaRegistryUrl = None,
    isolation: Annotated[str, typer.Option(help="read_uncommitted or read_committed.")] = "read_uncommitted",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records of topics; without -e or -c for ever.

    barnabas consume flights -o -10 -e -f '%o %k %s\\n'

    A member of a group (-G) goes on where the group has come to; -o says where it begins if it has not.
    """
    if isolation not in ("read_uncommitted", "read_committed"):
        raise typer.BadParameter(f"{isolation!r} is no isolation level")
    level: IsolationLevel = "read_committed" if isolation == "read_committed" else "read_uncommitted"
    chosen = _topics(topics)
    if group is not None and (partition or until or offset not in _RESETS):
        raise typer.BadParameter("a group shares out partitions and knows where it is: no -p, no --until, no such -o")

    async def work() -> None:
        show = record_writer(output_format, as_json=as_json, registry=registry)
        until_ms = None if until is None else parse_time_ms(until.removeprefix("@"))
        task = Task(chosen, partition, offset, until_ms, exit_at_end, count, _matcher(match))
        consumer = _consumer(bootstrap, group, _RESETS.get(offset, "latest"), level)
        async with consumer:
            await (_print_records if group is None else _print_as_member)(consumer, task, show)

    run(work())


def _consumer(bootstrap: str, group: str | None, reset: AutoOffsetReset, isolation: IsolationLevel) -> Consumer:
    """With what `-X` says on top; what a file says of groups is for members of one."""
    settings = {
        "auto_offset_reset": reset,
        "max_poll_records": _BATCH,
        "fetch_max_wait_ms": 100,
        "isolation_level": isolation,
    } | client_arguments(Consumer, without=() if group else GroupOptions.__optional_keys__)
    return Consumer(bootstrap_servers(bootstrap), group_id=group, allow_auto_create_topics=False, **settings)


def _topics(given: list[str]) -> Topics:
    """Several patterns are one that matches what any of them does. Raises typer.BadParameter."""
    for name in given:
        if not name.startswith("^") and _NO_NAME.search(name):
            raise typer.BadParameter(f"{name!r} is no name of a topic; a pattern begins with ^, as '^orders.*'")
    patterns = [name.removeprefix("^").removesuffix("$") for name in given if name.startswith("^")]
    if not patterns:
        return Topics(list(dict.fromkeys(given)), None)
    patterns += [re.escape(name) for name in given if not name.startswith("^")]
    try:
        return Topics(given, re.compile("|".join(f"(?:{pattern})" for pattern in patterns)))
    except re.error as error:
        raise typer.BadParameter(f"{' '.join(given)}: {error}") from None


async def _print_as_member(consumer: Consumer, task: Task, show: Callable[[ConsumerRecord], bytes]) -> None:
    """What was printed is committed: at intervals, when partitions go to another member, and at the end."""
    left = task.most
    if task.topics.pattern is not None:
        consumer.subscribe(pattern=task.topics.pattern)
    else:
        consumer.subscribe(task.topics.names)
    while left != 0:
        batches = await consumer.getmany(timeout_ms=_POLL_MS, max_records=left and min(left, _BATCH))
        for records in batches.values():
            chosen = [record for record in records if task.matches(record)]
            sys.stdout.buffer.write(b"".join(map(show, chosen)))
            left = None if left is None else left - len(chosen)
        sys.stdout.buffer.flush()
        if task.exit_at_end and not batches and await _is_at_end(consumer):
            break


async def _is_at_end(consumer: Consumer) -> bool:
    """Whether the member has partitions, and has read all that they hold now."""
    assigned = consumer.assignment
    ends = await consumer.end_offsets(assigned)
    return bool(assigned) and all([await consumer.position(tp) >= end for tp, end in ends.items()])


async def _print_records(consumer: Consumer, task: Task, show: Callable[[ConsumerRecord], bytes]) -> None:
    partitions = await _partitions(consumer, task)
    starts = await _starts(consumer, partitions, task.offset)
    ends = await _ends(consumer, partitions, task)
    consumer.assign(partitions)
    for tp in partitions:
        consumer.seek(tp, starts[tp])
    left = task.most
    open_partitions = {tp for tp in partitions if ends is None or starts[tp] < ends[tp]}
    consumer.assign(open_partitions)
    write, flush = sys.stdout.buffer.write, sys.stdout.buffer.flush
    while open_partitions and left != 0:
        for tp, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
            chosen = records if ends is None else [record for record in records if record.offset < ends[tp]]
            chosen = [record for record in chosen if task.matches(record)][:left]
            write(b"".join(map(show, chosen)))
            left = None if left is None else left - len(chosen)
        flush()
        if ends is not None:
            done = {tp for tp in open_partitions if await consumer.position(tp) >= ends[tp]}
            if done:
                open_partitions -= done
                consumer.assign(open_partitions)


async def _partitions(consumer: Consumer, task: Task) -> list[TopicPartition]:
    """Those of all topics, or of these numbers, which every topic must have. Raises KafkaError."""
    names, pattern = task.topics
    if pattern is not None:
        names = [name for name in await consumer.list_topics() if pattern.fullmatch(name)]
        if not names:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic matches {' or '.join(task.topics.names)}")
    partitions = []
    for name in names:
        # A topic that was just created may not be known everywhere; one that is missing for 2 s is missing.
        known = await consumer.partitions_for(name, timeout_ms=2000)
        if missing := [str(index) for index in task.partitions or () if index not in known]:
            count = f"{len(known)} partition{'s' if len(known) > 1 else ''}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} has {count}, and no {', '.join(missing)}")
        partitions += [TopicPartition(name, index) for index in task.partitions or known]
    return partitions


async def _starts(consumer: Consumer, partitions: list[TopicPartition], offset: str) -> dict[TopicPartition, int]:
    """Where to begin in each partition. Raises ValueError."""
    if offset.startswith("@"):
        ends = await consumer.end_offsets(partitions)
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, parse_time_ms(offset[1:])))
        return {tp: at.offset if (at := found[tp]) is not None else ends[tp] for tp in partitions}
    if offset == "end":
        return await consumer.end_offsets(partitions)
    first = await consumer.beginning_offsets(partitions)
    if offset == "beginning":
        return first
    try:
        number = int(offset)
    except ValueError:
        raise ValueError(f"{offset!r} is no offset: beginning, end, N, -N or @TIME is expected") from None
    if number >= 0:
        return {tp: max(number, first[tp]) for tp in partitions}
    ends = await consumer.end_offsets(partitions)
    return {tp: max(first[tp], ends[tp] + number) for tp in partitions}


async def _ends(consumer: Consumer, partitions: list[TopicPartition], task: Task) -> dict[TopicPartition, int] | None:
    """Where to end, None to go on for ever."""
    if task.until_ms is None and not task.exit_at_end:
        return None
    ends = await consumer.end_offsets(partitions)
    if task.until_ms is not None:
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, task.until_ms))
        ends = {tp: min(end, at.offset) if (at := found[tp]) is not None else end for tp, end in ends.items()}
    return ends


def _matcher(pattern: str | None) -> Callable[[ConsumerRecord], bool]:
    if pattern is None:
        return lambda record: True
    try:
        search = re.compile(pattern.encode()).search
    except re.error as error:
        raise ValueError(f"--match {pattern}: {error}") from error

    def matches(record: ConsumerRecord) -> bool:
        parts = (record.key, record.value, *(part for n, v in record.headers for part in (n.encode(), v)))
        return any(part is not None and search(part) for part in parts)

    return matches
