"""`__consumer_offsets` as the coordinator's log: appends that are answered once they are durable, and loading.

Records are written like those of a producer with acks=-1. Kafka writes one batch a change; so does this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode, KafkaError, ProtocolError
from ....protocol.record_batch import Batch, ControlType, RecordBatch, iter_batches, parse_control_key
from ....protocol.record_batch_builder import RecordBatchBuilder
from ....storage.errors import LogDirFailedError
from ...metadata.topic_names import GROUP_METADATA_TOPIC
from ...replication.delayed_operation import DelayedOperation
from .any_group import AnyGroup
from .consumer.loading import LoadedConsumerGroups
from .group import Group
from .group_records import Entry, OffsetId, read_group, read_key, read_offset
from .offsets import GroupOffsets, Place

if TYPE_CHECKING:
    from ...replication.partition import Partition
    from ...replication.replica_manager import ReplicaManager

logger = logging.getLogger("barnabas.groups")

LOAD_BYTES = 64 * 1024
"""Read at a time while loading."""
RECORDS_A_TURN, OFFSETS_A_TURN = 20, 10
"""While loading the loop serves others after so many, half a tenth of a millisecond: their latency is to stay."""
PRODUCE_VERSION = 7
LATEST_MS = 24 * 3600 * 1000
"""How long the outcome of an append is waited for after its caller has been told that it takes too long."""

Done = Callable[[ErrorCode], None]


class DelayedAppend(DelayedOperation):
    """An append that waits for the high watermark; `done` gets the outcome, REQUEST_TIMED_OUT at the deadline."""

    __slots__ = ("_done", "_partition", "_required_offset", "outcome", "overdue")

    def __init__(self, partition: Partition, required_offset: int, done: Done) -> None:
        super().__init__()
        self._partition = partition
        self._required_offset = required_offset
        self._done = done
        self.outcome = ErrorCode.REQUEST_TIMED_OUT
        self.overdue: asyncio.TimerHandle | None = None
        """Tells the caller that it takes too long, while the outcome is still waited for."""

    def try_complete(self) -> bool:
        outcome = self._partition.has_reached(self._required_offset)
        if outcome is None:
            return False
        self.outcome = outcome
        return self.force_complete()

    def on_complete(self) -> None:
        if self.overdue is not None:
            self.overdue.cancel()
        self._done(self.outcome)


class GroupLog:
    """Appends to the partitions of `__consumer_offsets` that this broker leads. Loop-thread only."""

    def __init__(
        self, replica_manager: ReplicaManager, now_ms: Callable[[], int], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._replicas = replica_manager
        self._now_ms = now_ms
        self._loop = loop

    def append(
        self,
        index: int,
        entries: Iterable[Entry],
        done: Done,
        *,
        timeout_ms: int,
        on_overdue: Callable[[], None] | None = None,
        may_linger: bool = False,
    ) -> bool:
        """Append records as one batch; `done` is told once how it went, perhaps before this returns.

        Returns whether they are in the log, durable or not. `may_linger` as in `GroupCommit.request`.

        Outcomes come in the order of the appends. After `timeout_ms` the outcome is REQUEST_TIMED_OUT, or, if there is
        an `on_overdue`, that is called and `done` still gets the outcome.
        """
        builder = RecordBatchBuilder()
        now_ms = self._now_ms()
        for key, value in entries:
            builder.append(key, value, timestamp=now_ms)
        if not len(builder):
            done(ErrorCode.NONE)
            return True
        try:
            partition = self._replicas.partition(GROUP_METADATA_TOPIC, index)
            required_offset = self._append(partition, memoryview(bytearray(builder.build())), may_linger)
        except KafkaError as error:
            logger.warning("%s-%d: records were not appended: %s", GROUP_METADATA_TOPIC, index, error.message)
            done(error.code)
            return False
        waiting = DelayedAppend(partition, required_offset, done)
        if waiting.try_complete():
            return True
        if on_overdue is not None:
            waiting.overdue = self._loop.call_later(timeout_ms / 1000, on_overdue)
            timeout_ms = LATEST_MS
        self._replicas.produce_purgatory.watch(waiting, (partition.topic_partition,), timeout_ms)
        return True

    def _append(self, partition: Partition, records: memoryview, may_linger: bool) -> int:
        try:
            info = partition.append_records_to_leader(
                records, -1, api_version=PRODUCE_VERSION, origin="coordinator", may_linger=may_linger
            )
        except LogDirFailedError as error:
            raise self._replicas.checked_io(partition, error) from error
        return info.last_offset + 1


class LoadedGroups:
    """What is left of a partition's records when each is replaced by the later ones with its key."""

    def __init__(self) -> None:
        self._latest: dict[bytes, bytes] = {}
        self._pending: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        """Offsets committed in transactions that are still open, by producer id, with the records' own offsets."""
        self.skipped = 0
        """Records that make no sense here."""

    async def take(self, batch: Batch) -> None:
        """Add a batch in log order. A transaction's offsets count from its commit, unless later ones are there.

        Lets others run in between.
        """
        if isinstance(batch, RecordBatch):
            if batch.is_control:
                self._end_transaction(batch)
                return
            if batch.is_transactional:
                pending = self._pending.setdefault(batch.producer_id, {})
                pending.update(
                    (bytes(one.key), (one.offset, one.value)) for one in batch.records() if one.key is not None
                )
                return
        for number, record in enumerate(batch.records(), start=1):
            if record.key is not None:
                self._put(bytes(record.key), record.offset, record.value)
            if number % RECORDS_A_TURN == 0:
                await asyncio.sleep(0)

    def _end_transaction(self, batch: RecordBatch) -> None:
        for record in batch.records():
            pending = self._pending.pop(batch.producer_id, {})
            if parse_control_key(record.key) == ControlType.COMMIT:
                for key, (offset, value) in pending.items():
                    self._put(key, offset, value)

    def _put(self, key: bytes, offset: int, value: bytes | None) -> None:
        """This counts, and what was written before it will not, even if its transaction is committed yet."""
        for pending in self._pending.values():
            if key in pending and pending[key][0] < offset:
                del pending[key]
        if value is None:
            self._latest.pop(key, None)
        else:
            self._latest[key] = value

    async def groups(self, now_ms: int) -> dict[str, AnyGroup]:
        """The groups with their offsets; the records are given up on the way. Lets others run in between."""
        groups: dict[str, AnyGroup] = {}
        consumers = LoadedConsumerGroups()
        offsets: dict[str, GroupOffsets] = {}
        places: dict[Place, Place] = {}
        """Groups read the same partitions: one tuple serves them all."""
        while self._latest:
            for _ in range(min(OFFSETS_A_TURN, len(self._latest))):
                key, value = self._latest.popitem()
                try:
                    subject = read_key(key)
                    if isinstance(subject, OffsetId):
                        place = places.setdefault(subject.place, subject.place)
                        offset = read_offset(value)
                        if subject.group_id not in offsets:
                            offsets[subject.group_id] = GroupOffsets()
                        offsets[subject.group_id].committed[place] = offset
                    elif subject is not None:
                        groups[subject] = read_group(subject, value, now_ms)
                    elif consumers.knows(key):
                        consumers.take(key, value)
                except ProtocolError as error:
                    self.skipped += 1
                    logger.warning("a group's record is skipped: %s", error)
            await asyncio.sleep(0)
        groups.update(consumers.groups)
        for group_id, committed in offsets.items():
            if group_id not in groups:
                groups[group_id] = Group(group_id, now_ms)
            groups[group_id].offsets = committed
        return groups


async def load_groups(partition: Partition, now_ms: int) -> dict[str, AnyGroup]:
    """Read a partition from its start to its end. Raises KafkaError, StorageError, ProtocolError."""
    log = partition.log
    loaded = LoadedGroups()
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        data = log.read(offset, LOAD_BYTES, min_one_message=True).data
        before = turn = offset
        for batch in iter_batches(data):
            await loaded.take(batch)
            offset = max(offset, batch.last_offset + 1)
            if offset - turn >= RECORDS_A_TURN:
                turn = offset
                await asyncio.sleep(0)
        if offset == before:
            break  # nothing is left: compaction removed the last records
        await asyncio.sleep(0)
    return await loaded.groups(now_ms)
