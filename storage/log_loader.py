"""Opening a log after a clean or an unclean stop: the only code that repairs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Protocol

from ..protocol.errors import KafkaError, ProtocolError
from ..protocol.record_batch import Batch, RecordBatch
from ..protocol.room_logger import room_logger
from .errors import PASSING, CorruptIndexError, CorruptSegmentError
from .filesystem import FileSystem
from .leader_epochs import FILE_NAME as EPOCHS_FILE_NAME
from .leader_epochs import LeaderEpochCache
from .log_config import LogConfig
from .log_segment import LogSegment
from .log_segments import LogSegments
from .partition_files import TEMPORARY_SUFFIX, log_files
from .producer_snapshot import SNAPSHOT_SUFFIX
from .producer_state import ProducerStateManager
from .segment_files import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX, TXN_INDEX_SUFFIX

NO_RECOVERY_POINT = -1

logger = room_logger("storage")


class Chance(Protocol):
    """What a log draws from a `random.Random`."""

    def random(self) -> float: ...

    def getrandbits(self, k: int, /) -> int: ...

    def randbytes(self, n: int) -> bytes: ...


@dataclass(slots=True)
class LoadedLog:
    """What opening a log found, or made."""

    segments: LogSegments
    leader_epochs: LeaderEpochCache
    producer_state: ProducerStateManager
    log_start_offset: int
    log_end_offset: int
    """Everything below it is on disk: a clean stop flushed it, or recovery did."""


@dataclass(slots=True)
class LogLoader:
    """Kafka's LogLoader: finishes or undoes interrupted swaps, drops what is left over, checks what was not flushed."""

    path: str
    config: LogConfig
    fs: FileSystem
    now_ms: Callable[[], int]
    rng: Chance
    may_have_gaps: bool = False
    """Whether it may have been compacted, whatever the configuration says."""

    def load(self, *, recovery_point: int, log_start_offset: int, clean_shutdown: bool) -> LoadedLog:
        """Open everything in the directory; an empty one gets a first segment. Raises OSError, StorageError.

        A recovery point of -1 says that nobody kept one: everything is checked, and gaps may be from compaction.
        """
        names = self._finish_interrupted_work()
        segments = self._open_segments(names)
        epochs = LeaderEpochCache(f"{self.path}/{EPOCHS_FILE_NAME}", self.fs)
        snapshots = [name for name in names if name.endswith(SNAPSHOT_SUFFIX)]
        producers = ProducerStateManager(self.path, self.fs, self.config.producer_id_expiration_ms, snapshots)
        if not clean_shutdown and len(segments):
            # A retention that was cut short left them, perhaps with holes that would look like lost data.
            segments.remove_files(self._below(segments, log_start_offset))
            self._recover(segments, epochs, producers, recovery_point, log_start_offset)
        self._mend_transaction_indexes(names, segments, producers, log_start_offset)
        log_end_offset = segments.last.next_offset() if len(segments) else -1
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
            clean_shutdown=clean_shutdown,
        )
        for segment in [segments.last] if clean_shutdown else segments:
            segment.close_handles()
        return LoadedLog(segments, epochs, producers, log_start_offset, log_end_offset)

    def _create_segment(self, base_offset: int) -> LogSegment:
        return create_segment(self.path, base_offset, self.config, self.fs, now_ms=self.now_ms(), rng=self.rng)

    # -- interrupted work ------------------------------------------------------------------------------------------

    def _finish_interrupted_work(self) -> list[str]:
        """Apply the rules of the suffixes; returns the names that are left.

        `.deleted` files go. `.cleaned` files are the output of a cleaning that did not finish; since a finished one is
        renamed to `.swap` from its end to its start, a `.swap` above a `.cleaned` belongs to the same unfinished one
        and goes, too. What is left as `.swap` is whole: it replaces every segment in its range.
        """
        names = log_files(self.fs, self.path)
        if not any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)) for name in names):
            return self._drop_leftovers(names)
        cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
        smallest_cleaned = min(map(_base_offset, cleaned), default=None)
        swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
        unfinished = [s for s in swaps if smallest_cleaned is not None and _base_offset(s) >= smallest_cleaned]
        # What says that a swap is not whole goes after it.
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
        """Let whole swaps replace what is in their range: first that goes, then logs get their names, then indexes.

        Each is durable before the next, so that another crash finds one of the states that are known here.
        """
        logs = [name for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
        if logs:
            start = min(map(_base_offset, logs))
            end = max(map(self._swap_end_offset, logs))
            self._unlink_all([n for n in names if n.endswith(SEGMENT_SUFFIXES) and start <= _base_offset(n) < end])
        # Listed only now: an index that was missing has been made anew by whoever looked for the end.
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
            segments.add(
                LogSegment(
                    self.path,
                    base_offset,
                    config=self.config,
                    fs=self.fs,
                    created_ms=self.now_ms(),
                    roll_jitter_ms=roll_jitter_ms(self.config, self.rng),
                )
            )
        return segments

    def _below(self, segments: LogSegments, log_start_offset: int) -> list[LogSegment]:
        """The segments of which nothing can be read any more."""
        return [segment for segment, following in pairwise(segments) if following.base_offset <= log_start_offset]

    # -- recovery --------------------------------------------------------------------------------------------------

    def _recover(
        self,
        segments: LogSegments,
        epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        recovery_point: int,
        log_start_offset: int,
    ) -> None:
        """Check every segment that may hold unflushed data; from the first bad batch on everything goes.

        What remains is made durable before anybody can read it, so that the end of the log does not go back again.
        """
        unflushed = segments.from_offset(recovery_point)
        if (
            len(unflushed) == 1
            and unflushed[0].base_offset < recovery_point
            and self._ends_at(unflushed[0], recovery_point)
        ):
            return
        self._check_indexes_before(segments, unflushed[0])
        rebuild_producer_state(
            producers,
            segments,
            log_start_offset=log_start_offset,
            end_offset=unflushed[0].base_offset,
            now_ms=self.now_ms(),
        )
        for number, segment in enumerate(unflushed):
            if number and self._is_behind_a_hole(segment, unflushed[number - 1], recovery_point):
                logger.warning("%s: dropped what follows a hole before offset %d", self.path, segment.base_offset)
                segments.remove_files(unflushed[number:])
                break
            producers.map_end_offset = max(producers.map_end_offset, segment.base_offset)
            _close(producers.take_snapshot())
            # What follows goes first: after a crash in between nothing would tell that it lies behind a loss.
            remove_following = partial(segments.remove_files, unflushed[number + 1 :])
            cut = segment.recover(_Replay(segment, epochs, producers).take_in, before_cut=remove_following)
            producers.map_end_offset = max(producers.map_end_offset, segment.next_offset())
            if cut:
                logger.warning("%s: cut %d bytes behind offset %d", self.path, cut, segment.next_offset())
            segment.flush()
            segment.close_handles()
            if cut:
                break
        epochs.flush()
        self.fs.fsync_dir(self.path)

    def _ends_at(self, segment: LogSegment, recovery_point: int) -> bool:
        """Whether everything in the segment was flushed: it ends with the batch that ends at the recovery point.

        Its indexes must say nothing beyond; a transaction index is too important for a guess.
        """
        try:
            rebuild_damaged_indexes(segment)
            last_indexed = max(segment.indexes.offset.last_offset, segment.indexes.time.last_entry.offset)
            return (
                segment.next_offset() == recovery_point
                and segment.is_as_opened
                and last_indexed < recovery_point
                and not segment.indexes.transactions.entries
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

    def _mend_transaction_indexes(
        self, names: list[str], segments: LogSegments, producers: ProducerStateManager, log_start_offset: int
    ) -> None:
        """Write the damaged ones anew, from the markers in their segments. Most logs have none to look at."""
        indexed = {_base_offset(name) for name in names if name.endswith(TXN_INDEX_SUFFIX)}
        for segment in segments if indexed else ():
            if segment.base_offset not in indexed:
                continue
            try:
                segment.indexes.transactions.sanity_check()
            except CorruptIndexError as error:
                logger.warning("%s; it is made anew", error)
                rebuild_producer_state(
                    producers,
                    segments,
                    log_start_offset=log_start_offset,
                    end_offset=segment.base_offset,
                    now_ms=self.now_ms(),
                )
                _rebuild_transaction_index(segment, producers)

    def _is_behind_a_hole(self, segment: LogSegment, before: LogSegment, recovery_point: int) -> bool:
        """Whether the end of the segment before was lost, although nothing in it is bad.

        Unsynced data may reach the disk in any order. But what compaction took away is no loss: below the recovery
        point nothing is lost, and in a topic that is compacted, or whose settings nobody knows, a gap says nothing.
        What lies behind a real hole was never flushed, since segments are flushed in their order.
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
    """Look at every entry of the offset and time index, and rebuild both if one is wrong; whether that was due."""
    try:
        segment.indexes.offset.check_entries(segment.size)
        segment.indexes.time.check_entries()
    except CorruptIndexError:
        segment.indexes.rebuild()
        return True
    return False


def _rebuild_transaction_index(segment: LogSegment, producers: ProducerStateManager) -> None:
    """Fill it, durably, while producers, as they were where the segment begins, are told of its batches."""
    segment.indexes.transactions.reset()
    producers.map_end_offset = max(producers.map_end_offset, segment.base_offset)
    try:
        for _, batch in segment.records.batches(0):
            aborted = producers.take_in(batch) if isinstance(batch, RecordBatch) else None
            if aborted is not None:
                segment.indexes.transactions.append(aborted)
    except (ProtocolError, KafkaError) as error:
        raise CorruptSegmentError(f"{segment.records.path}: a marker cannot be read: {error}") from error
    file = segment.indexes.transactions.unsynced_file()
    if file is not None:
        file.fsync()
    segment.indexes.transactions.close_handle()


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: LogSegments,
    *,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    clean_shutdown: bool = False,
) -> None:
    """Bring producer state to `end_offset`: newest snapshot at or below it, then the batches that follow.

    Without any snapshot after a clean stop there were no producers, as a stop writes one. Raises OSError and
    `CorruptSegmentError`. Kafka's rebuildProducerState.
    """
    if clean_shutdown and producers.latest_snapshot_offset is None:
        producers.map_end_offset = end_offset
        return
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
        _close(producers.take_snapshot())
    except OSError as error:
        if error.errno not in PASSING:
            raise
        # All is in memory. Without the file the next start reads more of the log, or takes a later one.


def create_segment(
    path: str, base_offset: int, config: LogConfig, fs: FileSystem, *, now_ms: int, rng: Chance
) -> LogSegment:
    """A new segment of the log at `path`. Raises OSError."""
    return LogSegment.create(
        path, base_offset, config=config, fs=fs, created_ms=now_ms, roll_jitter_ms=roll_jitter_ms(config, rng)
    )


def roll_jitter_ms(config: LogConfig, rng: Chance) -> int:
    """How much earlier than `segment.ms` a segment is rolled, so that many logs do not roll at one moment."""
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return int(rng.random() * limit)


def _base_offset(name: str) -> int:
    return int(name.partition(".")[0])


def _close(file: object) -> None:
    if file is not None:
        file.close()  # type: ignore[attr-defined]
