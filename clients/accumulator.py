"""Buffer for records before they are sent: batches by partition, limited memory, and the rules of order. No I/O, no
clock.

The batches of a partition are in one queue. `unacked` are the batches that were sent at least once, in the order of
their sequences, either in flight or queued for a retry. With idempotence (KIP-98) these rules keep the order:
  · at most five unacked batches, the number a broker remembers, and one until the first acknowledgement, because a
    broker without state of the producer accepts any first sequence;
  · a batch is sent again only when it is the oldest unacked batch, so it is never overtaken;
  · after a sequence was lost permanently (`needs_reset`), no batch is sent until none is in flight; then the partition
    starts again at sequence 0 with a newer producer epoch (KIP-360).
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
    """Metadata of an appended record. `offset` is -1 with acks=0; `timestamp` is the log's if the topic uses
    LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    log_start_offset: int


class PendingRecord(NamedTuple):
    """A record before it is added to a batch."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int

    @property
    def size_bytes(self) -> int:
        """Return an upper bound of the bytes of the record in an uncompressed batch."""
        size = RECORD_OVERHEAD + len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:
            size += _HEADER_OVERHEAD + 4 * len(name) + len(value or b"")
        return size


class Appended(NamedTuple):
    """Number of records of a run that a batch accepted, and their bytes."""

    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Settings that all batches of a producer share."""

    batch_size: int
    compression: Compression
    compression_level: int | None
    linger: float
    delivery_timeout: float
    is_transactional: bool = False


