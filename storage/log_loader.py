"""Opening a log after a clean or an unclean stop: the only code that repairs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Protocol

from ..common.room_logger import room_logger
from ..protocol.errors import KafkaError, ProtocolError
from ..protocol.record_batch import Batch, RecordBatch
from .errors import PASSING, CorruptIndexError, CorruptSegmentError
from .filesystem import FileSystem
from .leader_epochs import FILE_NAME as EPOCHS_FILE_NAME
from .leader_epochs import LeaderEpochCache
from .log_config import LogConfig
from .log_segment import LogSegment
from .log_segments import LogSegments
from .partition_files import TEMPORARY_SUFFIX, log_files
from .partition_metadata import FILE_NAME as METADATA_FILE_NAME
from .producer_snapshot import SNAPSHOT_SUFFIX
from .producer_state import ProducerStateManager
from .recovered_files import RecoveredFiles
from .segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file_name,
)
from .transaction_index import AbortedTxn, IndexChecksum

NO_RECOVERY_POINT = -1
_NEW_NAMES = frozenset({segment_file_name(0, LOG_SUFFIX), METADATA_FILE_NAME, EPOCHS_FILE_NAME})

logger = room_logger("storage")


class RandomSource(Protocol):
    """The methods of `random.Random` that a log uses."""

    def random(self) -> float: ...

    def getrandbits(self, k: int, /) -> int: ...

    def randbytes(self, n: int) -> bytes: ...


@dataclass(slots=True)
class LoadedLog:
    """The state of a log that was opened or created."""

    segments: LogSegments
    leader_epochs: LeaderEpochCache
    producer_state: ProducerStateManager
    log_start_offset: int
    log_end_offset: int
    """Everything below it is on disk: a clean stop flushed it, or recovery did."""


@dataclass(slots=True)
class LogLoader:
    """Kafka's LogLoader: finishes or undoes interrupted swaps, removes leftovers, and checks unflushed segments."""

    path: str
    config: LogConfig
    fs: FileSystem
    now_ms: Callable[[], int]
    rng: RandomSource
    may_have_gaps: bool = False
    """Whether it may have been compacted, even if the current configuration does not compact it."""
    transaction_indexes: Mapping[int, IndexChecksum] = field(default_factory=dict)
    """Checksums of the transaction indexes at the clean stop before this start, by base offset."""
    sync: Callable[[RecoveredFiles], None] = RecoveredFiles.sync
    """Makes the recovered files durable, now or before the recovery point of this log is written to a checkpoint."""

    def load(self, *, recovery_point: int, log_start_offset: int, clean_shutdown: bool) -> LoadedLog:
        """Open all files in the directory; an empty directory gets a first segment. Raises OSError, StorageError.

        A recovery point of -1 means that none was stored: everything is checked, and gaps may be from compaction.
        """
        names = self._finish_interrupted_work()
        segments = self._open_segments(names)
        epochs = LeaderEpochCache(f"{self.path}/{EPOCHS_FILE_NAME}", self.fs)
        snapshots = [name for name in names if name.endswith(SNAPSHOT_SUFFIX)]
        producers = ProducerStateManager(self.path, self.fs, self.config.producer_id_expiration_ms, snapshots)
        recovered: list[LogSegment] = []
        unsynced: RecoveredFiles | None = None
        if not clean_shutdown and len(segments) and not (recovery_point <= 0 and self._is_new(names, segments)):
            # A retention that was cut short left them, perhaps with holes that would look like lost data.
            segments.remove_files(self._below(segments, log_start_offset))
            recovered, unsynced = self._recover(names, segments, epochs, producers, recovery_point, log_start_offset)
        log_end_offset = segments.last.next_offset() if len(segments) else -1
        self._mend_indexes(names, segments, producers, log_start_offset, log_end_offset, recovered)
        if len(segments) and epochs.latest_epoch < segments.last.last_leader_epoch:
            self._rebuild_epochs(segments, epochs)
        if log_end_offset < log_start_offset:
            if len(segments):
                logger.warning("%s ends below its start offset %d and is discarded", self.path, log_start_offset)
                segments.remove_files(list(segments))
                producers.truncate_fully_and_start_at(log_start_offset)
                epochs.clear()
            segments.add(self._create_segment(log_start_offset))
            log_end_offset = log_start_offset
        log_start_offset = max(log_start_offset, segments.first.base_offset)
        epochs.truncate_from_end(log_end_offset)
        epochs.truncate_from_start(log_start_offset)
        producers.remove_stray_snapshots(segments.base_offsets)
        rebuild_producer_state(
            producers,
            segments,
            log_start_offset=log_start_offset,
            end_offset=log_end_offset,
            now_ms=self.now_ms(),
        )
        if unsynced is not None:
            self.sync(unsynced)
        for segment in [segments.last] if clean_shutdown else segments:
            segment.close_handles()
        return LoadedLog(segments, epochs, producers, log_start_offset, log_end_offset)

    def load_new(self) -> LoadedLog:
        """Return the log of a folder that `LogDir.make_folders` has made since the start, without a look at its files.

        Ten thousand new partitions would otherwise be read, file by file, on the loop's thread.
        """
        segments = LogSegments(self.path, self.fs)
        segments.add(self._open_segment(0, size=0))
        epochs = LeaderEpochCache(f"{self.path}/{EPOCHS_FILE_NAME}", self.fs, is_new=True)
        producers = ProducerStateManager(self.path, self.fs, self.config.producer_id_expiration_ms, ())
        return LoadedLog(segments, epochs, producers, 0, 0)

    def _is_new(self, names: list[str], segments: LogSegments) -> bool:
        """Return whether the folder holds no record, index or snapshot, as after its creation.

        Then there is nothing to recover, and nothing that a sync would make durable. Of ten thousand partitions most
        are like that, and each would cost several syncs after a kill.
        """
        return segments.size_in_bytes == 0 and {*names} <= _NEW_NAMES

    def _create_segment(self, base_offset: int) -> LogSegment:
        return create_segment(self.path, base_offset, self.config, self.fs, now_ms=self.now_ms(), rng=self.rng)

    # -- interrupted work ------------------------------------------------------------------------------------------

    def _finish_interrupted_work(self) -> list[str]:
        """Complete or undo interrupted work according to the suffixes; return the remaining names.

        `.deleted` files are removed. `.cleaned` files are the output of a cleaning that did not finish. A finished
        cleaning renames its files to `.swap` from the highest to the lowest offset, so a `.swap` above a `.cleaned`
        belongs to the same unfinished cleaning and is removed as well. The remaining `.swap` files are complete: they
        replace every segment in their range.
        """
        names = log_files(self.fs, self.path)
        if not any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)) for name in names):
            return self._drop_leftovers(names)
        cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
        smallest_cleaned = min(map(_base_offset, cleaned), default=None)
        swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
        unfinished = [s for s in swaps if smallest_cleaned is not None and _base_offset(s) >= smallest_cleaned]
        # In this order: as long as an unfinished `.swap` exists, a `.cleaned` below it marks it as unfinished.
        self._unlink_all(unfinished)
        self._unlink_all(cleaned)
        self._unlink_all([name for name in names if name.endswith(DELETED_SUFFIX)])
        if len(unfinished) < len(swaps):
            self._complete_swaps(log_files(self.fs, self.path))
        return self._drop_leftovers(log_files(self.fs, self.path))

    def _unlink_all(self, names: list[str]) -> None:
        """Unlink files, durably."""
        for name in names:
            self.fs.unlink(f"{self.path}/{name}")
        if names:
            self.fs.fsync_dir(self.path)

    def _complete_swaps(self, names: list[str]) -> None:
        """Replace the segments in the range of complete swaps: remove them, rename the logs, then the indexes.

        Each step is durable before the next, so that another crash leaves one of the states that this class handles.
        """
        logs = [name for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
        if logs:
            start = min(map(_base_offset, logs))
            end = max(map(self._swap_end_offset, logs))
            self._unlink_all([n for n in names if n.endswith(SEGMENT_SUFFIXES) and start <= _base_offset(n) < end])
        # Listed only now, because the search for the end may have recreated a missing index.
        swaps = [name for name in log_files(self.fs, self.path) if name.endswith(SWAP_SUFFIX)]
        for group in (logs, [name for name in swaps if name not in logs]):
            for name in group:
                self.fs.rename(f"{self.path}/{name}", f"{self.path}/{name.removesuffix(SWAP_SUFFIX)}")
            self.fs.fsync_dir(self.path)

    def _swap_end_offset(self, name: str) -> int:
        segment = LogSegment(
            self.path, _base_offset(name), config=self.config, fs=self.fs, created_ms=0, suffix=SWAP_SUFFIX
        )
        try:
            return max(segment.next_offset(), segment.base_offset + 1)
        finally:
            segment.close_handles()

    def _drop_leftovers(self, names: list[str]) -> list[str]:
        """Remove indexes without a log, and checkpoints that were never finished."""
        bases = {_base_offset(name) for name in names if name.endswith(LOG_SUFFIX)}
        kept = []
        for name in names:
            is_orphan = name.endswith(SEGMENT_SUFFIXES) and _base_offset(name) not in bases
            if is_orphan or name.endswith(TEMPORARY_SUFFIX):
                self.fs.unlink(f"{self.path}/{name}")
            else:
                kept.append(name)
        return kept

    def _open_segments(self, names: list[str]) -> LogSegments:
        segments = LogSegments(self.path, self.fs)
        for base_offset in sorted(_base_offset(name) for name in names if name.endswith(LOG_SUFFIX)):
            segments.add(self._open_segment(base_offset))
        return segments

    def _open_segment(self, base_offset: int, size: int | None = None) -> LogSegment:
        return LogSegment(
            self.path,
            base_offset,
            config=self.config,
            fs=self.fs,
            created_ms=self.now_ms(),
            roll_jitter_ms=roll_jitter_ms(self.config, self.rng),
            size=size,
        )

    def _below(self, segments: LogSegments, log_start_offset: int) -> list[LogSegment]:
        """Return the segments that contain only offsets below the log start offset."""
        return [segment for segment, following in pairwise(segments) if following.base_offset <= log_start_offset]

    # -- recovery --------------------------------------------------------------------------------------------------

    def _recover(
        self,
        names: list[str],
        segments: LogSegments,
        epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        recovery_point: int,
        log_start_offset: int,
    ) -> tuple[list[LogSegment], RecoveredFiles | None]:
        """Check every segment that may hold unflushed data; remove everything from the first invalid batch on.

        Returns the segments that were checked, all of whose indexes are new, and their files. The remaining data is
        made durable before any client can read it, so that the log end offset cannot fall again: by `sync`. The files
        of the last segment remain open until then.
        """
        unflushed = segments.from_offset(recovery_point)
        if (
            len(unflushed) == 1
            and unflushed[0].base_offset < recovery_point
            and self._has_indexes(unflushed[0], names)
            and self._ends_at(unflushed[0], names, recovery_point)
            and not (unflushed[0].is_small and epochs.latest_epoch < unflushed[0].last_leader_epoch)
        ):
            return [], None
        self._check_indexes_before(segments, unflushed[0])
        rebuild_producer_state(
            producers,
            segments,
            log_start_offset=log_start_offset,
            end_offset=unflushed[0].base_offset,
            now_ms=self.now_ms(),
        )
        checked: list[LogSegment] = []
        for number, segment in enumerate(unflushed):
            if number and self._is_behind_a_hole(segment, unflushed[number - 1], recovery_point):
                logger.warning(
                    "%s: removed the segments after a gap, from offset %d on", self.path, segment.base_offset
                )
                segments.remove_files(unflushed[number:])
                break
            producers.map_end_offset = max(producers.map_end_offset, segment.base_offset)
            producers.take_snapshot()
            # The following segments are removed first: after a crash in between, nothing would mark the gap as a loss.
            remove_following = partial(segments.remove_files, unflushed[number + 1 :])
            cut = segment.recover(_Replay(segment, epochs, producers).take_in, before_cut=remove_following)
            producers.map_end_offset = max(producers.map_end_offset, segment.next_offset())
            if cut:
                logger.warning("%s: removed %d invalid bytes after offset %d", self.path, cut, segment.next_offset())
            if segment is not segments.last:
                segment.close_handles()
            checked.append(segment)
            if cut:
                break
        return unflushed, RecoveredFiles(self.fs, self.path, checked, segments, epochs)

    def _has_indexes(self, segment: LogSegment, names: list[str]) -> bool:
        """Return whether `_ends_at` is cheaper than recovery: the index files exist, or the segment is larger than one
        index interval.

        A small active segment has no index files before it is closed or rolled, and its recovery writes none.
        """
        return not segment.is_small or all(
            segment_file_name(segment.base_offset, suffix) in names for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        )

    def _ends_at(self, segment: LogSegment, names: list[str], recovery_point: int) -> bool:
        """Return whether the whole segment was flushed: it ends with the batch that ends at the recovery point.

        Its indexes must not reach beyond that offset. A segment with aborted transactions is always checked.
        """
        try:
            rebuild_damaged_indexes(segment)
            last_indexed = max(segment.indexes.offset.last_offset, segment.indexes.time.last_entry.offset)
            return (
                segment.next_offset() == recovery_point
                and segment.is_as_opened
                and last_indexed < recovery_point
                and not (
                    segment_file_name(segment.base_offset, TXN_INDEX_SUFFIX) in names
                    and segment.indexes.transactions.entries
                )
            )
        except (CorruptSegmentError, CorruptIndexError):
            return False

    def _check_indexes_before(self, segments: LogSegments, first_unflushed: LogSegment) -> None:
        """Rebuild the indexes of the last flushed segment if a crash damaged them.

        It may have been rolled after the flush that raised the recovery point to its end: of that segment the batches
        were flushed, and its indexes were not. Earlier ones were flushed whole, after they were rolled.
        """
        flushed = [segment for segment in segments if segment.base_offset < first_unflushed.base_offset]
        if flushed and rebuild_damaged_indexes(flushed[-1]):
            logger.warning("%s: rebuilt the indexes of segment %d", self.path, flushed[-1].base_offset)

    def _mend_indexes(
        self,
        names: list[str],
        segments: LogSegments,
        producers: ProducerStateManager,
        log_start_offset: int,
        log_end_offset: int,
        recovered: list[LogSegment],
    ) -> None:
        """Rebuild all indexes of a segment together if any is missing, and damaged transaction indexes.

        A segment without aborted transactions has no transaction index. Without a checksum of it, therefore, only a
        missing offset or time index, which every segment has after a roll or a clean stop, shows that files were
        deleted, and Kafka also rebuilds all three then.
        """
        present = set(names)
        ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset][: len(segments)]
        for segment, end_offset in zip(segments, ends, strict=True):
            if not segment.size or segment in recovered:
                continue
            base_offset = segment.base_offset
            is_whole = all(segment_file_name(base_offset, one) in present for one in (INDEX_SUFFIX, TIME_INDEX_SUFFIX))
            checksum = self.transaction_indexes.get(base_offset)
            if checksum is not None and checksum.log_size != segment.size:
                checksum = None
            has_transactions = checksum is not None or segment_file_name(base_offset, TXN_INDEX_SUFFIX) in present
            if is_whole and (not has_transactions or self._is_transaction_index_sound(segment, end_offset, checksum)):
                continue
            try:
                if not is_whole:
                    logger.warning(
                        "%s: an index is missing; all indexes of the segment are rebuilt", segment.records.path
                    )
                    segment.indexes.rebuild()
                _rebuild_transaction_index(segment, segments, producers, log_start_offset)
            except CorruptSegmentError as error:
                if has_transactions or segment is segments.last:
                    raise
                # Readers of this segment will meet the error; readers of other segments are not affected.
                logger.warning("the indexes of %s cannot be rebuilt: %s", segment.records.path, error)
            finally:
                segment.close_handles()

    def _is_transaction_index_sound(self, segment: LogSegment, end_offset: int, checksum: IndexChecksum | None) -> bool:
        try:
            if checksum is not None:
                segment.indexes.transactions.check(checksum)
            else:
                segment.indexes.transactions.sanity_check(end_offset)
        except CorruptIndexError as error:
            logger.warning("%s; it is rebuilt", error)
            return False
        return True

    def _rebuild_epochs(self, segments: LogSegments, epochs: LeaderEpochCache) -> None:
        """Rebuild the leader epochs from the batch headers, because the file lacks the epochs of existing records."""
        logger.warning("%s: epoch %d is missing; the file is rebuilt", epochs.path, segments.last.last_leader_epoch)
        epochs.clear()
        for segment in segments:
            try:
                for batch in segment.records.batch_positions():
                    if batch.leader_epoch > epochs.latest_epoch:
                        epochs.assign(batch.leader_epoch, batch.base_offset)
            except CorruptSegmentError as error:
                logger.warning("%s: its leader epochs cannot be read: %s", segment.records.path, error)
            finally:
                segment.close_handles()
        epochs.flush()

    def _is_behind_a_hole(self, segment: LogSegment, before: LogSegment, recovery_point: int) -> bool:
        """Return whether the end of the previous segment was lost, although none of its batches is invalid.

        Unsynced data may reach the disk in any order. But a gap from compaction is not a loss: below the recovery point
        nothing is lost, and in a topic that is compacted, or whose settings are unknown, a gap may be harmless.
        The segments after a real hole were never flushed, since segments are flushed in their order.
        """
        if self.config.compact or self.may_have_gaps or recovery_point == NO_RECOVERY_POINT:
            return False
        end = before.next_offset()
        return end != segment.base_offset and end >= recovery_point


