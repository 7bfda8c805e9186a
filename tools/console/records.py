"""Records of a topic: the newest, from a position, search results, live records; a single record, and a new one."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, NamedTuple

from ...clients.consumer import Consumer
from ...clients.decoding.decoder import Decoded, Part
from ...clients.fetched_records import ConsumerRecord
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.special_timestamps import EARLIEST, LATEST
from ...protocol.topic_partition import TopicPartition
from ..record_envelope import envelope
from .cluster import MAX_FOLLOWINGS, WatchedCluster
from .previews import (
    LIST_CHARS,
    SHOWN_BYTES,
    brief,
    decoded,
    full,
    preview,
    with_form,
)
from .record_filter import Headers, Wanted, header_filter, record_filter

MAX_ROWS = 500
"""Maximum rows of a request; the page requests fewer."""
SCAN_RECORDS = 200_000
SCAN_SECONDS = 20.0
"""Limits of a search, which returns the position to continue at; also the timeout for a single record."""
SEARCHED_BACK = 50_000
"""Records of all partitions together in a search of the newest records."""
FOLLOW_SECONDS = 0.25
"""Pause between two portions of live records."""
FOLLOW_ROWS = 500
"""Maximum number of live records per portion. A portion is read with the same limit, so no record is omitted."""
FOLLOW_BEHIND = 2_000
"""Lag after which a live page continues at the end: no user reads faster."""
EXPORT_RECORDS = 100_000
EXPORT_BYTES = 256 << 20
EXPORT_SECONDS = 120.0
"""Limits of one exported file."""
MAX_HEADERS = 100
BEFORE = "before:"
MAX_PLACES = 500
"""A search in more partitions cannot be continued: the position would not fit into a URL."""
MAX_LEADERLESS = 20
REST_BYTES = 1 << 20
LIST_BYTES = 16 << 10
"""A larger key or value is decoded in the single view and in searches only."""
_PARTS: tuple[Part, Part] = ("key", "value")
_BATCH = 500
_WAIT_MS = 250

Line = dict[str, Any]
Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Query:
    """A query. `begin` is latest, earliest, `offset:N`, `time:MS`, or the `next` of an earlier response: `0:17,1:4`
    for the records from these offsets on, `before:0:17,1:4` for the newest records before them.
    """

    topic: str
    wanted: Wanted
    wanted_headers: Callable[[Headers], bool] | None
    is_search: bool
    partition: int | None
    begin: str
    limit: int
    follow: bool

    @classmethod
    def parse(cls, topic: str, given: Mapping[str, str]) -> Query:
        """Parse a URL's query. Raises ValueError."""
        terms = {name: given.get(name, "") for name in ("key", "text", "path")}
        partition, header = given.get("partition", ""), given.get("header", "").strip()
        return cls(
            topic,
            record_filter(**terms),
            header_filter(header) if header else None,
            any(terms.values()) or bool(header),
            int(partition) if partition else None,
            given.get("from", "latest"),
            min(max(1, int(given.get("limit", "50"))), MAX_ROWS),
            given.get("follow") == "1",
        )

    @property
    def is_newest_first(self) -> bool:
        """Return whether the response begins with the last record."""
        return self.begin == "latest" or self.begin.startswith(BEFORE)


def row(record: ConsumerRecord) -> Line:
    """Return a record in a list."""
    return {
        "p": record.partition,
        "o": record.offset,
        "t": record.timestamp,
        "h": len(record.headers),
        "key": preview(record.key),
        "value": preview(record.value),
    }


class Found(NamedTuple):
    """A record's row, and its bytes up to the limit of decoding."""

    row: Line
    key: bytes | None
    value: bytes | None

    @classmethod
    def of(cls, record: ConsumerRecord) -> Found:
        key, value = (data if data and len(data) <= LIST_BYTES else None for data in (record.key, record.value))
        return cls(row(record), key, value)


class Span(NamedTuple):
    """The first offset, and the start and end of a read, of each partition."""

    first: Offsets
    starts: Offsets
    ends: Offsets


