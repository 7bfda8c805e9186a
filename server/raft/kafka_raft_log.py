"""The replica of `__cluster_metadata`-0 on disk: segments, snapshots and the state of the quorum (Kafka: KafkaRaftLog).

The folder has Kafka's format: `kafka-dump-log` reads it, and a Kafka broker can continue from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.metadata_records import SnapshotFooterRecord, SnapshotHeaderRecord, decode_control_record
from ...protocol.record_batch import Batch, RecordBatch, iter_batches
from ...storage.errors import PASSING, StorageError, failing_dir
from ...storage.filesystem import FileSystem, parent_of
from ...storage.log import Log
from ...storage.log_config import NEVER, LogConfig
from ...storage.log_loader import RandomSource
from ...storage.metadata_snapshot import (
    CHECKPOINT_SUFFIX,
    PARTIAL_SUFFIX,
    FileRawSnapshotWriter,
    OffsetAndEpoch,
    age_of,
    find_snapshots,
    snapshot_file_name,
)
from ...storage.quorum_state_store import ElectionState, FileQuorumStateStore
from ...storage.unsynced_files import FlushTask

logger = room_logger("raft")

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1)
METADATA_PARTITION = 0
METADATA_DIRECTORY = f"{METADATA_TOPIC}-{METADATA_PARTITION}"
MAX_BATCH_SIZE_BYTES = 8 << 20
"""The largest batch that a controller appends."""
READ_BYTES = 1 << 20
"""Size of the reads of committed records and of snapshots."""
DELETED_FILES_PER_CALL = 64


class DivergentLogError(Exception):
    """The leader requires the removal of committed records. The replica must not continue: a controller lost data."""


class CorruptSnapshotError(StorageError):
    """A snapshot of the metadata cannot be read. The message contains the file."""


@dataclass(frozen=True, slots=True)
class MetadataLogConfig:
    """The settings of `metadata.log.*` and `metadata.max.*`; the defaults are Kafka's."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = 100 << 20
    retention_ms: int = 7 * 24 * 3600 * 1000

    def log_config(self) -> LogConfig:
        """Return the settings of the log, whose records are deleted only below a snapshot."""
        return LogConfig(
            segment_bytes=self.segment_bytes,
            segment_ms=self.segment_ms,
            retention_bytes=-1,
            retention_ms=-1,
            max_message_bytes=MAX_BATCH_SIZE_BYTES,
            flush_messages=NEVER,
        )


