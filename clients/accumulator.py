"""Where records wait to be sent: batches by partition, bounded memory, and the rules of order. No I/O, no clock.

A partition's batches stand in one queue. `unacked` are those that were sent at least once, in the order of their
sequences, whether on the wire now or back in the queue for a retry. With idempotence (KIP-98) these rules keep order:
  · at most five unacked batches, the number a broker remembers, and one until the first was acknowledged, because a
    broker that knows nothing of a producer takes whatever sequence comes first;
  · a batch to be sent again goes only when it is the oldest unacked one, so nothing overtakes it;
  · after a sequence was lost for good (`needs_reset`), nothing goes until the wire is empty; then the partition
    starts over at sequence 0 under a newer producer epoch (KIP-360).
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from ..protocol.batch_header import stamp_producer
from ..protocol.compression import Compression
from ..protocol.errors import KafkaError
from ..protocol.legacy_records import build_message_set
from ..protocol.producer_identity import ProducerIdentity
from ..protocol.record import NO_SEQUENCE, Headers
from ..protocol.record_batch import Record, RecordBatchBuilder, iter_batches
from ..protocol.record_codec import RecordRun
from ..protocol.topic_partition import TopicPartition

MAX_UNACKED = 5
MAX_SEQUENCE = 0x7FFFFFFF
RECORD_OVERHEAD = 21
_HEADER_OVERHEAD = 10


class RecordMetadata(NamedTuple):
    """Where a record went. `offset` is -1 with acks=0; `timestamp` is the log's if the topic uses LogAppendTime."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    log_start_offset: int


class PendingRecord(NamedTuple):
    """One record on its way in."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int

    @property
    def size_bytes(self) -> int:
        """An upper bound of the bytes it takes in a batch without compression."""
        size = RECORD_OVERHEAD + len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:
            size += _HEADER_OVERHEAD + 4 * len(name) + len(value or b"")
        return size


class Appended(NamedTuple):
    """How many records of a run a batch took, and their bytes."""

    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """What all batches of a producer have in common."""

    batch_size: int
    compression: Compression
    compression_level: int | None
    linger: float
    delivery_timeout: float
    is_transactional: bool = False


class ProducerBatch:
    """Records of one partition that go, and succeed or fail, together."""

    __slots__ = (
        "attempts",
        "base_sequence",
        "builder",
        "created",
        "encoded",
        "futures",
        "identity",
        "on_wire",
        "partition",
        "reserved",
        "retry_at",
        "settings",
        "timestamps",
        "trouble",
    )

    def __init__(self, partition: TopicPartition, created: float, settings: BatchSettings) -> None:
        self.partition = partition
        self.created = created
        self.settings = settings
        self.builder: RecordBatchBuilder | None = RecordBatchBuilder(
            codec=settings.compression,
            level=settings.compression_level,
            max_size=settings.batch_size,
            is_transactional=settings.is_transactional,
        )
        self.encoded: bytearray | None = None
        self.futures: list[asyncio.Future[RecordMetadata]] = []
        self.timestamps: list[int] = []
        self.reserved = 0
        self.attempts = 0
        self.retry_at = 0.0
        self.on_wire = False
        self.base_sequence = NO_SEQUENCE
        self.identity: ProducerIdentity | None = None
        self.trouble: KafkaError | None = None
        """Why it was sent in vain the last time."""

    def append(self, record: PendingRecord, future: asyncio.Future[RecordMetadata], size: int) -> bool:
        """Take the record unless the batch is full or already encoded; the first always fits."""
        if self.builder is None or not self.builder.append(record.key, record.value, record.headers, record.timestamp):
            return False
        self.futures.append(future)
        self.timestamps.append(record.timestamp)
        self.reserved += size
        return True

    def append_run(self, run: RecordRun, first: int, future: asyncio.Future[RecordMetadata]) -> int:
        """Take records of the run from `first` on while there is room; how many. One future stands for all of them."""
        if self.builder is None:
            return 0
        before = self.builder.size
        count = self.builder.append_run(run, first)
        self.futures += [future] * count
        self.timestamps += [run.timestamp] * count
        self.reserved += self.builder.size - before
        return count

    def encode(self, sequence: int = NO_SEQUENCE, identity: ProducerIdentity | None = None) -> None:
        """Close the batch and compress it, once; with an identity, write that and the sequence into its header."""
        if self.builder is not None:
            self.encoded = bytearray(self.builder.build())
            self.builder = None
        if identity is not None and (self.identity, self.base_sequence) != (identity, sequence):
            assert self.encoded is not None
            self.identity, self.base_sequence = identity, sequence
            stamp_producer(self.encoded, *identity, sequence)

    def records(self) -> list[Record]:
        """The records again, out of the encoded batch."""
        assert self.encoded is not None
        return [record for batch in iter_batches(self.encoded) for record in batch.records()]

    def legacy_bytes(self) -> bytes:
        """The records as messages of format v1, for brokers before 0.11. Raises KafkaError for zstd."""
        return build_message_set(
            self.records(), magic=1, codec=self.settings.compression, level=self.settings.compression_level
        )

    def complete(self, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> None:
        """Resolve the futures; `base_offset` is -1 when the broker did not say."""
        topic, partition = self.partition
        for i, future in enumerate(self.futures):
            if not future.done():
                timestamp = log_append_time_ms if log_append_time_ms >= 0 else self.timestamps[i]
                offset = base_offset + i if base_offset >= 0 else -1
                future.set_result(RecordMetadata(topic, partition, offset, timestamp, log_start_offset))

    def fail(self, error: KafkaError, record_errors: dict[int, str] | None = None) -> None:
        """Reject the futures; with `record_errors` only those records are to blame, the others fail with them."""
        for i, message in (record_errors or {}).items():
            if i < len(self.futures):
                _reject(self.futures[i], KafkaError(error.code, message))
        if record_errors:
            error = KafkaError(error.code, "another record of the same batch was refused")
        for future in self.futures:
            _reject(future, error)

    def split(self) -> list[ProducerBatch]:
        """Two batches with half of the records each, sequences kept: for one that the broker found too large."""
        records = self.records()
        half = len(records) // 2
        settings = replace(self.settings, batch_size=sys.maxsize)
        parts = []
        for first, last in ((0, half), (half, len(records))):
            part = ProducerBatch(self.partition, self.created, settings)
            for i in range(first, last):
                record = records[i]
                pending = PendingRecord(record.key, record.value, record.headers, record.timestamp)
                part.append(pending, self.futures[i], self.reserved if i == 0 else 0)  # all memory goes with the first
            part.attempts = self.attempts
            if self.identity is not None:
                part.encode(self.base_sequence + first & MAX_SEQUENCE, self.identity)
            parts.append(part)
        if self.futures[half - 1] is self.futures[half]:
            _share(self.futures[half], parts)
        return parts

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be expected of it."""
        return self.builder is None or self.builder.size >= self.settings.batch_size

    @property
    def record_count(self) -> int:
        return len(self.futures)

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE


