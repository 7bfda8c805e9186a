"""Records of a topic: the newest, from somewhere on, searched, as they come; one alone, and one more."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.special_timestamps import EARLIEST, LATEST
from ...protocol.topic_partition import TopicPartition
from ..consumer import Consumer
from ..fetched_records import ConsumerRecord
from ..turns import next_turn
from .cluster import MOST_FOLLOWINGS, WatchedCluster
from .decoding.decoder import Part
from .previews import LIST_CHARS, SHOWN_BYTES, brief, decoded, full, preview, with_form
from .record_filter import Wanted, record_filter

MOST_ROWS = 500
"""A page asks for fewer; a stranger gets no more."""
SCAN_RECORDS = 200_000
SCAN_SECONDS = 20.0
"""A search ends after so many records or so long, and says where it would go on; one record is waited for no longer."""
SEARCHED_BACK = 50_000
"""Of the newest records of all partitions together, where a search begins at the end."""
FOLLOW_SECONDS = 0.25
"""Between two portions of what comes."""
FOLLOW_ROWS = 100
FOLLOW_BEHIND = 2_000
"""Who follows and falls so far behind goes on at the end: nobody reads faster than that."""
MOST_HEADERS = 100
MOST_PLACES = 500
"""A search in more partitions than that cannot be gone on with: it would not fit into a URL."""
MOST_LEADERLESS = 20
REST_BYTES = 1 << 20
LIST_BYTES = 16 << 10
"""A larger key or value is decoded where it is looked at alone, or searched."""
_PARTS: tuple[Part, Part] = ("key", "value")
_BATCH = 500
_WAIT_MS = 250

Line = dict[str, Any]
Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for. `begin` is latest, earliest, `offset:N`, `time:MS` or, to go on, `0:17,1:4`."""

    topic: str
    wanted: Wanted
    is_search: bool
    partition: int | None
    begin: str
    limit: int
    follow: bool

    @classmethod
    def parse(cls, topic: str, given: Mapping[str, str]) -> Query:
        """From a URL's query. Raises ValueError."""
        terms = {name: given.get(name, "") for name in ("key", "text", "path")}
        partition = given.get("partition", "")
        return cls(
            topic,
            record_filter(**terms),
            any(terms.values()),
            int(partition) if partition else None,
            given.get("from", "latest"),
            min(max(1, int(given.get("limit", "50"))), MOST_ROWS),
            given.get("follow") == "1",
        )


def row(record: ConsumerRecord) -> Line:
    """A record in a list."""
    return {
        "p": record.partition,
        "o": record.offset,
        "t": record.timestamp,
        "h": len(record.headers),
        "key": preview(record.key),
        "value": preview(record.value),
    }


class Found(NamedTuple):
    """A record's row, and its bytes as far as they may be decoded for it."""

    row: Line
    key: bytes | None
    value: bytes | None

    @classmethod
    def of(cls, record: ConsumerRecord) -> Found:
        key, value = (data if data and len(data) <= LIST_BYTES else None for data in (record.key, record.value))
        return cls(row(record), key, value)


