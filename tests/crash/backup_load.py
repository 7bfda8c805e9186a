"""Clients at work on a broker, and the checks of a broker that was restored from a backup of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from tests.crash.test_kill_transactions import PLACES, TOPIC, Copier, read

from barnabas.clients import Admin, Consumer, NewTopic, Producer, ShareConsumer, TopicPartition
from barnabas.protocol.errors import KafkaError

EVENTS = [TopicPartition("events", 0), TopicPartition("events", 1)]
KEYS = TopicPartition("keys", 0)
SHORT = TopicPartition("short", 0)
CHURN = "churn"
KEY_COUNT = 20
SMALL = {"segment.bytes": "20000", "file.delete.delay.ms": "0"}
COMPACTED = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "200"}
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.segment.bytes": "30000",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.segment.bytes": "30000",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "0",
}


@dataclass
class Acknowledged:
    """What clients knew to be on the broker at a moment."""

    events: dict[TopicPartition, int]
    keys: dict[int, int]
    committed: dict[str, int]
    """The number of committed transactions by copier."""
    offsets: dict[TopicPartition, int]
    """Offsets that the group had committed."""


@dataclass
class BackupLoad:
    """Producers and consumers until `stop`: idempotent, transactional, a group, compaction, retention, deletions."""

    bootstrap: str
    is_over: bool = False
    copiers: list[Copier] = field(default_factory=list)
    _events: dict[TopicPartition, int] = field(default_factory=lambda: dict.fromkeys(EVENTS, 0))
    _keys: dict[int, int] = field(default_factory=dict)
    _offsets: dict[TopicPartition, int] = field(default_factory=dict)
    _shared: int = 0
    _running: list[asyncio.Future[None]] = field(default_factory=list)

    async def start(self) -> None:
        """Create the topics and start the clients; return when each has done something."""
        async with Admin(self.bootstrap) as admin:
            await admin.create_topics(
                [
                    NewTopic("events", 2, 1, {"segment.bytes": "50000"}),
                    NewTopic(TOPIC, 2, 1, {"segment.bytes": "50000"}),
                    NewTopic("keys", 1, 1, COMPACTED),
                    NewTopic("short", 1, 1, {**SMALL, "retention.bytes": "40000"}),
                ]
            )
        self.copiers = [Copier(self.bootstrap, name) for name in ("a", "b")]
        work = [
            self._write_events(),
            self._write_keys(),
            self._write_short(),
            self._consume(),
            self._share(),
            self._churn(),
        ]
        self._running = [asyncio.ensure_future(one) for one in [*work, *(copier.run() for copier in self.copiers)]]
        async with asyncio.timeout(60):
            while not (
                self._offsets and self._keys and self._shared and all(copier.committed for copier in self.copiers)
            ):
                self.check_running()
                await asyncio.sleep(0.02)

    def check_running(self) -> None:
        """Raise the error of a client that has ended."""
        for one in self._running:
            if one.done():
                one.result()

    async def stop(self) -> None:
        """End all clients."""
        self.is_over = True
        for copier in self.copiers:
            copier.is_over = True
        await asyncio.wait_for(asyncio.gather(*self._running), 60)

    def acknowledged(self) -> Acknowledged:
        """Return all that is acknowledged now."""
        committed = {copier.name: len(copier.committed) for copier in self.copiers}
        return Acknowledged(dict(self._events), dict(self._keys), committed, dict(self._offsets))

    async def _write_events(self) -> None:
        number = 0
        async with Producer(self.bootstrap, enable_idempotence=True, linger_ms=0) as producer:
            while not self.is_over:
                number += 1
                for place in EVENTS:
                    for one in range(20):
                        value = b"%d" % (20 * number + one) + b" " * 50
                        await producer.send(place.topic, value, partition=place.partition)
                await producer.flush()
                self._events = dict.fromkeys(EVENTS, 20 * number + 19)
                await asyncio.sleep(0.002)

    async def _write_keys(self) -> None:
        number = 0
        async with Producer(self.bootstrap, linger_ms=0) as producer:
            while not self.is_over:
                number += 1
                for key in range(KEY_COUNT):
                    await producer.send("keys", b"%d" % number, key=b"%d" % key, partition=0)
                await producer.flush()
                self._keys = dict.fromkeys(range(KEY_COUNT), number)
                await asyncio.sleep(0.002)

    async def _write_short(self) -> None:
        number = 0
        async with Producer(self.bootstrap, linger_ms=0) as producer:
            while not self.is_over:
                for _ in range(20):
                    await producer.send("short", b"%d" % number + b" " * 200, partition=0)
                    number += 1
                await producer.flush()
                await asyncio.sleep(0.005)

    async def _consume(self) -> None:
        async with Consumer(
            self.bootstrap, group_id="readers", auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            consumer.subscribe(["events"])
            while not self.is_over:
                if not await consumer.getmany(timeout_ms=100):
                    continue
                positions = {place: await consumer.position(place) for place in consumer.assignment}
                await consumer.commit()
                self._offsets |= positions

    async def _share(self) -> None:
        """Acknowledge records as a member of a share group."""
        async with ShareConsumer(self.bootstrap, "sharers", ["events"]) as consumer:
            while not self.is_over:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    self._shared += len(records)

    async def _churn(self) -> None:
        """Create and delete a topic of one name, with records and a committed offset."""
        async with Admin(self.bootstrap) as admin, Producer(self.bootstrap, linger_ms=0) as producer:
            count = 0
            while not self.is_over:
                with suppress(KafkaError):
                    count += 1
                    await admin.create_topics([NewTopic(CHURN, 1, 1, SMALL)])
                    for one in range(count % 7 * 10):
                        await producer.send(CHURN, b"%d" % one, partition=0)
                    await producer.flush()
                    end = count % 7 * 10
                    await admin.alter_group_offsets("churners", {TopicPartition(CHURN, 0): end})
                    await asyncio.sleep(0.05)
                    await admin.delete_topics([CHURN])
                await asyncio.sleep(0.02)


async def read_all(bootstrap: str, place: TopicPartition) -> list[tuple[int, bytes | None, bytes]]:
    """Return offset, key and value of every record."""
    found = []
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        (end,) = (await consumer.end_offsets([place])).values()
        while await consumer.position(place) < end:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += [(record.offset, record.key, bytes(record.value or b"")) for record in records]
    return found


async def check_restored(bootstrap: str, load: BackupLoad, before: Acknowledged) -> None:
    """Check a restored broker: all from before the backup, in order, once; transactions whole; offsets ≤ ends."""
    for place in EVENTS:
        numbers = [int(value) for _, _, value in await read_all(bootstrap, place)]
        assert numbers == list(range(20, 20 + len(numbers)))
        assert numbers[-1] >= before.events[place]
    newest = {int(key or b""): int(value) for _, key, value in await read_all(bootstrap, KEYS)}
    assert all(newest.get(key, 0) >= number for key, number in before.keys.items()), (newest, before.keys)
    short = [int(value) for _, _, value in await read_all(bootstrap, SHORT)]
    assert short == list(range(short[0], short[0] + len(short))) if short else True
    for copier in load.copiers:  # what they have left open is over
        async with Producer(bootstrap, transactional_id=copier.name):
            pass
    first, second = [await read(bootstrap, place) for place in PLACES]
    async with Admin(bootstrap) as admin, Consumer(bootstrap) as consumer:
        for copier in load.copiers:
            mine = [value for value in first if value.startswith(copier.name)]
            assert [value for value in second if value.startswith(copier.name)] == mine
            transactions = sorted({int(value[1:].split(".")[0]) for value in mine})
            assert mine == [f"{copier.name}{number}.{part}" for number in transactions for part in range(3)]
            assert set(copier.committed[: before.committed[copier.name]]) <= set(transactions)
            assert set(transactions) <= set(copier.committed) | copier.unknown
            group = f"group-{copier.name}"
            answer = (await admin.list_group_offsets([group]))[group]
            assert not isinstance(answer, KafkaError)
            (committed,) = answer.values()
            assert committed.offset == transactions[-1]
        assert await admin.open_transactions(PLACES) == []
        shared = (await admin.list_share_group_offsets(["sharers"]))["sharers"]
        assert not isinstance(shared, KafkaError)
        ends = await consumer.end_offsets(EVENTS)
        assert all((one.start_offset or 0) <= ends[place] for place, one in shared.items()), (shared, ends)
        assert any(one.start_offset for one in shared.values())
        for group in ("readers", "churners"):
            answer = (await admin.list_group_offsets([group]))[group]
            assert not isinstance(answer, KafkaError)
            topics = {topic.name for topic in await admin.describe_topics()}
            offsets = {place: one.offset for place, one in answer.items() if place.topic in topics}
            ends = await consumer.end_offsets(list(offsets)) if offsets else {}
            assert all(offset <= ends[place] for place, offset in offsets.items()), (offsets, ends)
            if group == "readers":
                assert all(offsets[place] >= offset for place, offset in before.offsets.items())
    await _continue(bootstrap)


async def _continue(bootstrap: str) -> None:
    """Producers of all kinds work on the restored broker."""
    async with Producer(bootstrap, enable_idempotence=True) as producer:
        end = (await producer.send_and_wait("events", b"more", partition=0)).offset
    async with Producer(bootstrap, transactional_id="a") as producer, producer.transaction():
        await producer.send(TOPIC, b"more", partition=0)
    found = await read_all(bootstrap, EVENTS[0])
    assert found[-1] == (end, None, b"more")
    assert (await read(bootstrap, PLACES[0]))[-1] == "more"
