"""`barnabas consume`: a topic's records to a pipe or a terminal, as kcat does it; with --match it searches."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable
from typing import Annotated, NamedTuple

import typer

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..consumer import AutoOffsetReset, Consumer, IsolationLevel
from ..fetched_records import ConsumerRecord
from .session import DEFAULT_BOOTSTRAP, Bootstrap, parse_time_ms, run, security

app = typer.Typer(add_completion=False)

_DEFAULT_FORMAT = "%s\\n"
_POLL_MS = 500
_RESETS: dict[str, AutoOffsetReset] = {"beginning": "earliest", "end": "latest"}
_BATCH = 5000
_TOKEN = re.compile(rb"%(.)|([^%]+)", re.DOTALL)


class Task(NamedTuple):
    """What to read and when to end."""

    topic: str
    partitions: list[int] | None
    offset: str
    until_ms: int | None
    exit_at_end: bool
    most: int | None
    matches: Callable[[ConsumerRecord], bool]


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(help="The topic.")],
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
            help="%t topic, %p partition, %o offset, %T timestamp, %k key, %s value, %h headers, %K %S sizes.",
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
    isolation: Annotated[str, typer.Option(help="read_uncommitted or read_committed.")] = "read_uncommitted",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print a topic's records; without -e or -c for ever.

    barnabas consume flights -o -10 -e -f '%o %k %s\\n'

    A member of a group (-G) goes on where the group has come to; -o says where it begins if it has not.
    """
    if isolation not in ("read_uncommitted", "read_committed"):
        raise typer.BadParameter(f"{isolation!r} is no isolation level")
    level: IsolationLevel = "read_committed" if isolation == "read_committed" else "read_uncommitted"
    show = envelope if as_json else formatter(output_format)
    if group is not None and (partition or until or offset not in _RESETS):
        raise typer.BadParameter("a group shares out partitions and knows where it is: no -p, no --until, no such -o")

    async def work() -> None:
        until_ms = None if until is None else parse_time_ms(until.removeprefix("@"))
        task = Task(topic, partition, offset, until_ms, exit_at_end, count, _matcher(match))
        consumer = Consumer(
            bootstrap,
            group_id=group,
            auto_offset_reset=_RESETS.get(offset, "latest"),
            isolation_level=level,
            max_poll_records=_BATCH,
            allow_auto_create_topics=False,
            fetch_max_wait_ms=100,
            security=security(),
        )
        async with consumer:
            await (_print_records if group is None else _print_as_member)(consumer, task, show)

    run(work())


async def _print_as_member(consumer: Consumer, task: Task, show: Callable[[ConsumerRecord], bytes]) -> None:
    """What was printed is committed: at intervals, when partitions go to another member, and at the end."""
    left = task.most
    consumer.subscribe([task.topic])
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
    # A topic that was just created may not be known everywhere; one that is missing for 2 s is missing.
    known = await consumer.partitions_for(task.topic, timeout_ms=2000)
    if missing := [str(index) for index in task.partitions or () if index not in known]:
        count = f"{len(known)} partition{'s' if len(known) > 1 else ''}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{task.topic} has {count}, and no {', '.join(missing)}")
    indexes = task.partitions or known
    partitions = [TopicPartition(task.topic, index) for index in indexes]
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


def formatter(text: str) -> Callable[[ConsumerRecord], bytes]:
    """A function that prints a record in a kcat format string. Raises ValueError for an unknown token."""
    raw = text.encode().decode("unicode_escape").encode("latin-1")
    pieces: list[Callable[[ConsumerRecord], bytes]] = []
    for token, literal in _TOKEN.findall(raw):
        if literal:
            pieces.append(_constant(literal))
        elif token in _TOKENS:
            pieces.append(_TOKENS[token])
        else:
            raise typer.BadParameter(f"%{token.decode(errors='replace')} is no format token")
    if len(pieces) == 2 and raw == b"%s\n":
        return lambda record: (record.value or b"") + b"\n"
    return lambda record: b"".join([piece(record) for piece in pieces])


def _constant(data: bytes) -> Callable[[ConsumerRecord], bytes]:
    return lambda record: data


def _size(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


_TOKENS: dict[bytes, Callable[[ConsumerRecord], bytes]] = {
    b"s": lambda record: record.value or b"",
    b"S": lambda record: _size(record.value),
    b"k": lambda record: record.key or b"",
    b"K": lambda record: _size(record.key),
    b"t": lambda record: record.topic.encode(),
    b"p": lambda record: b"%d" % record.partition,
    b"o": lambda record: b"%d" % record.offset,
    b"T": lambda record: b"%d" % record.timestamp,
    b"h": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
    b"%": lambda record: b"%",
}


def envelope(record: ConsumerRecord) -> bytes:
    """A record as a line of JSON, with kcat's names; bytes that are no text as `{"base64": …}`."""
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": record.timestamp_type.name.lower(),
        "ts": record.timestamp,
        "headers": [[name, _text(value)] for name, value in record.headers],
        "key": _text(record.key),
        "payload": _text(record.value),
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