class RecordPages:
    """Readings take turns (`WatchedCluster.readings`); each has a consumer of its own."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster

    async def stream(self, query: Query) -> AsyncGenerator[Line, None]:
        """Lines with `rows`, how much was `scanned`, and at the end `done` or `error`."""
        turns = self._cluster.followings if query.follow else self._cluster.readings
        if query.follow and turns.locked():
            yield {"error": f"{MOST_FOLLOWINGS} pages follow topics already"}
            return
        try:
            async with turns:
                led, leaderless = await self._led(query.topic, query.partition)
                if leaderless:
                    yield {"leaderless": leaderless[:MOST_LEADERLESS], "of": len(leaderless)}
                if not led:
                    yield {"done": True, "next": None}
                    return
                starts, ends = await self._range(query, led)
                if query.follow:
                    lines = self._follow(query, starts)
                elif query.begin == "latest":
                    lines = self._newest(query, starts, ends)
                else:
                    lines = self._scan(query, starts, ends)
                async with aclosing(lines):
                    async for line in lines:
                        yield line
        except (KafkaError, TimeoutError, OSError, ValueError) as error:
            yield {"error": str(error) or "no answer in time"}

    async def one(self, topic: str, partition: int, offset: int) -> ConsumerRecord:
        """Raises KafkaError(OFFSET_OUT_OF_RANGE) if there is none, as after compaction, and TimeoutError.

        What a transaction still holds back never comes to those who read committed records only.
        """
        tp = TopicPartition(topic, partition)
        missing = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"there is no record at offset {offset} of {tp}")
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
        """One record with all there is to see of it."""
        record = await self.one(topic, partition, offset)
        headers = [{"key": brief(key.encode()), "value": brief(value)} for key, value in record.headers[:MOST_HEADERS]]
        shown: Line = {**row(record), "headers": headers}
        for part, data in zip(_PARTS, (record.key, record.value), strict=True):
            (what,) = await self._cluster.decoder.decode(topic, part, [data], most=SHOWN_BYTES, indent=2)
            shown[part] = with_form(full(data), what)
        return shown

    async def produce(self, topic: str, body: Mapping[str, Any]) -> Line:
        """One record; `copy` names one whose value is taken as it is. Raises KafkaError, ValueError."""
        value, copied = _bytes(body.get("value")), body.get("copy")
        if isinstance(copied, Mapping):
            source = (int(copied.get("partition", -1)), int(copied.get("offset", -1)))
            value = (await self.one(str(copied.get("topic", "")), *source)).value
        headers = [(str(one["key"]), _bytes(one.get("value"))) for one in _headers(body.get("headers"))]
        partition = None if body.get("partition") in (None, "") else int(body["partition"])
        # A name that is mistaken would become a topic.
        await self._partitions(topic, partition)
        producer = await self._cluster.producer()
        done = await (
            await producer.send(topic, value, key=_bytes(body.get("key")), headers=headers, partition=partition)
        )
        return {"partition": done.partition, "offset": done.offset}

    # What is read, and how

    async def _range(self, query: Query, tps: Sequence[TopicPartition]) -> tuple[Offsets, Offsets]:
        """Where each partition's reading begins and, as of now, ends. Raises KafkaError."""
        admin = self._cluster.admin
        first = {tp: at.offset for tp, at in (await admin.list_offsets(dict.fromkeys(tps, EARLIEST))).items()}
        ends = {tp: at.offset for tp, at in (await admin.list_offsets(dict.fromkeys(tps, LATEST))).items()}
        back = max(1, (SEARCHED_BACK if query.is_search else 4 * query.limit) // len(tps) + 1)
        kind, _, value = query.begin.partition(":")
        if kind == "latest":
            starts = {tp: end - min(back, query.limit if not query.is_search else back) for tp, end in ends.items()}
        elif kind == "offset":
            starts = dict.fromkeys(tps, int(value))
        elif kind == "time":
            found = await admin.list_offsets(dict.fromkeys(tps, int(value)))
            starts = {tp: at.offset if at.offset >= 0 else ends[tp] for tp, at in found.items()}
        elif kind.isdecimal():
            went_on = dict(pair.split(":") for pair in query.begin.split(","))
            starts = {tp: int(went_on.get(str(tp.partition), ends[tp])) for tp in tps}
        else:
            starts = first
        return {tp: min(max(starts[tp], first[tp]), ends[tp]) for tp in tps}, ends

    async def _led(self, topic: str, partition: int | None) -> tuple[list[TopicPartition], list[int]]:
        """Those that can be read, and the numbers of those that nobody leads. Raises KafkaError."""
        wanted = await self._partitions(topic, partition)
        (now,) = await self._cluster.admin.describe_topics([topic])
        led = [tp for tp in wanted if tp.partition in now.available]
        return led, [tp.partition for tp in wanted if tp.partition not in now.available]

    async def _partitions(self, topic: str, partition: int | None) -> list[TopicPartition]:
        """All of the topic's, or the one. Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION) at once."""
        there = await self._cluster.admin.partitions_of(topic)
        wanted = [tp for tp in there if partition in (None, tp.partition)]
        if not wanted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {partition}")
        return wanted

    async def _newest(self, query: Query, starts: Offsets, ends: Offsets) -> AsyncGenerator[Line, None]:
        """The last ones of all partitions, the newest first."""
        rows: list[Found] = []
        scanned, deadline = 0, asyncio.get_running_loop().time() + SCAN_SECONDS
        async with aclosing(self._portions(starts, ends)) as portions:
            async for portion, _ in portions:
                scanned += len(portion)
                # Only so many are kept; what lies in a partition behind others has later offsets.
                found = [Found.of(record) async for record in self._matching(query, portion)]
                rows = sorted(rows + found, key=lambda one: (one.row["t"], one.row["o"]))[-query.limit :]
                yield {"scanned": scanned}
                if asyncio.get_running_loop().time() > deadline:
                    break
        yield {"rows": await self._rows(query, rows[::-1]), "scanned": scanned}
        yield {"done": True, "next": None}

    async def _scan(self, query: Query, starts: Offsets, ends: Offsets) -> AsyncGenerator[Line, None]:
        """On from the start until there are enough, in the order in which they are read."""
        scanned, left, at = 0, query.limit, starts
        deadline = asyncio.get_running_loop().time() + SCAN_SECONDS
        async with aclosing(self._portions(starts, ends)) as portions:
            async for portion, positions in portions:
                before, at, rows = at, positions, list[Found]()
                scanned += len(portion)
                async for record in self._matching(query, portion):
                    if len(rows) == left:
                        # The rest of the portion is read again by who goes on.
                        at = _up_to(record, portion, before)
                        break
                    rows.append(Found.of(record))
                left -= len(rows)
                yield {"rows": await self._rows(query, rows), "scanned": scanned}
                if not left or scanned >= SCAN_RECORDS or asyncio.get_running_loop().time() > deadline:
                    break
        ahead = {tp: offset for tp, offset in at.items() if offset < ends[tp]}
        place = ",".join(f"{tp.partition}:{offset}" for tp, offset in ahead.items())
        yield {"done": True, "next": place if 0 < len(ahead) <= MOST_PLACES else None}

    async def _portions(
        self, starts: Offsets, ends: Offsets
    ) -> AsyncGenerator[tuple[list[ConsumerRecord], Offsets], None]:
        """Records up to the ends, and where each partition's reading is behind them."""
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

    async def _follow(self, query: Query, starts: Offsets) -> AsyncGenerator[Line, None]:
        """What is there and then what comes, until nobody listens any more."""
        scanned = 0
        async with self._cluster.consumer() as consumer:
            _begin(consumer, starts)
            while True:
                batch = await consumer.getmany(timeout_ms=4 * _WAIT_MS, max_records=_BATCH)
                portion = [record for records in batch.values() for record in records]
                scanned += len(portion)
                found = [record async for record in self._matching(query, portion)]
                skipped = max(0, len(found) - FOLLOW_ROWS) + (0 if query.is_search else await _catch_up(consumer))
                found.sort(key=lambda r: (r.timestamp, r.offset))
                rows = await self._rows(query, [Found.of(record) for record in found[-FOLLOW_ROWS:]])
                yield {"rows": rows, "scanned": scanned, "skipped": skipped}
                if portion:
                    await asyncio.sleep(FOLLOW_SECONDS if not query.is_search else 0.02)

    # What of it is shown

    async def _rows(self, query: Query, found: Sequence[Found]) -> list[Line]:
        """With keys and values decoded that have a schema."""
        rows = [one.row for one in found]
        for part, data in zip(_PARTS, ([one.key for one in found], [one.value for one in found]), strict=True):
            for shown, what in zip(
                rows, await self._cluster.decoder.decode(query.topic, part, data, most=LIST_CHARS + 1), strict=True
            ):
                shown[part] = decoded(shown[part], what)
        return rows

    async def _matching(self, query: Query, portion: Sequence[ConsumerRecord]) -> AsyncGenerator[ConsumerRecord, None]:
        """What is wanted of these, as bytes or decoded; others are served in between, as records may be large."""
        values = [record.value for record in portion] if query.is_search else []
        read = await self._cluster.decoder.decode(query.topic, "value", values, most=REST_BYTES)
        looked_at = 0
        for record, what in zip_longest(portion, read):
            looked_at += len(record.value or b"")
            if looked_at > REST_BYTES:
                looked_at = 0
                await next_turn()
            text = None if what is None or what.text is None else what.text.encode("utf-8", "surrogatepass")
            if query.wanted(record.key, record.value) or (text is not None and query.wanted(record.key, text)):
                yield record


def _up_to(end: ConsumerRecord, portion: Sequence[ConsumerRecord], before: Offsets) -> Offsets:
    """Where reading is if of this portion it has come to `end`, and not farther."""
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
    """Go on near the end where too much has come; how many records are passed over."""
    skipped = 0
    for tp in consumer.assignment:
        end, at = consumer.high_watermark(tp), await consumer.position(tp)
        if end is not None and end - at > FOLLOW_BEHIND:
            consumer.seek(tp, end - FOLLOW_ROWS)
            skipped += end - FOLLOW_ROWS - at
    return skipped


def _headers(given: object) -> list[Mapping[str, Any]]:
    """`[{"key": …, "value": …}]`. Raises ValueError."""
    headers = given or []
    if not isinstance(headers, list) or not all(isinstance(one, Mapping) and "key" in one for one in headers):
        raise ValueError("headers: a list of keys with values is expected")
    return headers


def _bytes(given: object) -> bytes | None:
    """`{"text": …}`, `{"base64": …}` or None. Raises ValueError."""
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
    raise ValueError('{"text": …}, {"base64": …} or null is expected')