@dataclass(slots=True)
class _Replay:
    """Takes the batches of one segment into epochs, producer state and transaction index."""

    segment: LogSegment
    epochs: LeaderEpochCache | None
    producers: ProducerStateManager

    def take_in(self, batch: Batch) -> None:
        if not isinstance(batch, RecordBatch):
            return
        epoch = batch.partition_leader_epoch
        if self.epochs is not None and epoch > self.epochs.latest_epoch:
            self.epochs.assign(epoch, batch.base_offset)
        aborted = self.producers.take_in(batch)
        if aborted is not None and self.epochs is not None:
            self.segment.indexes.transactions.append(aborted)


def rebuild_damaged_indexes(segment: LogSegment) -> bool:
    """Check every entry of the offset and time index; rebuild both if an entry is wrong, and return whether it was."""
    try:
        segment.indexes.offset.check_entries(segment.size)
        segment.indexes.time.check_entries()
    except CorruptIndexError:
        segment.indexes.rebuild()
        return True
    return False


def _rebuild_transaction_index(
    segment: LogSegment, segments: LogSegments, producers: ProducerStateManager, log_start_offset: int
) -> None:
    """Write the transaction index, durably, from the segment's batches and the transactions open at its start.

    These transactions are in the newest snapshot below, or follow from the batches after it. No snapshot is changed,
    because the newest snapshot is the state of the log's producers.
    """
    start, open_transactions = producers.open_below(segment.base_offset, log_start_offset)
    aborted: list[AbortedTxn] = []
    for each in segments.between(start, segment.base_offset + 1):
        try:
            for _, batch in each.records.batches(each.position_of(max(start, each.base_offset))):
                found = _next_aborted(batch, open_transactions)
                if found is not None and each is segment:
                    aborted.append(found)
        except (ProtocolError, KafkaError) as error:
            raise CorruptSegmentError(f"{each.records.path}: a marker cannot be read: {error}") from error
        finally:
            if each is not segment:
                each.close_handles()
    index = segment.indexes.transactions
    index.replace(aborted)
    file = index.unsynced_file()
    if file is not None:
        file.fsync()
    index.close_handle()


