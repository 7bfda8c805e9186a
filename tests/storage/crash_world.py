"""A log manager on a simulated disk, and a plain model of what it has promised: the ground of the crash tests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from uuid import UUID

from tests.storage.lanes import checkpoint, delete_due, load, retain, shut_down

from barnabas.common.steps import run_to_end
from barnabas.protocol.record_batch import ControlType, RecordBatchBuilder, control_batch
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.disk import SimDisk
from barnabas.storage.filesystem import FileSystem
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_dir import LOG_START_OFFSET_CHECKPOINT
from barnabas.storage.log_manager import LogManager
from barnabas.storage.log_validator import CLIENT_RULES, COORDINATOR_RULES, AppendRules

ROOT = "/data"
TP = TopicPartition("t", 0)
TOPIC_ID = UUID("12345678-1234-4234-8234-123456789abc")
SMALL = LogConfig(
    segment_bytes=700,
    segment_index_bytes=120,
    index_interval_bytes=200,
    retention_ms=-1,
    retention_bytes=-1,
    file_delete_delay_ms=0,
)
NOW_MS = 1_700_000_000_000


@dataclass
class Promise:
    """What one partition owes after a crash.

    `versions` holds for each base offset the bytes that may be found there: usually one, while a truncation is not yet
    acknowledged also none. `acknowledged_end` is the end of what was flushed, `end` that of what was appended.
    """

    topic_id: UUID | None = TOPIC_ID
    versions: dict[int, bytes] = field(default_factory=dict)
    next_offset: dict[int, int] = field(default_factory=dict)
    """Base offset of a batch to the offset behind it."""
    acknowledged_end: int = 0
    end: int = 0
    start: int = 0
    """The acknowledged log start."""
    start_at_most: int = 0
    """How far an operation that was under way may have raised the log start."""
    must_exist: bool = False
    must_not_exist: bool = False

    def cut(self, offset: int) -> None:
        """A truncation begins: what lies above may be gone."""
        self.acknowledged_end = min(self.acknowledged_end, offset)
        self.end = min(self.end, offset)

    def forget_above(self, offset: int) -> None:
        """A truncation is acknowledged: what lay above must not come back."""
        for base in [base for base in self.versions if base >= offset]:
            del self.versions[base]
            del self.next_offset[base]


class World:
    """One incarnation of a log manager, and the promises that outlive it."""

    def __init__(
        self,
        disk: SimDisk,
        promises: dict[TopicPartition, Promise] | None = None,
        *,
        config: LogConfig = SMALL,
        manager_class: type[LogManager] = LogManager,
    ) -> None:
        self.disk = disk
        self.promises = promises if promises is not None else {}
        self.now_ms = NOW_MS
        self.config = config
        self.manager = make_manager(disk, config=config, manager_class=manager_class, now_ms=lambda: self.now_ms)

    def start(self) -> None:
        """Opens the directory and loads all logs."""
        self.manager.open_dirs()
        self.manager.write_identity(1, "cluster")
        load(self.manager)

    @property
    def log(self) -> Log:
        """The log that most scenarios work on."""
        return self.manager.logs[TP]

    def create(
        self, topic_partition: TopicPartition = TP, topic_id: UUID = TOPIC_ID, *, is_prepared: bool = False
    ) -> None:
        """Creates a partition; from the return on it must survive."""
        promise = self.promises[topic_partition] = Promise(topic_id)
        if is_prepared:
            for task in self.manager.creation.preparation_tasks({topic_partition: topic_id}):
                task()
        self.manager.creation.get_or_create_log(topic_partition, topic_id=topic_id, is_new=True)
        promise.must_exist = True

    def append(
        self,
        count: int = 1,
        *,
        epoch: int = 0,
        producer_id: int = -1,
        transactional: bool = False,
        topic_partition: TopicPartition = TP,
    ) -> None:
        """Appends one batch of `count` records."""
        log, promise = self.manager.logs[topic_partition], self.promises[topic_partition]
        base = log.log_end_offset
        known = log.producer_state.producers.get(producer_id)
        sequence = -1 if producer_id < 0 else 0 if known is None else known.last_sequence + 1
        builder = RecordBatchBuilder(
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        for index in range(count):
            value = f"{topic_partition}/{epoch}/{base + index}/".encode() * 3
            builder.append(str(base + index).encode(), value, (), self.now_ms + base + index)
        self._append(log, promise, builder.build(), base, base + count, epoch)

    def end_transaction(self, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
        """Appends a transaction marker."""
        marker = control_batch(
            ControlType.COMMIT if commit else ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=self.now_ms,
        )
        base = self.log.log_end_offset
        self._append(self.log, self.promises[TP], marker, base, base + 1, epoch, COORDINATOR_RULES)

    def _append(
        self,
        log: Log,
        promise: Promise,
        batch: bytes,
        base: int,
        end: int,
        epoch: int,
        rules: AppendRules = CLIENT_RULES,
    ) -> None:
        buffer = bytearray(batch)
        stored = bytearray(batch)
        stored[0:8] = base.to_bytes(8, "big")
        stored[12:16] = epoch.to_bytes(4, "big")
        promise.versions[base] = bytes(stored)
        promise.next_offset[base] = end
        log.append_as_leader(memoryview(buffer), leader_epoch=epoch, rules=rules)
        promise.end = end
        log.update_high_watermark(log.log_end_offset)

    def flush(self, topic_partition: TopicPartition = TP) -> None:
        """Flushes and acknowledges everything appended so far."""
        log = self.manager.logs[topic_partition]
        log.flush()
        promise = self.promises[topic_partition]
        promise.acknowledged_end = log.recovery_point

    def truncate_to(self, offset: int) -> None:
        """Truncates; when this returns nothing above may come back."""
        promise = self.promises[TP]
        promise.cut(offset)
        self.manager.truncate_to({TP: offset})
        promise.forget_above(offset)

    def raise_log_start(self, offset: int, topic_partition: TopicPartition = TP) -> None:
        """DeleteRecords; when this returns the log start never goes back."""
        promise = self.promises[topic_partition]
        promise.start_at_most = max(promise.start_at_most, offset)
        self.manager.logs[topic_partition].maybe_increment_log_start_offset(offset)
        for task in run_to_end(self.manager.checkpoint_steps(LOG_START_OFFSET_CHECKPOINT, [topic_partition])):
            task()
        promise.start = self.manager.logs[topic_partition].log_start_offset

    def retain(self) -> None:
        """One round of retention, with the unlinking of what it removed."""
        promise = self.promises[TP]
        promise.start_at_most = promise.end
        retain(self.manager)
        promise.start = promise.start_at_most = self.log.log_start_offset
        self.now_ms += 1
        delete_due(self.manager)

    def checkpoint(self) -> None:
        """All periodic checkpoints."""
        checkpoint(self.manager)

    def delete(self, topic_partition: TopicPartition = TP) -> None:
        """Deletes a partition; when this returns it must not come back."""
        promise = self.promises[topic_partition]
        promise.must_exist = False
        promise.acknowledged_end = promise.end = 0
        task = self.manager.delete_log(topic_partition)
        assert task is not None
        task()
        promise.must_not_exist = True
        promise.versions.clear()

    def stop(self) -> None:
        """A clean shutdown: it flushes everything."""
        ends = {key: log.log_end_offset for key, log in self.manager.logs.items()}
        shut_down(self.manager)
        for topic_partition, end in ends.items():
            self.promises[topic_partition].acknowledged_end = end


def make_manager(
    fs: FileSystem,
    roots: tuple[str, ...] = (ROOT,),
    *,
    config: LogConfig = SMALL,
    manager_class: type[LogManager] = LogManager,
    now_ms: object = None,
) -> LogManager:
    """A log manager for tests, with a seeded source of randomness."""
    return manager_class(
        roots,
        fs=fs,
        config_for=lambda topic: config,
        now_ms=now_ms if callable(now_ms) else lambda: NOW_MS,
        rng=random.Random(7),
    )


def new_disk() -> SimDisk:
    """A disk with an empty, durable root folder."""
    disk = SimDisk(now_ms=lambda: NOW_MS, keep_log=False)
    disk.mkdir(ROOT)
    disk.make_everything_durable()
    return disk