class NewestPage:
    """The newest records of some partitions, up to a limit.

    The records of each partition are a suffix of the read range, so that the next page continues before them. Hence
    the order is not by timestamps alone, which may decrease within a partition: a record counts as not older than its
    predecessors in its range. Records of a later range precede records of the ranges before it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._range = 0
        self._newest: dict[int, int] = {}
        self._found: list[tuple[tuple[int, int, int, int], Found]] = []
        self._dropped: dict[int, int] = {}
        """The last dropped offset of each partition."""

    def begin_range(self) -> None:
        """Begin a range of offsets before all earlier ranges."""
        self._range -= 1
        self._newest.clear()

    def add(self, record: ConsumerRecord) -> None:
        """Add a record, in the order of offsets of its partition."""
        newest = max(record.timestamp, self._newest.get(record.partition, record.timestamp))
        self._newest[record.partition] = newest
        self._found.append(((self._range, newest, record.partition, record.offset), Found.of(record)))
        if len(self._found) >= 2 * self._limit:
            self._trim()

    def is_full(self) -> bool:
        return len(self._found) >= self._limit

    def rows(self) -> list[Found]:
        """Return the records of the page, the newest first."""
        self._trim()
        found = [one for _, one in self._found]
        return sorted(found, key=lambda one: (one.row["t"], one.row["o"]), reverse=True)

    def next_ends(self, starts: Offsets) -> Offsets:
        """Return the end of each partition's read for the next page, after reads from `starts` on."""
        self._trim()
        return {tp: self._dropped.get(tp.partition, start - 1) + 1 for tp, start in starts.items()}

    def _trim(self) -> None:
        self._found.sort(key=lambda one: one[0])
        dropped, self._found = self._found[: -self._limit], self._found[-self._limit :]
        for (_, _, partition, offset), _ in dropped:
            self._dropped[partition] = max(offset, self._dropped.get(partition, -1))


