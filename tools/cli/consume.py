"""`barnabas consume`: a topic's records to a pipe or a terminal, as kcat does; with --match it searches."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from ...clients.consumer import AutoOffsetReset, Consumer, IsolationLevel
from ...clients.fetched_records import ConsumerRecord
from ...clients.group.settings import GroupOptions
from ...clients.share.share_in_flight_batch import ShareRecord
from ...clients.share_consumer import ShareConsumer
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from . import completion
from .client_settings import DEFAULT_BOOTSTRAP, admin_of, bootstrap_servers, client_arguments
from .record_format import record_writer
from .session import Bootstrap, parse_time_ms, run

app = typer.Typer(add_completion=False)

_DEFAULT_FORMAT = "%s\\n"
_POLL_MS = 500
_RESETS: dict[str, AutoOffsetReset] = {"beginning": "earliest", "end": "latest"}
_BATCH = 5000
_SHARE_BATCH = 500
_SHARE_END_MS = 3000
"""The time in ms without a record after which a member of a share group ends with --exit."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")


SchemaRegistryUrl = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        "-r",
        envvar="BARNABAS_SCHEMA_REGISTRY",
        metavar="URL",
        help="Decode Avro, JSON and Protobuf records with this schema registry.",
    ),
]


class Topics(NamedTuple):
    """Resolve topics: names, or for a pattern all topics whose whole name matches."""

    names: list[str]
    pattern: re.Pattern[str] | None


class Task(NamedTuple):
    """The partitions to read, and the end of the command."""

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
            help="Topics; a name that begins with ^ is a pattern, such as '^orders\\..*'.",
            autocompletion=completion.topics,
        ),
    ],
    *,
    offset: Annotated[
        str,
        typer.Option("--offset", "-o", help="beginning, end, an offset, -N (the last N), or @TIME (ms or ISO 8601)."),
    ] = "beginning",
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="End each partition at the first record with this time or later."),
    ] = None,
    exit_at_end: Annotated[
        bool,
        typer.Option(
            "--exit", "-e", help="End at the log end offsets that the partitions have when the command starts."
        ),
    ] = False,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="End after this number of records.")] = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", help="Only this partition.")] = None,
    output_format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            help="%t topic, %p partition, %o offset, %T timestamp, %d date, %k key, %s value, %h headers, %K %S sizes.",
        ),
    ] = _DEFAULT_FORMAT,
    as_json: Annotated[bool, typer.Option("--json", "-J", help="Print one JSON object per record.")] = False,
    group: Annotated[
        str | None,
        typer.Option("--group", "-G", help="Consume as a member of this consumer group, and commit offsets."),
    ] = None,
    share_group: Annotated[
        str | None,
        typer.Option("--share-group", help="Consume as a member of this share group (KIP-932)."),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option("--match", "-m", metavar="REGEX", help="Only records whose key, value or headers match."),
    ] = None,
    registry: SchemaRegistryUrl = None,
    isolation: Annotated[
        str, typer.Option(help="Isolation level: read_uncommitted or read_committed.")
    ] = "read_uncommitted",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records of topics until the command is interrupted. -e and -c end it earlier.

    barnabas consume flights -o -10 -e -f '%o %k %s\\n'

    A member of a consumer group (-G) starts at the committed offsets, and at -o in partitions without a committed
    offset. A member of a share group accepts the printed records; with -e it ends when no record arrives for three
    seconds.
    """
    if isolation not in ("read_uncommitted", "read_committed"):
        raise typer.BadParameter(f"{isolation!r}: unknown isolation level")
    level: IsolationLevel = "read_committed" if isolation == "read_committed" else "read_uncommitted"
    chosen = _topics(topics)
    if group is not None and (partition or until or offset not in _RESETS):
        raise typer.BadParameter(
            "--group: the group assigns partitions and offsets. Only -o beginning and -o end are supported, not -p and "
            "--until"
        )

    if share_group is not None:
        _check_share_options(chosen, group, partition, until, offset, isolation)

    async def work() -> None:
        show = record_writer(output_format, as_json=as_json, registry=registry)
        until_ms = None if until is None else parse_time_ms(until.removeprefix("@"))
        task = Task(chosen, partition, offset, until_ms, exit_at_end, count, _matcher(match))
        if share_group is not None:
            async with admin_of(bootstrap) as admin:
                for name in chosen.names:  # a share group waits for topics that do not exist
                    await admin.partitions_of(name)
            async with _share_consumer(bootstrap, share_group, task) as member:
                await _print_shared(member, task, show)
            return
        consumer = _consumer(bootstrap, group, _RESETS.get(offset, "latest"), level)
        async with consumer:
            await (_print_records if group is None else _print_as_member)(consumer, task, show)

    run(work())


def _consumer(bootstrap: str, group: str | None, reset: AutoOffsetReset, isolation: IsolationLevel) -> Consumer:
    """Return the client's settings, overridden by `-X`; group settings of a file apply to members of a group only."""
    settings = {
        "auto_offset_reset": reset,
        "max_poll_records": _BATCH,
        "fetch_max_wait_ms": 100,
        "isolation_level": isolation,
    } | client_arguments(Consumer, without=() if group else GroupOptions.__optional_keys__)
    return Consumer(bootstrap_servers(bootstrap), group_id=group, allow_auto_create_topics=False, **settings)


