"""A topic as the log of a coordinator (Kafka: PartitionWriter and CoordinatorLoader).

Each change of a coordinator's state is one batch, appended with acks=-1, so that the next leader of the partition loads
the state of its predecessor.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING

from ...common.room_logger import room_logger
from ...protocol.batch_header import TRANSACTIONAL_MASK
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.producer_identity import ProducerIdentity
from ...protocol.record import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ...protocol.record_batch import Batch, RecordBatch, iter_batches
from ...protocol.record_batch_builder import batch_of_pairs
from ...storage.log_validator import COORDINATOR_RULES
from ..replication.append_request import AppendRequest, AppendResult
from ..runtime.loop_sharing import CountBudget
from .compacted_records import CompactedRecords

if TYPE_CHECKING:
    from ...protocol.topic_partition import TopicPartition
    from ..replication.partition import Partition
    from ..replication.replica_manager import ReplicaManager

logger = room_logger("coordinator")

LOADED_RECORDS_PER_TURN = 20
"""Records of a coordinator's log that are read while it is loaded: a twentieth of a millisecond."""

LOAD_BYTES = 64 * 1024
"""The size of one read while a partition is loaded."""
LATEST_MS = 24 * 3600 * 1000
"""The timeout of an append whose caller gets `on_overdue`: the outcome is still required for the state in memory."""

CoordinatorRecord = tuple[bytes, bytes | None]
"""Key and value; a tombstone has the value None (Kafka: CoordinatorRecord)."""
ResponseCallback = Callable[[ErrorCode], None]
"""Receives the outcome of an append or a request once: when it is durable, or has failed."""

WRITE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""The error code for a client when its coordinator could not append; each coordinator adds further ones."""
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)
"""The errors of an append whose records are too large."""

NO_ERROR = ErrorCode.NONE
"""A global, for each append: in Python 3.11 the attribute of an enumeration takes three times as long."""
NO_PRODUCER = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def ignore(_: ErrorCode) -> None:
    """Ignore the outcome of an append, as the `done` of appends that no request waits for."""


class CoordinatorLog:
    """Appends to, and reads of, those partitions of one topic that this broker leads.

    Owned by a coordinator and used on the loop's thread only.
    """

    def __init__(
        self, topic: str, replica_manager: ReplicaManager, now_ms: Callable[[], int], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.topic = topic
        self._replicas = replica_manager
        self._now_ms = now_ms
        self._loop = loop

    def get_leader_partition(self, index: int) -> Partition | None:
        """Return a partition if this broker leads it and its log directory is online."""
        partition = self._replicas.get_partition(self.topic, index)
        return partition if partition is not None and partition.is_leader and not partition.is_offline else None

    def on_role_change(self, listener: Callable[[int], object]) -> None:
        """Call `listener` with each partition whose leader this broker becomes or no longer is."""

        def changed(topic_partition: TopicPartition) -> None:
            if topic_partition.topic == self.topic:
                listener(topic_partition.partition)

        self._replicas.on_role_change(changed)

    def append(
        self,
        index: int,
        records: Iterable[CoordinatorRecord],
        done: ResponseCallback,
        *,
        timeout_ms: int,
        on_overdue: Callable[[], None] | None = None,
        may_linger: bool = False,
        producer: ProducerIdentity | None = None,
    ) -> bool:
        """Append records as one batch; return whether they are in the log, durable or not.

        `done` is called once with the outcome, perhaps before this method returns, in the order of the appends. After
        `timeout_ms` the outcome is REQUEST_TIMED_OUT; with `on_overdue`, that is called instead and `done` still gets
        the outcome. `may_linger` as in `GroupCommit.request`. With a `producer` the records are part of its
        transaction. Records that cannot be encoded have the outcome UNKNOWN_SERVER_ERROR: the caller has marked its
        state as changing and requires an outcome.
        """
        attributes, identity = (0, NO_PRODUCER) if producer is None else (TRANSACTIONAL_MASK, producer)
        try:
            pairs: list[tuple[bytes | None, bytes | None]] = list(records)
            batch = batch_of_pairs(pairs, self._now_ms(), attributes, *identity) if pairs else b""
        except Exception:
            logger.exception("%s-%d: records cannot be encoded", self.topic, index)
            done(ErrorCode.UNKNOWN_SERVER_ERROR)
            return False
        if not pairs:
            done(NO_ERROR)
            return True
        appending = _Appending(done)
        # With `on_overdue` the request has its response after `timeout_ms`, but the state in memory has to follow the
        # log whenever the record is committed.
        limit_ms = timeout_ms if on_overdue is None else LATEST_MS
        request = AppendRequest(-1, limit_ms, appending.finish, COORDINATOR_RULES)
        request.may_linger = may_linger
        self._replicas.append_records([(self.topic, index, memoryview(batch))], request)
        if appending.outcome is None:
            if on_overdue is not None:
                appending.overdue = self._loop.call_later(timeout_ms / 1000, on_overdue)
        elif appending.outcome:
            logger.warning("%s-%d: records were not appended: %s", self.topic, index, appending.outcome.name)
            return False
        return True

    async def load(self, partition: Partition) -> CompactedRecords:
        """Return the effective records of a partition, read in slices of the event loop.

        Raises KafkaError, ProtocolError, StorageError.
        """
        latest, budget = CompactedRecords(), CountBudget(LOADED_RECORDS_PER_TURN)
        async for batch in self._batches(partition, budget):
            await latest.take(batch, budget)
        return latest

    async def replay(self, partition: Partition, take: Callable[[int, bytes, bytes | None], None]) -> None:
        """Call `take` with offset, key and value of each record in the order of the log, in slices of the event loop.

        For a log without transactions in which several records of a key count. Raises KafkaError, ProtocolError,
        StorageError, and any exception of `take`.
        """
        budget = CountBudget(LOADED_RECORDS_PER_TURN)
        async for batch in self._batches(partition, budget):
            if isinstance(batch, RecordBatch) and batch.is_control:
                continue
            for record in batch.records():
                if record.key is not None:
                    value = record.value
                    take(record.offset, bytes(record.key), None if value is None else bytes(value))
                await budget.step()

    async def _batches(self, partition: Partition, budget: CountBudget) -> AsyncIterator[Batch]:
        """Yield the batches of a partition, committed or not."""
        offset, end = partition.log_start_offset, partition.log_end_offset
        while offset < end:
            data = self._replicas.read_log(partition, offset, LOAD_BYTES)
            before = offset
            for batch in iter_batches(data):
                yield batch
                offset = max(offset, batch.last_offset + 1)
            if offset == before:
                break  # compaction has removed the last records
            await budget.rest()


class _Appending:
    """One append in flight."""

    __slots__ = ("_done", "outcome", "overdue")

    def __init__(self, done: ResponseCallback) -> None:
        self._done = done
        self.outcome: ErrorCode | None = None
        """None while the append is in flight."""
        self.overdue: asyncio.TimerHandle | None = None
        """Calls the caller's `on_overdue`."""

    def finish(self, results: list[AppendResult]) -> None:
        """Store the outcome of the append and pass it on."""
        (result,) = results
        self.outcome = result.code if isinstance(result, KafkaError) else NO_ERROR
        if self.overdue is not None:
            self.overdue.cancel()
        self._done(self.outcome)