class ProducerBatch:
    """Records of one partition that are sent, and succeed or fail, together."""

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
        """Error of the last attempt."""

    def append(self, record: PendingRecord, future: asyncio.Future[RecordMetadata], size: int) -> bool:
        """Add the record unless the batch is full or already encoded; an empty batch accepts any record."""
        if self.builder is None or not self.builder.append(record.key, record.value, record.headers, record.timestamp):
            return False
        self.futures.append(future)
        self.timestamps.append(record.timestamp)
        self.reserved += size
        return True

    def append_run(self, run: RecordRun, first: int, future: asyncio.Future[RecordMetadata]) -> int:
        """Add records of the run from `first` on while there is room; return their number. One future represents all of
        them.
        """
        if self.builder is None:
            return 0
        before = self.builder.size
        count = self.builder.append_run(run, first)
        self.futures += [future] * count
        self.timestamps += [run.timestamp] * count
        self.reserved += self.builder.size - before
        return count

    def encode(self, sequence: int = NO_SEQUENCE, identity: ProducerIdentity | None = None) -> None:
        """Close the batch and compress it once; with an identity, write that and the sequence into its header."""
        if self.builder is not None:
            self.encoded = bytearray(self.builder.build())
            self.builder = None
        if identity is not None and (self.identity, self.base_sequence) != (identity, sequence):
            assert self.encoded is not None
            self.identity, self.base_sequence = identity, sequence
            stamp_producer(self.encoded, *identity, sequence)

    def records(self) -> list[Record]:
        """Decode the records from the encoded batch."""
        assert self.encoded is not None
        return [record for batch in iter_batches(self.encoded) for record in batch.records()]

    def legacy_bytes(self) -> bytes:
        """Encode the records as messages of format v1, for brokers before 0.11. Raises KafkaError for zstd."""
        return build_message_set(
            self.records(), magic=1, codec=self.settings.compression, level=self.settings.compression_level
        )

    def complete(self, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> None:
        """Resolve the futures; `base_offset` is -1 if the broker did not return it."""
        topic, partition = self.partition
        for i, future in enumerate(self.futures):
            if not future.done():
                timestamp = log_append_time_ms if log_append_time_ms >= 0 else self.timestamps[i]
                offset = base_offset + i if base_offset >= 0 else -1
                future.set_result(RecordMetadata(topic, partition, offset, timestamp, log_start_offset))

    def fail(self, error: KafkaError, record_errors: dict[int, str] | None = None) -> None:
        """Reject the futures; with `record_errors` only these records have their own error, the others fail with
        them.
        """
        for i, message in (record_errors or {}).items():
            if i < len(self.futures):
                _reject(self.futures[i], KafkaError(error.code, message))
        if record_errors:
            error = KafkaError(error.code, "another record of the same batch was rejected")
        for future in self.futures:
            _reject(future, error)

    def split(self) -> list[ProducerBatch]:
        """Split a batch that the broker found too large into two halves with the same sequences."""
        records = self.records()
        half = len(records) // 2
        settings = replace(self.settings, batch_size=sys.maxsize)
        parts = []
        for first, last in ((0, half), (half, len(records))):
            part = ProducerBatch(self.partition, self.created, settings)
            for i in range(first, last):
                record = records[i]
                pending = PendingRecord(record.key, record.value, record.headers, record.timestamp)
                part.append(
                    pending, self.futures[i], self.reserved if i == 0 else 0
                )  # all memory is released with the first half
            part.attempts = self.attempts
            if self.identity is not None:
                part.encode(self.base_sequence + first & MAX_SEQUENCE, self.identity)
            parts.append(part)
        if self.futures[half - 1] is self.futures[half]:
            _share(self.futures[half], parts)
        return parts

    @property
    def is_full(self) -> bool:
        """Return whether the batch is complete."""
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
        future.exception()  # the sender logs one line for the batch, so asyncio must not log every record


def _share(whole: asyncio.Future[RecordMetadata], parts: list[ProducerBatch]) -> None:
    """Complete a run's future that represents records of several batches when all of them are complete."""
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
        """Whether the leader has acknowledged a batch with this identity."""
        self.has_gap = False
        """Whether a batch was abandoned that the broker may or may not have."""
        self.last_begun = -inf
        """Loop time at which the newest batch was created."""
        self.needs_reset = False
        """Whether the broker lacks a sequence that will not be sent again."""

    def may_send(self, *, idempotent: bool, serial: bool) -> bool:
        """Return whether the first batch may be sent without breaking the order."""
        if not self.batches or self.needs_reset:
            return False
        if not idempotent:
            return not (serial and self.on_wire)
        if self.batches[0].has_sequence:
            return self.unacked[0] is self.batches[0]
        return len(self.unacked) < (MAX_UNACKED if self.is_established else 1)

    def take(self, identity: ProducerIdentity | None) -> ProducerBatch:
        """Return the first batch, encoded and, with an identity, sequenced; it counts as in flight from now on."""
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
        """Mark the batch's request as answered or lost."""
        batch.on_wire = False
        self.on_wire -= 1

    def put_back(self, batch: ProducerBatch) -> None:
        """Queue the batch for a retry, before batches with later sequences."""
        position = 0
        if batch.has_sequence:
            earlier = set(map(id, self.unacked[: self.unacked.index(batch)]))
            while position < len(self.batches) and id(self.batches[position]) in earlier:
                position += 1
        self.batches.insert(position, batch)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a split batch by its parts."""
        if batch.has_sequence:
            at = self.unacked.index(batch)
            self.unacked[at : at + 1] = parts
        for part in parts if batch.has_sequence else reversed(parts):
            self.put_back(part)

    def settled(self, batch: ProducerBatch) -> None:
        """Remove a batch that was acknowledged or abandoned."""
        if batch in self.unacked:
            self.unacked.remove(batch)

    def start_over(self, identity: ProducerIdentity) -> None:
        """Start at sequence 0 with this identity; batches that wait for a retry are renumbered."""
        for batch in self.unacked:
            batch.base_sequence = NO_SEQUENCE
            batch.identity = None
        self.unacked.clear()
        self.identity = identity
        self.next_sequence = 0
        self.is_established = self.has_gap = self.needs_reset = False


class RecordAccumulator:
    """All queues, and the memory for their records (`buffer_memory` bytes)."""

    def __init__(self, settings: BatchSettings, *, buffer_memory: int, wake: Callable[[], None]) -> None:
        self.settings = settings
        self.buffer_memory = buffer_memory
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.waiters: deque[asyncio.Future[None]] = deque()
        self.incomplete: dict[ProducerBatch, None] = {}
        self.flushing = 0
        """While positive, or while a caller waits for memory, batches do not linger."""
        self._used = 0
        self._wake = wake
        self._released: asyncio.Future[None] | None = None
        """Set when the next batch is complete; it exists only while a caller waits."""

    def append(
        self, partition: TopicPartition, record: PendingRecord, future: asyncio.Future[RecordMetadata], now: float
    ) -> bool:
        """Add the record to its partition's open batch or a new one; return False if memory is full."""
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
        """Add records of the run from `first` on to its partition's open batch or a new one; return None if memory is
        full.
        """
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
        """Return the topics with undelivered records, or with records sent after that loop time."""
        return {
            queue.partition.topic
            for queue in self.queues.values()
            if queue.batches or queue.on_wire or queue.last_begun > since
        }

    def ready_at(self, queue: PartitionQueue) -> float:
        """Return the loop time from which the first batch of a non-empty queue should be sent."""
        batch = queue.batches[0]
        if batch.attempts:
            return batch.retry_at
        if len(queue.batches) > 1 or self.flushing or self.waiters or batch.is_full:
            return batch.created
        return batch.created + self.settings.linger

    def release(self, batch: ProducerBatch) -> None:
        """Release the memory of a completed batch to waiting callers."""
        self._used -= batch.reserved
        self.incomplete.pop(batch, None)
        if self._released is not None:
            self._released.set_result(None)
            self._released = None
        self.pass_on()

    async def drained(self, now: float) -> None:
        """Wait until all existing batches are complete."""
        while any(batch.created <= now for batch in self.incomplete):
            if self._released is None:
                self._released = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._released)

    def pass_on(self) -> None:
        """Let the next waiting caller try again."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace the batch by its parts in the accounting of memory."""
        del self.incomplete[batch]
        self.incomplete.update(dict.fromkeys(parts))