class RecordPages:
    """Reads of records; they are limited by `WatchedCluster.readings`, and each has its own consumer."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster

    async def stream(self, query: Query) -> AsyncGenerator[Line, None]:
        """Yield lines with `rows`, the number of `scanned` records, and at the end `done` or `error`."""
        turns = self._cluster.followings if query.follow else self._cluster.readings
        if query.follow and turns.locked():
            yield {"error": f"at most {MAX_FOLLOWINGS} pages can show topics live"}
            return
        try:
            async with turns:
                led, leaderless = await self._led(query.topic, query.partition)
                if leaderless:
                    yield {"leaderless": leaderless[:MAX_LEADERLESS], "of": len(leaderless)}
                if not led:
                    yield {"done": True, "next": None}
                    return
                span = await self._range(query, led)
                if query.follow:
                    lines = self._follow(query, span)
                elif query.is_newest_first:
                    lines = self._newest(query, span)
                else:
                    lines = self._scan(query, span)
                async with aclosing(lines):
                    async for line in lines:
                        yield line
        except (KafkaError, TimeoutError, OSError, ValueError) as error:
            yield {"error": str(error) or "no response in time"}

    async def export(self, query: Query, most: int) -> AsyncGenerator[bytes, None]:
        """Yield matching records as lines of JSON in the format of `barnabas consume --json`, up to `most` and the
        limits of a file. Keys and values are not decoded.

        With the position `latest` these are the last records of each partition. Raises KafkaError before the first
        line; a later error ends the file with a line that has `error`.
        """
        most = min(max(1, most), EXPORT_RECORDS)
        deadline, size = asyncio.get_running_loop().time() + EXPORT_SECONDS, 0
        async with self._cluster.readings:
            led, leaderless = await self._led(query.topic, query.partition)
            if leaderless:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {leaderless[0]} has no leader")
            span = await self._range(replace(query, limit=most), led)
            starts = span.starts
            if query.is_newest_first and not query.is_search:
                share = max(1, most // len(led))
                starts = {tp: max(span.first[tp], end - share) for tp, end in span.ends.items()}
            yield b""  # the response begins when the range is known, and an unknown topic is an error before it
            try:
                async with aclosing(self._portions(starts, span.ends)) as portions:
                    async for portion, _ in portions:
                        lines = [envelope(record) async for record in self._matching(query, portion)][:most]
                        most -= len(lines)
                        data = b"".join(lines)
                        size += len(data)
                        if data:
                            yield data
                        if not most or size > EXPORT_BYTES or asyncio.get_running_loop().time() > deadline:
                            return
            except (KafkaError, TimeoutError, OSError) as error:
                yield json.dumps({"error": str(error) or "no response in time"}).encode() + b"\n"

    async def one(self, topic: str, partition: int, offset: int) -> ConsumerRecord:
        """Read one record. Raises KafkaError(OFFSET_OUT_OF_RANGE) if it does not exist, for example after compaction,
        and TimeoutError.

        A read_committed consumer never receives a record of an open transaction.
        """
        tp = TopicPartition(topic, partition)
        missing = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{tp} has no record at offset {offset}")
        async with self._cluster.readings, asyncio.timeout(SCAN_SECONDS):
            await self._partitions(topic, partition)
            ends = await self._cluster.admin.list_offsets({tp: LATEST})
            if not 0 <= offset < ends[tp].offset:
                raise missing
            async with self._cluster.consumer() as consumer:
                consumer.assign([tp])
                consumer.seek(tp, offset)
                while await consumer.position(tp) <= offset:
                    for record in (await consumer.getmany(timeout_ms=_WAIT_MS, max_records=1)).get(tp, ()):
                        if record.offset == offset:
                            return record
        raise missing

    async def described(self, topic: str, partition: int, offset: int) -> Line:
        """Return one record with all its forms."""
        record = await self.one(topic, partition, offset)
        headers = [{"key": brief(key.encode()), "value": brief(value)} for key, value in record.headers[:MAX_HEADERS]]
        shown: Line = {**row(record), "headers": headers}
        for part, data in zip(_PARTS, (record.key, record.value), strict=True):
            (what,) = await self._cluster.decoder.decode(topic, part, [data], most=SHOWN_BYTES, indent=2)
            shown[part] = with_form(full(data), what)
            shown[part]["schema_id"] = None if what is None else what.schema_id
        return shown

    async def produce(self, topic: str, body: Mapping[str, Any]) -> Line:
        """Produce one record; `copy` identifies a record whose value is copied unchanged. Raises KafkaError,
        ValueError.
        """
        value, copied = _bytes(body.get("value")), body.get("copy")
        if isinstance(copied, Mapping):
            source = (int(copied.get("partition", -1)), int(copied.get("offset", -1)))
            value = (await self.one(str(copied.get("topic", "")), *source)).value
        headers = [(str(one["key"]), _bytes(one.get("value"))) for one in _headers(body.get("headers"))]
        partition = None if body.get("partition") in (None, "") else int(body["partition"])
        # A misspelt name would create a topic.
        await self._partitions(topic, partition)
        producer = await self._cluster.producer()
        done = await (
            await producer.send(topic, value, key=_bytes(body.get("key")), headers=headers, partition=partition)
        )
        return {"partition": done.partition, "offset": done.offset}

    # Reading

    async def _range(self, query: Query, tps: Sequence[TopicPartition]) -> Span:
        """Return the start and end of each partition's read. Raises KafkaError, ValueError."""
        admin = self._cluster.admin
        first = {tp: at.offset for tp, at in (await admin.list_offsets(dict.fromkeys(tps, EARLIEST))).items()}
        ends = {tp: at.offset for tp, at in (await admin.list_offsets(dict.fromkeys(tps, LATEST))).items()}
        back = max(1, (SEARCHED_BACK if query.is_search else 4 * query.limit) // len(tps) + 1)
        kind, _, value = query.begin.partition(":")
        if query.is_newest_first:
            if query.begin.startswith(BEFORE):
                went_on = _places(value)
                ends = {tp: min(went_on.get(tp.partition, first[tp]), ends[tp]) for tp in tps}
            starts = {tp: end - (back if query.is_search else min(back, query.limit)) for tp, end in ends.items()}
        elif kind == "offset":
            starts = dict.fromkeys(tps, int(value))
        elif kind == "time":
            found = await admin.list_offsets(dict.fromkeys(tps, int(value)))
            starts = {tp: at.offset if at.offset >= 0 else ends[tp] for tp, at in found.items()}
        elif kind.isdecimal():
            went_on = _places(query.begin)
            starts = {tp: went_on.get(tp.partition, ends[tp]) for tp in tps}
        else:
            starts = first
        return Span(first, {tp: min(max(starts[tp], first[tp]), ends[tp]) for tp in tps}, ends)

    async def _led(self, topic: str, partition: int | None) -> tuple[list[TopicPartition], list[int]]:
        """Return the readable partitions, and the numbers of partitions without a leader. Raises KafkaError."""
        wanted = await self._partitions(topic, partition)
        (now,) = await self._cluster.admin.describe_topics([topic])
        led = [tp for tp in wanted if tp.partition in now.available]
        return led, [tp.partition for tp in wanted if tp.partition not in now.available]

    async def _partitions(self, topic: str, partition: int | None) -> list[TopicPartition]:
        """Return all partitions of the topic, or one. Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION) immediately."""
        there = await self._cluster.admin.partitions_of(topic)
        wanted = [tp for tp in there if partition in (None, tp.partition)]
        if not wanted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {partition}")
        return wanted

    async def _newest(self, query: Query, span: Span) -> AsyncGenerator[Line, None]:
        """Yield the last records of all partitions, the newest first, and the position of the next page.

        Offsets may have no record (markers, aborted records, gaps of compaction), and a few partitions may have nearly
        all records. So ranges before `starts` are read, each twice as long as the range after it, until there are
        enough rows. A search reads only the first range, which is long.
        """
        first, starts, ends = span
        page = NewestPage(query.limit)
        scanned, deadline = 0, asyncio.get_running_loop().time() + SCAN_SECONDS
        width, is_late = max((ends[tp] - starts[tp] for tp in starts), default=0), False
        while True:
            page.begin_range()
            async with aclosing(self._portions(starts, ends)) as portions:
                async for portion, _ in portions:
                    scanned += len(portion)
                    async for record in self._matching(query, portion):
                        page.add(record)
                    yield {"scanned": scanned}
                    is_late = asyncio.get_running_loop().time() > deadline
                    if is_late:
                        break
            if is_late or query.is_search or scanned >= SCAN_RECORDS or page.is_full():
                break
            if all(starts[tp] <= first[tp] for tp in starts):
                break
            width = max(1, 2 * width)
            ends, starts = starts, {tp: max(first[tp], starts[tp] - width) for tp in starts}
        yield {"rows": await self._rows(query, page.rows()), "scanned": scanned}
        # Where the deadline has interrupted a range, its last records were not read: the page has no successor.
        ahead = {} if is_late else {tp: end for tp, end in page.next_ends(starts).items() if end > first[tp]}
        yield {"done": True, "next": _continuation(ahead, BEFORE), "late": is_late}

    async def _scan(self, query: Query, span: Span) -> AsyncGenerator[Line, None]:
        """Yield records from the start until there are enough, in the order of reading."""
        _, starts, ends = span
        scanned, left, at = 0, query.limit, starts
        deadline = asyncio.get_running_loop().time() + SCAN_SECONDS
        async with aclosing(self._portions(starts, ends)) as portions:
            async for portion, positions in portions:
                before, at, rows = at, positions, list[Found]()
                scanned += len(portion)
                async for record in self._matching(query, portion):
                    if len(rows) == left:
                        # The rest of the portion is read again when the search continues.
                        at = _up_to(record, portion, before)
                        break
                    rows.append(Found.of(record))
                left -= len(rows)
                yield {"rows": await self._rows(query, rows), "scanned": scanned}
                if not left or scanned >= SCAN_RECORDS or asyncio.get_running_loop().time() > deadline:
                    break
        ahead = {tp: offset for tp, offset in at.items() if offset < ends[tp]}
        yield {"done": True, "next": _continuation(ahead), "late": bool(left) and bool(ahead)}

    async def _portions(
        self, starts: Offsets, ends: Offsets
    ) -> AsyncGenerator[tuple[list[ConsumerRecord], Offsets], None]:
        """Yield records up to the ends, with the position of each partition after them."""
        at = dict(starts)
        ahead = {tp for tp in starts if starts[tp] < ends[tp]}
        if not ahead:
            return
        async with self._cluster.consumer() as consumer:
            _begin(consumer, {tp: starts[tp] for tp in ahead})
            while ahead:
                batch = await consumer.getmany(timeout_ms=_WAIT_MS, max_records=_BATCH)
                for tp in list(ahead):
                    at[tp] = min(await consumer.position(tp), ends[tp])
                    if at[tp] >= ends[tp]:
                        consumer.pause(tp)
                        ahead.discard(tp)
                yield [r for tp, records in batch.items() for r in records if r.offset < ends[tp]], dict(at)

    async def _follow(self, query: Query, span: Span) -> AsyncGenerator[Line, None]:
        """Yield the newest records and then new ones, until the client disconnects."""
        scanned = 0
        async with aclosing(self._newest(query, span)) as present:
            async for line in present:
                scanned = line.get("scanned", scanned)
                if "rows" in line:
                    yield {"rows": line["rows"][::-1], "scanned": scanned, "skipped": 0}
        async with self._cluster.consumer() as consumer:
            _begin(consumer, span.ends)
            while True:
                batch = await consumer.getmany(timeout_ms=4 * _WAIT_MS, max_records=FOLLOW_ROWS)
                portion = [record for records in batch.values() for record in records]
                scanned += len(portion)
                found = [record async for record in self._matching(query, portion)]
                skipped = 0 if query.is_search else await _catch_up(consumer)
                found.sort(key=lambda r: (r.timestamp, r.offset))
                rows = await self._rows(query, [Found.of(record) for record in found])
                yield {"rows": rows, "scanned": scanned, "skipped": skipped}
                if portion:
                    await asyncio.sleep(FOLLOW_SECONDS if not query.is_search else 0.02)

    # Display

    async def _rows(self, query: Query, found: Sequence[Found]) -> list[Line]:
        """Decode keys and values with their schemas."""
        rows = [one.row for one in found]
        for part, data in zip(_PARTS, ([one.key for one in found], [one.value for one in found]), strict=True):
            for shown, what in zip(
                rows, await self._cluster.decoder.decode(query.topic, part, data, most=LIST_CHARS + 1), strict=True
            ):
                shown[part] = decoded(shown[part], what)
        return rows

    async def _matching(self, query: Query, portion: Sequence[ConsumerRecord]) -> AsyncGenerator[ConsumerRecord, None]:
        """Yield the records that match the query. Keys and values are compared as bytes and in their decoded forms.

        The loop serves other requests in between, as records may be large.
        """
        searched = portion if query.is_search else []
        decode, topic = self._cluster.decoder.decode, query.topic
        keys = await decode(topic, "key", [record.key for record in searched], most=REST_BYTES)
        values = await decode(topic, "value", [record.value for record in searched], most=REST_BYTES)
        looked_at = 0
        for record, decoded_key, decoded_value in zip_longest(portion, keys, values):
            looked_at += len(record.value or b"")
            if looked_at > REST_BYTES:
                looked_at = 0
                await asyncio.sleep(0)  # let other requests be served
            of_key, of_value = _forms(record.key, decoded_key), _forms(record.value, decoded_value)
            if query.wanted_headers is not None and not query.wanted_headers(record.headers):
                continue
            if any(query.wanted(key, value) for key in of_key for value in of_value):
                yield record


def _forms(data: bytes | None, decoded: Decoded | None) -> list[bytes | None]:
    """Return a key or a value as bytes, as decoded JSON, and, for a JSON string, as its text."""
    forms = [data]
    if decoded is not None and decoded.text is not None:
        forms.append(decoded.text.encode("utf-8", "surrogatepass"))
        if decoded.text.startswith('"'):
            with suppress(ValueError):  # truncated text is incomplete
                forms.append(str(json.loads(decoded.text)).encode("utf-8", "surrogatepass"))
    return forms


def _places(text: str) -> dict[int, int]:
    """Parse offsets by partition, `0:17,1:4`. Raises ValueError."""
    return {int(partition): int(offset) for partition, _, offset in (pair.partition(":") for pair in text.split(","))}


def _continuation(at: Offsets, prefix: str = "") -> str | None:
    """Return the position of a further read; None if there is nothing left, or too much for a URL."""
    if not 0 < len(at) <= MAX_PLACES:
        return None
    return prefix + ",".join(f"{tp.partition}:{offset}" for tp, offset in at.items())


def _up_to(end: ConsumerRecord, portion: Sequence[ConsumerRecord], before: Offsets) -> Offsets:
    """Return the position of a read that has processed this portion up to `end`."""
    at = dict(before)
    for record in portion:
        if record is end:
            break
        at[TopicPartition(record.topic, record.partition)] = record.offset + 1
    return at


def _begin(consumer: Consumer, starts: Offsets) -> None:
    consumer.assign(starts)
    for tp, offset in starts.items():
        consumer.seek(tp, offset)


async def _catch_up(consumer: Consumer) -> int:
    """Continue near the end if too many records have arrived; return the number of skipped records."""
    skipped = 0
    for tp in consumer.assignment:
        end, at = consumer.high_watermark(tp), await consumer.position(tp)
        if end is not None and end - at > FOLLOW_BEHIND:
            consumer.seek(tp, end - FOLLOW_ROWS)
            skipped += end - FOLLOW_ROWS - at
    return skipped


def _headers(given: object) -> list[Mapping[str, Any]]:
    """Parse `[{"key": …, "value": …}]`. Raises ValueError."""
    headers = given or []
    if not isinstance(headers, list) or not all(isinstance(one, Mapping) and "key" in one for one in headers):
        raise ValueError("headers: expected a list of keys with values")
    return headers


def _bytes(given: object) -> bytes | None:
    """Parse `{"text": …}`, `{"base64": …}` or None. Raises ValueError."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        if isinstance(given.get("text"), str):
            return str(given["text"]).encode("utf-8", "surrogatepass")
        if isinstance(given.get("base64"), str):
            try:
                return base64.b64decode(given["base64"], validate=True)
            except binascii.Error as error:
                raise ValueError(f"no base64: {error}") from None
    raise ValueError('expected {"text": …}, {"base64": …} or null')