def _next_aborted(batch: Batch, open_transactions: dict[int, int]) -> AbortedTxn | None:
    """Return the transaction that a batch aborts; update `open_transactions` (producer id → first offset)."""
    if not isinstance(batch, RecordBatch) or batch.header.producer_id < 0:
        return None
    producer_id, offset = batch.header.producer_id, batch.base_offset
    if not batch.header.is_control:
        if batch.header.is_transactional:
            open_transactions.setdefault(producer_id, offset)
        return None
    marker = batch.end_marker
    if marker is None or producer_id not in open_transactions:
        return None
    first_offset = open_transactions.pop(producer_id)
    if not marker.is_abort:
        return None
    return AbortedTxn(producer_id, first_offset, offset, min(open_transactions.values(), default=offset + 1))


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: LogSegments,
    *,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
) -> None:
    """Bring producer state to `end_offset`: newest snapshot at or below it, then the batches that follow.

    A stop writes a snapshot at the log's end. Without a snapshot the state is rebuilt from the whole log, however it
    ended; Kafka's rebuildProducerState assumes a log of brokers before 0.11 in this case, and no producers.
    Raises OSError and `CorruptSegmentError`.
    """
    producers.truncate_and_reload(log_start_offset, end_offset, now_ms)
    if producers.map_end_offset >= end_offset:
        return
    for segment in segments.between(producers.map_end_offset, end_offset):
        start = max(segment.base_offset, producers.map_end_offset, log_start_offset)
        replay = _Replay(segment, None, producers)
        try:
            for _, batch in segment.records.batches(segment.position_of(start)):
                if batch.last_offset >= end_offset:
                    break
                replay.take_in(batch)
        except (ProtocolError, KafkaError) as error:
            raise CorruptSegmentError(f"{segment.records.path}: a marker cannot be read: {error}") from error
    producers.map_end_offset = end_offset
    try:
        producers.take_snapshot()
    except OSError as error:
        if error.errno not in PASSING:
            raise
        # All is in memory. Without the file the next start reads more of the log, or takes a later one.


def create_segment(
    path: str, base_offset: int, config: LogConfig, fs: FileSystem, *, now_ms: int, rng: RandomSource
) -> LogSegment:
    """Return a new segment of the log at `path`. Raises OSError."""
    return LogSegment.create(
        path, base_offset, config=config, fs=fs, created_ms=now_ms, roll_jitter_ms=roll_jitter_ms(config, rng)
    )


def roll_jitter_ms(config: LogConfig, rng: RandomSource) -> int:
    """Return the time by which a segment is rolled before `segment.ms`, so that logs roll at different times."""
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return int(rng.random() * limit)


def _base_offset(name: str) -> int:
    return int(name.partition(".")[0])
