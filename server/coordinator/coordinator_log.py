"""A topic as the log of a coordinator: appends that are answered once they are durable, and reading what is there.

Whatever a coordinator must not forget is a record there, written like those of a producer with acks=-1, so that whoever
leads the partition next knows it too. Kafka writes one batch a change; so does this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...protocol.batch_header import TRANSACTIONAL_MASK
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.producer_identity import ProducerIdentity
from ...protocol.record import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ...protocol.record_batch import iter_batches
from ...protocol.record_batch_builder import batch_of_pairs
from ...protocol.room_logger import room_logger
from ..runtime.turns import RECORDS, Pace
from .latest_records import LatestRecords

if TYPE_CHECKING:
    from ...protocol.topic_partition import TopicPartition
    from ..replication.delayed_produce import AppendResult
    from ..replication.partition import Partition
    from ..replication.replica_manager import ReplicaManager

logger = room_logger("coordinator")

LOAD_BYTES = 64 * 1024
"""Read at a time while loading."""
PRODUCE_VERSION = 7
LATEST_MS = 24 * 3600 * 1000
"""How long the outcome of an append is waited for after its caller has been told that it takes too long."""

Entry = tuple[bytes, bytes | None]
"""Key and value of a record; None deletes what the key stands for."""
Done = Callable[[ErrorCode], None]

WRITE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""What a client is told when its coordinator could not write; each coordinator says more."""
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)
"""What a coordinator could not write because of its size."""


_NOBODY = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def ignore(_: ErrorCode) -> None:
    """The `done` of appends whose outcome nobody waits for: the next append finds out what could not be written."""


class CoordinatorLog:
    """Appends to the partitions of one topic that this broker leads, and reads them. Loop-thread only."""

    def __init__(
        self, topic: str, replica_manager: ReplicaManager, now_ms: Callable[[], int], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.topic = topic
        self._replicas = replica_manager
        self._now_ms = now_ms
        self._loop = loop

    def led(self, index: int) -> Partition | None:
        """A partition if this broker leads it and can use it."""
        partition = self._replicas.find(self.topic, index)
        return partition if partition is not None and partition.is_leader and not partition.is_offline else None

    def on_role_change(self, tell: Callable[[int], object]) -> None:
        """Call back with each partition that this broker begins to lead, or leads no longer."""

        def changed(topic_partition: TopicPartition) -> None:
            if topic_partition.topic == self.topic:
                tell(topic_partition.partition)

        self._replicas.on_role_change(changed)

    def append(
        self,
        index: int,
        entries: Iterable[Entry],
        done: Done,
        *,
        timeout_ms: int,
        on_overdue: Callable[[], None] | None = None,
        may_linger: bool = False,
        producer: ProducerIdentity | None = None,
    ) -> bool:
        """Append records as one batch; `done` is told once how it went, perhaps before this returns.

        Returns whether they are in the log, durable or not. `may_linger` as in `GroupCommit.request`. With a `producer`
        they are part of its transaction.

        Outcomes come in the order of the appends. After `timeout_ms` the outcome is REQUEST_TIMED_OUT, or, if there is
        an `on_overdue`, that is called and `done` still gets the outcome.
        """
        pairs: list[tuple[bytes | None, bytes | None]] = list(entries)
        if not pairs:
            done(ErrorCode.NONE)
            return True
        attributes, identity = (0, _NOBODY) if producer is None else (TRANSACTIONAL_MASK, producer)
        batch = batch_of_pairs(pairs, self._now_ms(), attributes, *identity)
        appending = _Appending(done)
        self._replicas.append_records(
            [(self.topic, index, memoryview(batch))],
            -1,
            timeout_ms if on_overdue is None else LATEST_MS,
            appending.finish,
            produce_version=PRODUCE_VERSION,
            origin="coordinator",
            may_linger=may_linger,
        )
        if appending.outcome is None:
            if on_overdue is not None:
                appending.overdue = self._loop.call_later(timeout_ms / 1000, on_overdue)
            return True
        if appending.outcome is ErrorCode.NONE:
            return True
        logger.warning("%s-%d: records were not appended: %s", self.topic, index, appending.outcome.name)
        return False

    async def load(self, partition: Partition) -> LatestRecords:
        """Read a partition from its start to its end, others being served meanwhile. Raises KafkaError, ProtocolError,
        StorageError.
        """
        records, pace = LatestRecords(), Pace(RECORDS)
        offset, end = partition.log_start_offset, partition.log_end_offset
        while offset < end:
            data = self._replicas.read_log(partition, offset, LOAD_BYTES)
            before = offset
            for batch in iter_batches(data):
                await records.take(batch, pace)
                offset = max(offset, batch.last_offset + 1)
            if offset == before:
                break  # nothing is left: compaction removed the last records
            await pace.rest()
        return records


class _Appending:
    """One append on its way."""

    __slots__ = ("_done", "outcome", "overdue")

    def __init__(self, done: Done) -> None:
        self._done = done
        self.outcome: ErrorCode | None = None
        """None while it is waited for."""
        self.overdue: asyncio.TimerHandle | None = None
        """Tells the caller that it takes too long."""

    def finish(self, results: list[AppendResult]) -> None:
        """The append is decided."""
        (result,) = results
        self.outcome = result.code if isinstance(result, KafkaError) else ErrorCode.NONE
        if self.overdue is not None:
            self.overdue.cancel()
        self._done(self.outcome)