def _reject(future: asyncio.Future[RecordMetadata], error: KafkaError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # the sender logs one line for the batch; asyncio need not log one for each record


def _share(whole: asyncio.Future[RecordMetadata], parts: list[ProducerBatch]) -> None:
    """A run's future that stands for records of several batches is done when its records of all of them are."""
    shares: list[asyncio.Future[RecordMetadata]] = []
    for part in parts:
        share = whole.get_loop().create_future()
        part.futures = [share if future is whole else future for future in part.futures]
        shares.append(share)

    def settle(_: object) -> None:
        failed = [error for share in shares if share.done() and (error := share.exception()) is not None]
        if whole.done():
            return
        if failed:
            whole.set_exception(failed[0])
            whole.exception()
        elif all(share.done() for share in shares):
            whole.set_result(shares[0].result())

    for share in shares:
        share.add_done_callback(settle)


class PartitionQueue:
    """The batches of one partition, oldest first, and its sequence numbers."""

    __slots__ = (
        "batches",
        "has_gap",
        "identity",
        "is_established",
        "last_begun",
        "needs_reset",
        "next_sequence",
        "on_wire",
        "partition",
        "unacked",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        self.unacked: list[ProducerBatch] = []
        self.on_wire = 0
        self.identity: ProducerIdentity | None = None
        self.next_sequence = 0
        self.is_established = False
        """The leader has acknowledged a batch under this identity."""
        self.has_gap = False
        """A batch was given up while the broker may or may not have it."""
        self.last_begun = -inf
        """Loop time at which the newest batch was begun."""
        self.needs_reset = False
        """The broker certainly lacks a sequence that will not be sent again."""

    def may_send(self, *, idempotent: bool, serial: bool) -> bool:
        """Whether order allows the first batch to go now."""
        if not self.batches or self.needs_reset:
            return False
        if not idempotent:
            return not (serial and self.on_wire)
        if self.batches[0].has_sequence:
            return self.unacked[0] is self.batches[0]
        return len(self.unacked) < (MAX_UNACKED if self.is_established else 1)

    def take(self, identity: ProducerIdentity | None) -> ProducerBatch:
        """The first batch, encoded and, with an identity, sequenced; it counts as on the wire from now."""
        batch = self.batches.popleft()
        if identity is None:
            batch.encode()
        elif not batch.has_sequence:
            if self.identity != identity and not self.unacked:
                self.start_over(identity)
            assert self.identity is not None
            batch.encode(self.next_sequence, self.identity)
            self.next_sequence = self.next_sequence + batch.record_count & MAX_SEQUENCE
            self.unacked.append(batch)
        batch.on_wire = True
        self.on_wire += 1
        return batch

    def returned(self, batch: ProducerBatch) -> None:
        """The batch's request was answered, or lost."""
        batch.on_wire = False
        self.on_wire -= 1

    def put_back(self, batch: ProducerBatch) -> None:
        """Queue the batch to be sent again, before those with later sequences."""
        position = 0
        if batch.has_sequence:
            earlier = set(map(id, self.unacked[: self.unacked.index(batch)]))
            while position < len(self.batches) and id(self.batches[position]) in earlier:
                position += 1
        self.batches.insert(position, batch)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Queue the parts of a batch that was split, in its place."""
        if batch.has_sequence:
            at = self.unacked.index(batch)
            self.unacked[at : at + 1] = parts
        for part in parts if batch.has_sequence else reversed(parts):
            self.put_back(part)

    def settled(self, batch: ProducerBatch) -> None:
        """The batch is done for good, acknowledged or given up."""
        if batch in self.unacked:
            self.unacked.remove(batch)

    def start_over(self, identity: ProducerIdentity) -> None:
        """Begin at sequence 0 under this identity; batches that wait for a retry are numbered anew."""
        for batch in self.unacked:
            batch.base_sequence = NO_SEQUENCE
            batch.identity = None
        self.unacked.clear()
        self.identity = identity
        self.next_sequence = 0
        self.is_established = self.has_gap = self.needs_reset = False


class RecordAccumulator:
    """All queues, and the memory that their records may take (`buffer_memory` bytes)."""

    def __init__(self, settings: BatchSettings, *, buffer_memory: int, wake: Callable[[], None]) -> None:
        self.settings = settings
        self.buffer_memory = buffer_memory
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.waiters: deque[asyncio.Future[None]] = deque()
        self.incomplete: dict[ProducerBatch, None] = {}
        self.flushing = 0
        """While positive, or while somebody waits for memory, batches do not linger."""
        self._used = 0
        self._wake = wake
        self._released: asyncio.Future[None] | None = None
        """Done with the next batch; there is one if somebody waits."""

    def append(
        self, partition: TopicPartition, record: PendingRecord, future: asyncio.Future[RecordMetadata], now: float
    ) -> bool:
        """Add the record to its partition's open batch or a new one; False if memory is full."""
        size = record.size_bytes
        if self._used + size > self.buffer_memory and self._used:
            return False
        queue = self.queues.get(partition)
        if queue is None:
            queue = self.queues[partition] = PartitionQueue(partition)
        batch = queue.batches[-1] if queue.batches else None
        if batch is None or not batch.append(record, future, size):
            batch = ProducerBatch(partition, now, self.settings)
            batch.append(record, future, size)
            queue.batches.append(batch)
            queue.last_begun = batch.created
            self.incomplete[batch] = None
            self._wake()
        elif batch.is_full:
            self._wake()
        self._used += size
        return True

    def append_run(
        self,
        partition: TopicPartition,
        run: RecordRun,
        first: int,
        future: asyncio.Future[RecordMetadata],
        *,
        clock: Callable[[], float],
    ) -> Appended | None:
        """Add records of the run from `first` on to its partition's open batch or a new one; None if memory is full."""
        if self._used + self.settings.batch_size > self.buffer_memory and self._used:
            return None
        queue = self.queues.get(partition)
        if queue is None:
            queue = self.queues[partition] = PartitionQueue(partition)
        batch = queue.batches[-1] if queue.batches else None
        before = batch.reserved if batch is not None else 0
        count = batch.append_run(run, first, future) if batch is not None else 0
        if batch is None or not count:
            batch, before = ProducerBatch(partition, clock(), self.settings), 0
            count = batch.append_run(run, first, future)
            queue.batches.append(batch)
            queue.last_begun = batch.created
            self.incomplete[batch] = None
            self._wake()
        elif batch.is_full:
            self._wake()
        self._used += batch.reserved - before
        return Appended(count, batch.reserved - before)

    def topics_used(self, since: float) -> set[str]:
        """Topics that have records to be delivered, or were sent to after that loop time."""
        return {
            queue.partition.topic
            for queue in self.queues.values()
            if queue.batches or queue.on_wire or queue.last_begun > since
        }

    def ready_at(self, queue: PartitionQueue) -> float:
        """Loop time from which the first batch of the queue should go; it must have one."""
        batch = queue.batches[0]
        if batch.attempts:
            return batch.retry_at
        if len(queue.batches) > 1 or self.flushing or self.waiters or batch.is_full:
            return batch.created
        return batch.created + self.settings.linger

    def release(self, batch: ProducerBatch) -> None:
        """The batch is done: its memory goes to those who wait."""
        self._used -= batch.reserved
        self.incomplete.pop(batch, None)
        if self._released is not None:
            self._released.set_result(None)
            self._released = None
        self.pass_on()

    async def drained(self, now: float) -> None:
        """Wait until all batches are done that have been begun by now, whoever waits for their records."""
        while any(batch.created <= now for batch in self.incomplete):
            if self._released is None:
                self._released = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._released)

    def pass_on(self) -> None:
        """Let the next of those who wait for memory try."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Account for the parts instead of the batch."""
        del self.incomplete[batch]
        self.incomplete.update(dict.fromkeys(parts))