def _check_share_options(
    topics: Topics, group: str | None, partition: list[int] | None, until: str | None, offset: str, isolation: str
) -> None:
    """Raise typer.BadParameter for options that cannot be combined with --share-group."""
    if group is not None:
        raise typer.BadParameter("--group and --share-group exclude each other")
    if partition or until or offset != "beginning":
        raise typer.BadParameter(
            "--share-group: the group assigns records, so -p, --until and -o are not supported. The group setting "
            "share.auto.offset.reset determines the start"
        )
    if isolation != "read_uncommitted":
        raise typer.BadParameter("--share-group: --isolation is not supported. Set share.isolation.level of the group")
    if topics.pattern is not None:
        raise typer.BadParameter("--share-group: expected names of topics, patterns are not supported")


def _share_consumer(bootstrap: str, group: str, task: Task) -> ShareConsumer:
    """Return a share consumer, with the settings of `-X`. With --count, no fetch acquires more records than that."""
    settings: dict[str, Any] = {"fetch_max_wait_ms": 100}
    if task.most is not None:
        settings |= {"share_acquire_mode": "record_limit", "max_poll_records": min(task.most, _SHARE_BATCH)}
    settings |= client_arguments(ShareConsumer)
    return ShareConsumer(
        bootstrap_servers(bootstrap), group, task.topics.names, allow_auto_create_topics=False, **settings
    )


async def _print_shared(consumer: ShareConsumer, task: Task, show: Callable[[ConsumerRecord], bytes]) -> None:
    """Print records. The next read, or the end of the consumer's `async with` block, accepts them."""
    left = task.most
    while left != 0:
        batches = await consumer.getmany(timeout_ms=_SHARE_END_MS, max_records=left and min(left, _SHARE_BATCH))
        for records in batches.values():
            chosen = [record for record in map(_as_consumed, records) if task.matches(record)]
            sys.stdout.buffer.write(b"".join(map(show, chosen)))
            left = None if left is None else left - len(chosen)
        sys.stdout.buffer.flush()
        if task.exit_at_end and not batches and consumer.assignment:
            break


def _as_consumed(record: ShareRecord) -> ConsumerRecord:
    return ConsumerRecord(*(getattr(record, name) for name in ConsumerRecord._fields))


def _topics(given: list[str]) -> Topics:
    """Combine several patterns into one. Raises typer.BadParameter."""
    for name in given:
        if not name.startswith("^") and _NO_NAME.search(name):
            raise typer.BadParameter(f"{name!r}: invalid name of a topic; a pattern begins with ^, such as '^orders.*'")
    patterns = [name.removeprefix("^").removesuffix("$") for name in given if name.startswith("^")]
    if not patterns:
        return Topics(list(dict.fromkeys(given)), None)
    patterns += [re.escape(name) for name in given if not name.startswith("^")]
    try:
        return Topics(given, re.compile("|".join(f"(?:{pattern})" for pattern in patterns)))
    except re.error as error:
        raise typer.BadParameter(f"{' '.join(given)}: {error}") from None


async def _print_as_member(consumer: Consumer, task: Task, show: Callable[[ConsumerRecord], bytes]) -> None:
    """Commit printed records: at intervals, when partitions are revoked, and at the end."""
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
    """Return whether the member has partitions, and has read all of them to their end."""
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
    """Return the partitions of all topics, or these numbers, which every topic must have. Raises KafkaError."""
    names, pattern = task.topics
    if pattern is not None:
        names = [name for name in await consumer.list_topics() if pattern.fullmatch(name)]
        if not names:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic matches {' or '.join(task.topics.names)}")
    partitions = []
    for name in names:
        # A topic that was just created may be unknown to some brokers; after 2 s it counts as missing.
        known = await consumer.partitions_for(name, timeout_ms=2000)
        if missing := [str(index) for index in task.partitions or () if index not in known]:
            count = f"{len(known)} partition{'s' if len(known) > 1 else ''}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} has {count}; missing: {', '.join(missing)}")
        partitions += [TopicPartition(name, index) for index in task.partitions or known]
    return partitions


async def _starts(consumer: Consumer, partitions: list[TopicPartition], offset: str) -> dict[TopicPartition, int]:
    """Return the start offset of each partition. Raises ValueError."""
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
        raise ValueError(f"{offset}: not an offset; expected beginning, end, N, -N or @TIME") from None
    if number >= 0:
        return {tp: max(number, first[tp]) for tp in partitions}
    ends = await consumer.end_offsets(partitions)
    return {tp: await _start_of_last(consumer, tp, first[tp], ends[tp], -number) for tp in partitions}


async def _start_of_last(consumer: Consumer, tp: TopicPartition, first: int, end: int, count: int) -> int:
    """Return the offset from which on the partition has `count` records before `end`; `first` if it has fewer.

    Offsets without a record do not count: transaction markers, aborted records for a read_committed consumer, and gaps
    that compaction left. Stretches before the end are read, each twice as long as the one after it.
    """
    width = count
    while end > first and count > 0:
        start = max(first, end - width)
        offsets = await _record_offsets(consumer, tp, start, end)
        if len(offsets) >= count:
            return offsets[-count]
        count -= len(offsets)
        end, width = start, 2 * width
    return end


async def _record_offsets(consumer: Consumer, tp: TopicPartition, start: int, end: int) -> list[int]:
    """Return the offsets from `start` on and before `end` that hold a record for this consumer."""
    consumer.assign([tp])
    consumer.seek(tp, start)
    offsets: list[int] = []
    while await consumer.position(tp) < end:
        for records in (await consumer.getmany(timeout_ms=_POLL_MS)).values():
            offsets += [record.offset for record in records if record.offset < end]
    return offsets


async def _ends(consumer: Consumer, partitions: list[TopicPartition], task: Task) -> dict[TopicPartition, int] | None:
    """Return the end offsets, None for no end."""
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