class KafkaRaftLog:
    """A log of metadata records with its snapshots. Its methods block, and run on one thread at a time: on a lane.

    Raises `LogDirFailedError` for errors of the disk, KafkaError KAFKA_STORAGE_ERROR for a full disk.
    """

    def __init__(
        self, log: Log, snapshots: list[OffsetAndEpoch], fs: FileSystem, config: MetadataLogConfig, directory: str
    ) -> None:
        """Use `open` instead, which reads the files."""
        self._log = log
        self._fs = fs
        self._config = config
        self._snapshots = snapshots
        self._directory = directory
        self._election_store = FileQuorumStateStore(fs, directory)
        self._postponed_flush: FlushTask | None = None

    @classmethod
    def open(
        cls,
        metadata_log_dir: str,
        *,
        config: MetadataLogConfig,
        fs: FileSystem,
        now_ms: Callable[[], int],
        rng: RandomSource,
    ) -> KafkaRaftLog:
        """Open the replica in a log directory (`metadata.log.dir`), creating it if it does not exist.

        Raises OSError, and StorageError for a damaged folder.
        """
        directory = f"{metadata_log_dir}/{METADATA_DIRECTORY}"
        if not fs.is_dir(directory):
            fs.mkdir(directory)
            fs.fsync_dir(metadata_log_dir)
        snapshots = find_snapshots(fs, directory)
        log = Log.open(
            directory,
            config=config.log_config(),
            fs=fs,
            now_ms=now_ms,
            # As in Kafka, the whole log is checked: no checkpoint of the log directory has an entry for it.
            recovery_point=0,
            log_start_offset=0,
            clean_shutdown=False,
            rng=rng,
            topic_id=METADATA_TOPIC_ID,
        )
        replica = cls(log, snapshots, fs, config, directory)
        replica._remove_damaged_snapshots()
        # A crash between the last byte of a snapshot and the truncation leaves the log below the snapshot.
        replica.truncate_to_latest_snapshot()
        return replica

    # -- positions -------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The first offset of the log. Records below are in snapshots."""
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.log_end_offset

    @property
    def last_fetched_epoch(self) -> int:
        """The leader epoch of the last record, of the latest snapshot if the log is empty, 0 without both."""
        latest = self._log.leader_epochs.latest_epoch
        if latest >= 0:
            return latest
        snapshot_id = self.latest_snapshot_id
        if snapshot_id is None:
            return 0
        if snapshot_id.offset != self.end_offset:
            raise StorageError(f"{self._directory}: the log ends at {self.end_offset}, its snapshot at {snapshot_id}")
        return snapshot_id.epoch

    @property
    def end(self) -> OffsetAndEpoch:
        """The end offset and the epoch of the last record."""
        return OffsetAndEpoch(self.end_offset, self.last_fetched_epoch)

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The id of the newest complete snapshot."""
        return self._snapshots[-1] if self._snapshots else None

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the largest epoch up to `epoch` and its end offset; the end of the log for an unknown epoch."""
        found = self._log.leader_epochs.end_offset_for(epoch, self.end_offset)
        if found.epoch < 0:
            return self.end
        earliest = self._snapshots[0] if self._snapshots else None
        if earliest is not None and found.end_offset == earliest.offset and found.epoch == epoch:
            # The epoch ends where the log begins; the records before belong to the epoch of the snapshot.
            return earliest
        return OffsetAndEpoch(found.end_offset, found.epoch)

    # -- election --------------------------------------------------------------------------------------------------

    def read_election_state(self) -> ElectionState | None:
        """Return the stored leader epoch and leader; None if there are none."""
        with failing_dir(parent_of(self._directory)):
            return self._election_store.read_election_state()

    def write_election_state(self, state: ElectionState) -> None:
        """Store the leader epoch and the leader durably."""
        with failing_dir(parent_of(self._directory)):
            self._election_store.write_election_state(state)

    # -- records ---------------------------------------------------------------------------------------------------

    def append_as_follower(self, records: memoryview, epoch: int) -> OffsetAndEpoch:
        """Append the leader's batches, without batches of later epochs than `epoch`; return the end of the log.

        Nothing is durable yet: after a crash the leader sends the records again. Raises KafkaError CORRUPT_MESSAGE for
        damaged batches, UNKNOWN_SERVER_ERROR for offsets that do not follow the log.
        """
        self._log.append_as_follower(records, leader_epoch=epoch)
        return self.end

    def update_high_watermark(self, offset: int) -> None:
        """Set the offset below which records are committed."""
        self._log.update_high_watermark(offset)

    def truncate_to_end_offset(self, diverging: OffsetAndEpoch) -> int:
        """Remove the records that differ from the leader's and return the new end offset.

        `diverging` is the end of the largest epoch of the leader that is not above this log's last epoch. Raises
        DivergentLogError if committed records would be removed.
        """
        if diverging.epoch == 0:
            offset = min(diverging.offset, self.end_offset)
        else:
            local = self.end_offset_for_epoch(diverging.epoch)
            offset = min(local.offset, diverging.offset) if local.epoch == diverging.epoch else local.offset
        if offset < self._log.high_watermark:
            raise DivergentLogError(f"truncation to {offset} is below the high watermark {self._log.high_watermark}")
        self._log.truncate_to(offset)
        return offset

    def read(self, offset: int, max_offset: int) -> list[Batch]:
        """Return some batches from `offset` on, below `max_offset`, at least one unless `offset` is `max_offset`."""
        found = self._log.read(offset, READ_BYTES, max_offset=max_offset, min_one_message=True)
        return list(iter_batches(found.data))

    def control_batches(self) -> list[RecordBatch]:
        """Return the control batches at the start of the latest snapshot and of the log after it."""
        latest, found = self.latest_snapshot_id, []
        offset = self.start_offset
        if latest is not None:
            found += [batch for batch in next(self.snapshot_batches(latest), []) if batch.is_control]
            offset = max(offset, latest.offset)
        while offset < self.end_offset:
            batches = self.read(offset, self.end_offset)
            found += [batch for batch in batches if isinstance(batch, RecordBatch) and batch.is_control]
            offset = batches[-1].last_offset + 1
        return found

    # -- snapshots -------------------------------------------------------------------------------------------------

    def create_new_snapshot_unchecked(self, snapshot_id: OffsetAndEpoch) -> FileRawSnapshotWriter | None:
        """Begin a snapshot of the leader; None if this snapshot exists already.

        The caller ends each one with `freeze_snapshot` or `abort_snapshot`.
        """
        if snapshot_id in self._snapshots:
            return None
        with failing_dir(parent_of(self._directory)):
            return FileRawSnapshotWriter(self._fs, self._directory, snapshot_id)

    def create_new_snapshot(self, snapshot_id: OffsetAndEpoch) -> FileRawSnapshotWriter | None:
        """Begin a snapshot of this replica's own records; None if it exists or the log begins after it already."""
        offset, epoch = snapshot_id
        assert offset <= self._log.high_watermark, f"snapshot {snapshot_id} has records that are not committed"
        if offset < self.start_offset:
            return None
        found = self._log.leader_epochs.epoch_for_offset(offset - 1)
        assert found in (-1, epoch), f"the record before the end of snapshot {snapshot_id} has epoch {found}"
        return self.create_new_snapshot_unchecked(snapshot_id)

    def append_to_snapshot(self, writer: FileRawSnapshotWriter, data: memoryview) -> None:
        """Write the next bytes of a snapshot."""
        with failing_dir(parent_of(self._directory)):
            writer.append(data)

    def freeze_snapshot(self, writer: FileRawSnapshotWriter) -> None:
        """Complete a snapshot durably. It is removed if a newer snapshot has replaced the log in the meantime."""
        if writer.snapshot_id.offset < self.start_offset:
            self.abort_snapshot(writer)
            return
        with failing_dir(parent_of(self._directory)):
            writer.freeze()
        self._snapshots = sorted([*self._snapshots, writer.snapshot_id], key=age_of)

    def check_snapshot(self, writer: FileRawSnapshotWriter) -> None:
        """Check the batches, the header and the footer of a snapshot before it is completed.

        Raises CorruptSnapshotError, LogDirFailedError.
        """
        with failing_dir(parent_of(self._directory)):
            self._check_snapshot(writer.snapshot_id, PARTIAL_SUFFIX)

    def abort_snapshot(self, writer: FileRawSnapshotWriter) -> None:
        """Remove an unfinished snapshot."""
        with failing_dir(parent_of(self._directory)):
            writer.abort()

    def truncate_to_latest_snapshot(self) -> bool:
        """Begin an empty log at the end of the newest snapshot if the log ends before it; return whether it did.

        Older snapshots are removed.
        """
        latest, last_epoch = self.latest_snapshot_id, max(self._log.leader_epochs.latest_epoch, 0)
        if latest is None or age_of(latest) <= (last_epoch, self.end_offset):
            return False
        self._log.truncate_fully_and_start_at(latest.offset)
        # The epochs of the removed records are below that of the snapshot, which is the last one of the new log.
        self._log.leader_epochs.clear()
        self._log.update_high_watermark(latest.offset)
        self.flush()
        self._remove_snapshots_before(latest)
        return True

    def _remove_damaged_snapshots(self) -> None:
        """Remove the newest snapshots as long as they are damaged, and the log if records before it are then missing.

        The controllers have the records, so they are fetched again. Raises OSError, LogDirFailedError.
        """
        while self._snapshots:
            try:
                self._check_snapshot(self._snapshots[-1])
                break
            except (CorruptSnapshotError, OSError) as error:
                if _is_passing(error):
                    raise
                logger.error("removing a damaged snapshot of the metadata, which is fetched again: %s", error)
                self._fs.unlink(f"{self._directory}/{snapshot_file_name(self._snapshots.pop())}")
        latest = self.latest_snapshot_id
        if self.start_offset > (0 if latest is None else latest.offset):
            logger.error(
                "the metadata log begins at offset %d, and no snapshot has the records before: all are fetched again",
                self.start_offset,
            )
            self._log.truncate_fully_and_start_at(0)
            self._log.leader_epochs.clear()
            self.flush()
            for snapshot_id in self._snapshots:
                self._fs.unlink(f"{self._directory}/{snapshot_file_name(snapshot_id)}")
            self._snapshots = []

    def _check_snapshot(self, snapshot_id: OffsetAndEpoch, suffix: str = CHECKPOINT_SUFFIX) -> None:
        """Read a snapshot. Raises CorruptSnapshotError, OSError."""
        first: list[RecordBatch] = []
        last: list[RecordBatch] = []
        for batches in self.snapshot_batches(snapshot_id, suffix):
            first, last = first or batches, batches
        try:
            header_of(first, snapshot_id)
            footer = list(control_records_of(last[-1]))
        except (KafkaError, ProtocolError) as error:
            raise CorruptSnapshotError(f"the control records of snapshot {snapshot_id}: {error}") from error
        if not footer or not isinstance(footer[-1], SnapshotFooterRecord):
            raise CorruptSnapshotError(f"snapshot {snapshot_id} does not end with a footer")

    def snapshot_batches(
        self, snapshot_id: OffsetAndEpoch, suffix: str = CHECKPOINT_SUFFIX
    ) -> Iterator[list[RecordBatch]]:
        """Yield the batches of a snapshot, about `READ_BYTES` at a time. Raises CorruptSnapshotError, OSError."""
        path = f"{self._directory}/{snapshot_file_name(snapshot_id, suffix)}"
        file = self._fs.open(path, readonly=True)
        try:
            position, size, length = 0, file.size(), READ_BYTES
            while position < size:
                data = file.pread(length, position)
                try:
                    batches = [batch for batch in iter_batches(data) if isinstance(batch, RecordBatch)]
                except ProtocolError as error:
                    raise CorruptSnapshotError(f"{path} at position {position}: {error}") from error
                if not batches:
                    if len(data) < length:
                        raise CorruptSnapshotError(f"{path} ends inside a batch at position {position}")
                    length *= 2  # a batch that is larger than one read
                    continue
                if not all(batch.is_valid for batch in batches):
                    raise CorruptSnapshotError(f"{path}: the CRC of a batch after position {position} is wrong")
                yield batches
                position += batches[-1].position + batches[-1].size
                length = READ_BYTES
        finally:
            file.close()

    def maybe_clean(self, now_ms: int) -> bool:
        """Remove old snapshots and the records before the oldest remaining one; return whether any were removed.

        The newest snapshot is kept. The age of a snapshot is that of its last record, in `metadata.max.retention.ms`.
        """
        removed = False
        while len(self._snapshots) > 1:
            oldest, following = self._snapshots[:2]
            is_excess = self._size() > self._config.retention_bytes >= 0
            if following.offset > self._log.high_watermark or not (is_excess or self._is_old(oldest, now_ms)):
                break
            self._delete_before_snapshot(following)
            removed = True
        return removed

    def _is_old(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> bool:
        if self._config.retention_ms < 0:
            return False
        try:
            header = header_of(next(self.snapshot_batches(snapshot_id), []), snapshot_id)
        except (KafkaError, ProtocolError, CorruptSnapshotError, OSError) as error:
            if _is_passing(error):
                return False
            logger.error("deleting a damaged snapshot of the metadata, which a newer one replaces: %s", error)
            return True
        return now_ms - header.last_contained_log_timestamp > self._config.retention_ms

    def _size(self) -> int:
        return self._log.size + sum(
            self._fs.size(f"{self._directory}/{snapshot_file_name(snapshot_id)}") for snapshot_id in self._snapshots
        )

    def _delete_before_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Remove the snapshots before this one, and the segments that are wholly below it."""
        self._remove_snapshots_before(snapshot_id)
        self._log.maybe_increment_log_start_offset(snapshot_id.offset)
        while paths := self._log.finish_retention(snapshot_id.offset, DELETED_FILES_PER_CALL):
            with failing_dir(parent_of(self._directory)):
                self._fs.fsync_dir(self._directory)
                for path in paths:
                    self._fs.unlink(path)

    def _remove_snapshots_before(self, snapshot_id: OffsetAndEpoch) -> None:
        kept = [one for one in self._snapshots if age_of(one) >= age_of(snapshot_id)]
        with failing_dir(parent_of(self._directory)):
            for one in self._snapshots[: len(self._snapshots) - len(kept)]:
                self._fs.unlink(f"{self._directory}/{snapshot_file_name(one)}")
        self._snapshots = kept

    # -- end -------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make all records durable. A flush without space on the disk is continued by the next call."""
        if self._postponed_flush is not None:
            self._finish_flush(self._postponed_flush)
        self._finish_flush(self._log.begin_flush())

    def _finish_flush(self, flush: FlushTask) -> None:
        self._postponed_flush = flush
        with failing_dir(parent_of(self._directory)):
            flush.run()
        self._log.complete_flush(flush)
        self._postponed_flush = None

    def close(self) -> None:
        """Close the log durably."""
        if self._postponed_flush is not None:
            self.flush()
        self._log.close()


def _is_passing(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in PASSING


def values_of(batch: Batch, *, after: int = 0) -> list[bytes]:
    """Return the values of the metadata records of a batch from offset `after` on; none of a control batch.

    Raises KafkaError CORRUPT_MESSAGE, and ProtocolError for malformed records.
    """
    if not isinstance(batch, RecordBatch):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {batch.last_offset} has an old format")
    if batch.is_control:
        return []
    values = []
    for record in batch.records():
        if record.value is None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the record at offset {record.offset} has no value")
        if record.offset >= after:
            values.append(bytes(record.value))
    return values


def control_records_of(batch: Batch) -> Iterator[Any]:
    """Yield the control records of a batch. Raises KafkaError, and ProtocolError for malformed records."""
    if isinstance(batch, RecordBatch) and batch.is_control:
        for record in batch.records():
            yield decode_control_record(record.key, record.value)


def header_of(batches: list[RecordBatch], snapshot_id: OffsetAndEpoch) -> SnapshotHeaderRecord:
    """Return the first record of a snapshot. Raises CorruptSnapshotError, KafkaError, ProtocolError."""
    header = next(control_records_of(batches[0]), None) if batches else None
    if not isinstance(header, SnapshotHeaderRecord):
        raise CorruptSnapshotError(f"snapshot {snapshot_id} does not begin with a header")
    return header
