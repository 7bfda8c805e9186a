"""A partition's state of its producers: sequences for idempotence, open transactions, and the snapshots of both."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from ..common.room_logger import room_logger
from ..protocol.checksum import crc32c
from ..protocol.errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.file_layouts import (
    SNAPSHOT_ENTRY,
    SNAPSHOT_HEADER,
    SnapshotEntry,
    begin_snapshot_crc,
    decode_snapshot,
    encode_snapshot_header,
    pack_snapshot_entry,
)
from ..protocol.record_batch import BatchHeader, EndMarker, RecordBatch
from .errors import FILE_ERRORS, PASSING
from .filesystem import FileSystem, TemporaryFile, write_all
from .partition_files import TEMPORARY_SUFFIX, clear_name
from .producer_snapshot import SNAPSHOT_SUFFIX, snapshot_file_name, snapshot_offset
from .transaction_index import AbortedTxn

logger = room_logger("storage")

NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
BATCHES_KEPT = 5
"""Java's producers have at most five batches in flight, so an older batch cannot be sent again."""

PRODUCERS_PER_WRITE = 500
"""Producers whose entries are encoded between two writes: a millisecond in which other threads may have to wait."""

_LAST_EPOCH = 2**15 - 1
_MAX_SEQUENCE = 2**31 - 1


class ProducedBatch(NamedTuple):
    """A batch in a producer's window. Its first sequence is `last_sequence − offset_delta`, wrapping."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


_NO_BATCH = ProducedBatch(NO_SEQUENCE, -1, 0, -1)


class CompletedTransaction(NamedTuple):
    """A transaction whose marker has been seen at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerStateEntry:
    """One producer: its epoch, its newest batches (all of that epoch), and its open transaction."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
        "version",
    )

    def __init__(self, producer_id: int, producer_epoch: int = NO_PRODUCER_EPOCH, version: int = 0) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.current_txn_first_offset: int | None = None
        self.batches: list[ProducedBatch] = []
        """Oldest first, at most `BATCHES_KEPT`."""
        self.version = version
        """The manager's when this entry was made: an entry of an older version belongs to a snapshot and is kept."""

    def copy(self, version: int) -> "ProducerStateEntry":
        """Return an equal entry, which may be changed while a snapshot keeps this one."""
        copied = ProducerStateEntry(self.producer_id, self.producer_epoch, version)
        copied.coordinator_epoch = self.coordinator_epoch
        copied.last_timestamp = self.last_timestamp
        copied.current_txn_first_offset = self.current_txn_first_offset
        copied.batches = self.batches[:]
        return copied

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Offset of the last data record; -1 if none is known."""
        return self.batches[-1].last_offset if self.batches else -1

    def take_epoch(self, producer_epoch: int) -> None:
        """Sequences belong to an epoch, so a new one starts without a window."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches = []

    def add_batch(self, batch: ProducedBatch) -> None:
        batches = self.batches
        if len(batches) >= BATCHES_KEPT:
            del batches[0]
        batches.append(batch)
        self.last_timestamp = batch.timestamp

    def append_data(self, header: BatchHeader, first_offset: int) -> None:
        """Add a data batch at `first_offset` to the window."""
        if self.producer_epoch != header.producer_epoch:
            self.take_epoch(header.producer_epoch)
        delta = header.last_offset_delta
        sequence = header.base_sequence
        if sequence >= 0:
            sequence = (sequence + delta) & _MAX_SEQUENCE
        self.add_batch(ProducedBatch(sequence, first_offset + delta, delta, header.max_timestamp))

    def check(self, header: BatchHeader, *, is_client: bool) -> ProducedBatch | None:
        """Judge a batch of this producer before it is written; return and raise as `ProducerStateManager.check`."""
        epoch = header.producer_epoch
        is_next = (
            epoch == self.producer_epoch
            and bool(self.batches)
            and header.base_sequence == (self.batches[-1].last_sequence + 1) & _MAX_SEQUENCE
        )
        if is_client and not is_next and (duplicate := self.find_duplicate(header)) is not None:
            return duplicate
        if epoch < self.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of producer {header.producer_id} is older than {self.producer_epoch}",
            )
        if is_client and not is_next:
            _check_sequence(self, epoch, header.base_sequence)
        if self.current_txn_first_offset is not None and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} sent non-transactional records while its transaction was open",
            )
        return None

    def find_duplicate(self, header: BatchHeader) -> ProducedBatch | None:
        """Return the batch in the window that has exactly this one's epoch and sequences."""
        if header.producer_epoch != self.producer_epoch:
            return None
        last_sequence, delta = header.last_sequence, header.last_offset_delta
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.offset_delta == delta:
                return batch
        return None


class ProducerSnapshot:
    """The producers of a log at an offset, to be encoded and written as a `.snapshot` file on any thread.

    Made and cancelled by the log's `ProducerStateManager` on the log's thread; `write`, `sync` and `rename` may be
    called on another one. The entries never change: the manager copies one before it changes it.

    A crash before the rename leaves no snapshot, or a temporary file that the next start removes. The flush that
    writes it has not counted as done then, so the log above the recovery point is read again in any case.
    """

    __slots__ = ("_entries", "_file", "_fs", "_path", "is_cancelled", "is_missing", "offset")

    def __init__(self, fs: FileSystem, offset: int, entries: list[ProducerStateEntry]) -> None:
        self._fs = fs
        self._entries = entries
        self._path = ""
        self._file: TemporaryFile | None = None
        self.offset = offset
        self.is_cancelled = False
        """Whether the log was cut below the offset: the file must not appear any more."""
        self.is_missing = False
        """Whether there was no space or no handle for the file. The next start reads more of the log instead."""

    def write(self, directory: str) -> None:
        """Write the content under a temporary name. Raises `OSError`."""
        if self.is_cancelled:
            return
        self.is_missing = False
        self._path = f"{directory}/{snapshot_file_name(self.offset)}"
        self._file = TemporaryFile(self._fs, self._path)
        try:
            self._write_content()
        except OSError as error:
            if error.errno not in PASSING:
                raise
            # Records that clients wait for must not wait for the snapshot, which only saves time at the next start.
            logger.warning("%s could not be written, so the next start reads the log: %s", self._path, error)
            self.is_missing = True
            with suppress(OSError):
                self._fs.unlink(self._path + TEMPORARY_SUFFIX)

    def _write_content(self) -> None:
        entries = self._entries
        count = sum(len(entry.batches) or 1 for entry in entries)
        crc, position = begin_snapshot_crc(count), SNAPSHOT_HEADER.size
        file = self._fs.open(self._path + TEMPORARY_SUFFIX, create=True)
        try:
            file.truncate(0)
            for start in range(0, len(entries), PRODUCERS_PER_WRITE):
                # Each write releases the interpreter's lock: the event loop never waits for more than one part.
                data = b"".join(_packed_entries(entries[start : start + PRODUCERS_PER_WRITE]))
                crc = crc32c(data, crc)
                write_all(file, data, position)
                position += len(data)
            write_all(file, encode_snapshot_header(crc, count), 0)
        finally:
            file.close()

    def sync(self) -> None:
        """Make the content durable. Raises `OSError`."""
        self._unless_cancelled(TemporaryFile.sync)

    def rename(self) -> None:
        """Give the file its name. Raises `OSError`."""
        if self._file is not None and self._fs.is_dir(self._path):
            clear_name(self._fs, self._path)
        self._unless_cancelled(TemporaryFile.rename)

    def _unless_cancelled(self, step: Callable[[TemporaryFile], None]) -> None:
        if self._file is None or self.is_cancelled or self.is_missing:
            return
        try:
            step(self._file)
        except FileNotFoundError:
            if not self.is_cancelled:
                raise

    def cancel(self, directory: str) -> None:
        """Remove all files of this snapshot. On the log's thread, perhaps during a step on another. Raises `OSError`.

        In this order no file with the final name remains: an earlier rename is undone, and a later rename finds no
        temporary file.
        """
        self.is_cancelled = True
        path = f"{directory}/{snapshot_file_name(self.offset)}"
        for name in (path + TEMPORARY_SUFFIX, path):
            with suppress(FileNotFoundError):
                if self._fs.exists(name):
                    clear_name(self._fs, name)

    def read(self) -> list[SnapshotEntry]:
        """Return the entries as the file has them."""
        return [SnapshotEntry(*SNAPSHOT_ENTRY.struct.unpack(packed)) for packed in _packed_entries(self._entries)]


class ProducerStateManager:
    """Kafka's ProducerStateManager. `map_end_offset` is the offset up to which the log has been taken in.

    Invariant: the state is a function of the batches in [log start, map_end_offset), apart from producers that have
    expired. Open transactions are kept by their first offset; a completed one counts as unstable until the high
    watermark has passed its marker.
    """

    __slots__ = (
        "_directory",
        "_fs",
        "_snapshots",
        "_unreplicated",
        "_unwritten",
        "_version",
        "last_snapshot_offset",
        "loaded_markers",
        "loaded_offset",
        "map_end_offset",
        "ongoing_transactions",
        "producer_id_expiration_ms",
        "producers",
    )

    def __init__(
        self, directory: str, fs: FileSystem, producer_id_expiration_ms: int, names: Iterable[str] | None = None
    ) -> None:
        """`names` are the files of the directory, if the caller has listed it already."""
        self._directory = directory
        self._fs = fs
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.producers: dict[int, ProducerStateEntry] = {}
        self.ongoing_transactions: dict[int, int] = {}
        """First offset → producer id, in ascending order of offset, as transactions start in log order."""
        self._unreplicated: dict[int, int] = {}
        self.map_end_offset = 0
        self.last_snapshot_offset = 0
        self.loaded_offset = 0
        """The offset up to which a snapshot replaced the log: `_unreplicated` lacks earlier transactions."""
        self.loaded_markers = False
        """Whether a transaction of any producer in that snapshot had ended, be the producer expired since."""
        self._version = 0
        """The number of snapshots that were begun: an entry of an older version is copied before it is changed."""
        self._unwritten: dict[int, ProducerSnapshot] = {}
        """Snapshots that are listed in `_snapshots` and whose files the next or present flush writes, by offset."""
        listed = fs.list_dir(directory) if names is None else names
        self._snapshots = sorted(snapshot_offset(name) for name in listed if name.endswith(SNAPSHOT_SUFFIX))

    # -- appending -------------------------------------------------------------------------------------------------

    def check(self, header: BatchHeader, *, is_client: bool) -> ProducedBatch | None:
        """Judge a batch with a producer id before it is written.

        Returns the batch of which it is a repetition, if so. Raises `KafkaError`: INVALID_PRODUCER_EPOCH for an old
        epoch, OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, INVALID_TXN_STATE for data outside the open transaction.
        """
        entry = self.producers.get(header.producer_id)
        return None if entry is None else entry.check(header, is_client=is_client)

    def check_marker(self, header: BatchHeader, coordinator_epoch: int, *, newer_epoch: bool = False) -> None:
        """Judge a transaction marker before it is written.

        With `newer_epoch` the marker of an open transaction must have a newer epoch than the transaction's records: a
        delayed marker of the transaction before it would end it too early (KIP-1228). The last epoch is an exception.
        Raises `KafkaError` INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker epoch {header.producer_epoch} of producer {header.producer_id} is older than "
                f"{entry.producer_epoch}",
            )
        is_open = entry.current_txn_first_offset is not None and header.producer_epoch != _LAST_EPOCH
        if newer_epoch and header.producer_epoch == entry.producer_epoch and is_open:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker epoch {header.producer_epoch} of producer {header.producer_id} is not newer than the records "
                "of its open transaction",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} is older than {entry.coordinator_epoch}",
            )

    def append_data(self, header: BatchHeader, first_offset: int) -> None:
        """Take in a data batch with a producer id that is in the log at `first_offset`."""
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerStateEntry(producer_id, header.producer_epoch, self._version)
        elif entry.version != self._version:
            entry = self.producers[producer_id] = entry.copy(self._version)
        entry.append_data(header, first_offset)
        if header.is_transactional and entry.current_txn_first_offset is None:
            entry.current_txn_first_offset = first_offset
            self.ongoing_transactions[first_offset] = producer_id

    def begin_appends(self) -> "ProducerAppends":
        """Return the empty list of batches that are about to be written together."""
        return ProducerAppends(self.producers, self._version)

    def append_marker(self, header: BatchHeader, offset: int, marker: EndMarker) -> CompletedTransaction | None:
        """Take in a transaction marker that is in the log at `offset`; the transaction it ends, if there was data."""
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerStateEntry(producer_id, header.producer_epoch, self._version)
        elif entry.version != self._version:
            entry = self.producers[producer_id] = entry.copy(self._version)
        entry.take_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        first_offset, entry.current_txn_first_offset = entry.current_txn_first_offset, None
        if first_offset is None:
            return None
        return CompletedTransaction(producer_id, first_offset, offset, marker.is_abort)

    def take_in(self, batch: RecordBatch) -> AbortedTxn | None:
        """Apply a batch that is in the log; return the entry for the transaction index if it aborts a transaction."""
        header = batch.header
        if header.producer_id < 0:
            return None
        if not header.is_control:
            self.append_data(header, header.base_offset)
            return None
        marker = batch.end_marker
        if marker is None:
            return None
        completed = self.append_marker(header, header.base_offset, marker)
        return None if completed is None else self._complete(completed)

    def _complete(self, completed: CompletedTransaction) -> AbortedTxn | None:
        last_stable_offset = self._next_stable_offset(completed)
        self.ongoing_transactions.pop(completed.first_offset, None)
        self._unreplicated[completed.first_offset] = completed.last_offset
        if not completed.is_aborted:
            return None
        return AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)

    def _next_stable_offset(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset after `completed` is removed."""
        for first_offset, producer_id in self.ongoing_transactions.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    # -- transactions and expiry -----------------------------------------------------------------------------------

    @property
    def has_transactions(self) -> bool:
        """Whether any transaction is unstable."""
        return bool(self.ongoing_transactions or self._unreplicated)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open, or ended by a marker above the high watermark."""
        first = next(iter(self.ongoing_transactions), None)
        if self._unreplicated:
            unreplicated = min(self._unreplicated)
            return unreplicated if first is None else min(first, unreplicated)
        return first

    def has_late_transaction(self, before_ms: int) -> bool:
        """Return whether the producer of the oldest open transaction wrote last before this time.

        Kafka's ProducerStateManager.hasLateTransaction.
        """
        if not self.ongoing_transactions:
            return False
        entry = self.producers.get(next(iter(self.ongoing_transactions.values())))
        return entry is not None and 0 < entry.last_timestamp < before_ms

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Completed transactions whose marker is now committed are stable."""
        if self._unreplicated:
            self._drop_unreplicated(high_watermark)

    def add_unreplicated(self, ended: Mapping[int, int]) -> None:
        """Transactions, first offset → marker, that ended above the high watermark before a snapshot was loaded."""
        self._unreplicated.update(ended)

    def _drop_unreplicated(self, end_offset: int) -> None:
        self._unreplicated = {first: last for first, last in self._unreplicated.items() if last >= end_offset}

    def on_log_start_offset_raised(self, log_start_offset: int) -> None:
        """Drop transactions that ended below the start of the log; producers are kept for their sequences."""
        self._drop_unreplicated(log_start_offset)
        if self.map_end_offset < log_start_offset:
            self.map_end_offset = log_start_offset
        self.last_snapshot_offset = self._snapshots[-1] if self._snapshots else log_start_offset

    def is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        """Silent for `producer.id.expiration.ms`, and without an open transaction."""
        return (
            entry.current_txn_first_offset is None and now_ms - entry.last_timestamp >= self.producer_id_expiration_ms
        )

    def remove_expired(self, producer_ids: Iterable[int], now_ms: int) -> int:
        """Forget the expired ones of these producers; returns how many there were."""
        entries = (self.producers.get(producer_id) for producer_id in producer_ids)
        expired = [entry.producer_id for entry in entries if entry is not None and self.is_expired(entry, now_ms)]
        for producer_id in expired:
            del self.producers[producer_id]
        return len(expired)

    # -- snapshots and reload --------------------------------------------------------------------------------------

    def begin_snapshot(self) -> ProducerSnapshot | None:
        """Return a snapshot at `map_end_offset` for a flush to write, if there is none yet.

        Takes milliseconds for a million producers: only references to their entries are copied.
        """
        offset = self.map_end_offset
        if offset <= self.last_snapshot_offset or offset in self._snapshots:
            return None
        snapshot = self._unwritten[offset] = ProducerSnapshot(self._fs, offset, list(self.producers.values()))
        self._version += 1
        self._snapshots.append(offset)
        self.last_snapshot_offset = offset
        return snapshot

    def complete_snapshot(self, snapshot: ProducerSnapshot) -> None:
        """Note that a flush has written the file of a snapshot, or had no room for it."""
        if self._unwritten.get(snapshot.offset) is snapshot:
            del self._unwritten[snapshot.offset]
            if snapshot.is_missing:
                self._snapshots.remove(snapshot.offset)

    def take_snapshot(self) -> None:
        """Write a snapshot at `map_end_offset` if there is none yet, not durably. Raises `OSError`.

        It needs no order with the data: a torn snapshot fails its CRC check, and a longer replay replaces it.
        """
        snapshot = self.begin_snapshot()
        if snapshot is not None:
            snapshot.write(self._directory)
            snapshot.rename()
            self.complete_snapshot(snapshot)

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Go back to the newest snapshot in (log_start_offset, log_end_offset], or to nothing.

        The caller replays the log from `map_end_offset` on. Snapshots outside that range are removed. Transactions that
        are over are remembered until their markers are committed: a log is cut where it parts from its leader's, which
        may be far above the high watermark.
        """
        for offset in self._snapshots[:]:
            if offset > log_end_offset or offset <= log_start_offset:
                self._delete_snapshot(offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_raised(log_start_offset)
            return
        unreplicated = {first: last for first, last in self._unreplicated.items() if last < log_end_offset}
        self._clear()
        self._unreplicated = unreplicated
        self._load_from_snapshot(log_start_offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything, snapshots included."""
        self._clear()
        for snapshot in self._snapshots[:]:
            self._delete_snapshot(snapshot)
        self.last_snapshot_offset = self.map_end_offset = offset

    def remove_stray_snapshots(self, segment_base_offsets: Iterable[int]) -> None:
        """Keep the snapshots at segment bases, and the newest snapshot if it is above all of them."""
        bases = set(segment_base_offsets)
        newest_base = max(bases, default=None)
        for offset in self._snapshots[:]:
            is_newest = offset == self._snapshots[-1]
            if offset not in bases and not (is_newest and (newest_base is None or offset > newest_base)):
                self._delete_snapshot(offset)

    def forget_snapshot(self, offset: int) -> str | None:
        """Stop counting on the snapshot at `offset`; the path of its file for the caller to remove, if there is one."""
        if offset not in self._snapshots:
            return None
        if offset in self._unwritten:
            self._delete_snapshot(offset)
            return None
        self._snapshots.remove(offset)
        return self._path_of(offset)

    def moved_to(self, directory: str) -> None:
        """Use another path: the directory has been renamed."""
        self._directory = directory

    def _clear(self) -> None:
        self.producers.clear()
        self.ongoing_transactions.clear()
        self._unreplicated.clear()

    def _load_from_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        while self._snapshots:
            offset = self._snapshots[-1]
            entries = self._read_snapshot(offset)
            if entries is None:
                self._delete_snapshot(offset)
                continue
            for snapshot_entry in entries:
                _take_snapshot_entry(self.producers, snapshot_entry)
            self.loaded_markers = any(entry.coordinator_epoch >= 0 for entry in entries)
            self.remove_expired(list(self.producers), now_ms)
            self._find_ongoing_transactions()
            self.last_snapshot_offset = self.map_end_offset = self.loaded_offset = offset
            return
        self.last_snapshot_offset = self.map_end_offset = self.loaded_offset = log_start_offset

    def open_below(self, offset: int, log_start_offset: int) -> tuple[int, dict[int, int]]:
        """Return the newest snapshot at or below an offset, and where transactions begin that are open there, by
        producer.

        The start of the log, where nothing is open, if there is none. Raises OSError.
        """
        for snapshot in reversed(self._snapshots):
            if log_start_offset < snapshot <= offset and (entries := self._read_snapshot(snapshot)) is not None:
                firsts = ((entry.producer_id, entry.current_txn_first_offset) for entry in entries)
                return snapshot, {producer_id: first for producer_id, first in firsts if first >= 0}
        return log_start_offset, {}

    def _read_snapshot(self, offset: int) -> list[SnapshotEntry] | None:
        """Read a snapshot; None if it is damaged, unreadable or belongs to another log. Raises OSError."""
        if offset in self._unwritten:
            return self._unwritten[offset].read()
        path = self._path_of(offset)
        try:
            entries = decode_snapshot(self._fs.read_bytes(path))
        except ProtocolError as error:
            logger.warning("%s is damaged; the log is read instead: %s", path, error)
            return None
        except OSError as error:
            if error.errno not in FILE_ERRORS:
                raise
            logger.warning("%s cannot be read; the log is read instead: %s", path, error)
            return None
        if any(max(entry.last_offset, entry.current_txn_first_offset) >= offset for entry in entries):
            logger.warning("%s contains offsets above its own offset; the log is read instead", path)
            return None
        return entries

    def _find_ongoing_transactions(self) -> None:
        open_entries = [
            (entry.current_txn_first_offset, entry.producer_id)
            for entry in self.producers.values()
            if entry.current_txn_first_offset is not None
        ]
        self.ongoing_transactions = dict(sorted(open_entries))

    def _delete_snapshot(self, offset: int) -> None:
        self._snapshots.remove(offset)
        unwritten = self._unwritten.pop(offset, None)
        if unwritten is not None:
            unwritten.cancel(self._directory)
            return
        path = self._path_of(offset)
        if self._fs.exists(path):
            clear_name(self._fs, path)

    def _path_of(self, offset: int) -> str:
        return f"{self._directory}/{snapshot_file_name(offset)}"


class ProducerAppends:
    """Data batches that are about to be written together, each checked as if the batches before it were in the log.

    The counterpart of Kafka's ProducerAppendInfo, for all producers of one append. Changes nothing before `complete`,
    which must be called in the same turn of the event loop.
    """

    __slots__ = ("_changed", "_producers", "_version")

    def __init__(self, producers: dict[int, ProducerStateEntry], version: int) -> None:
        self._producers = producers
        self._version = version
        self._changed: dict[int, ProducerStateEntry] = {}
        """The entries of these producers as they are after the append."""

    def __bool__(self) -> bool:
        return bool(self._changed)

    def add(self, front: bytes) -> bool:
        """Add a client's batch by its header, with its final base offset.

        Return False, without a change, unless it is the next batch of its producer: other batches repeat an earlier
        one or are errors. The batch must not be transactional.
        """
        header = BatchHeader.read(front)
        producer_id = header.producer_id
        assert producer_id >= 0 and not header.is_transactional, "an idempotent producer's batch"
        entry = self._changed.get(producer_id)
        present = entry or self._producers.get(producer_id)
        if present is not None:
            try:
                if present.check(header, is_client=True) is not None:
                    return False
            except KafkaError:
                return False
        if entry is None:
            # A copy, as the write may fail; and a roll before the write may put the present entry into a snapshot.
            entry = (
                ProducerStateEntry(producer_id, header.producer_epoch, self._version)
                if present is None
                else present.copy(self._version)
            )
            self._changed[producer_id] = entry
        entry.append_data(header, header.base_offset)
        return True

    def complete(self) -> None:
        """Apply the batches, which have been written."""
        self._producers.update(self._changed)


def _check_sequence(entry: ProducerStateEntry, producer_epoch: int, first_sequence: int) -> None:
    """Kafka's ProducerAppendInfo.checkSequence."""
    if producer_epoch != entry.producer_epoch:
        if first_sequence != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"epoch {producer_epoch} of producer {entry.producer_id} starts at sequence {first_sequence}, not 0",
            )
        return
    expected = (entry.last_sequence + 1) & _MAX_SEQUENCE
    if first_sequence != expected and entry.producer_epoch != NO_PRODUCER_EPOCH:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"sequence {first_sequence} of producer {entry.producer_id}, expected {expected}",
        )


def _packed_entries(producers: Iterable[ProducerStateEntry]) -> list[bytes]:
    """Return one entry for each batch of each window, oldest first; see `SnapshotEntry`.

    Packed in place, as a roll waits.
    """
    packed: list[bytes] = []
    add, pack = packed.append, pack_snapshot_entry
    for entry in producers:
        producer_id, epoch, coordinator_epoch = entry.producer_id, entry.producer_epoch, entry.coordinator_epoch
        first_offset = -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset
        batches = entry.batches or [_NO_BATCH]
        for sequence, last_offset, delta, timestamp in batches[:-1]:
            add(pack(producer_id, epoch, sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset))
        sequence, last_offset, delta, _ = batches[-1]
        timestamp = entry.last_timestamp  # of a marker, perhaps, which has no batch
        add(pack(producer_id, epoch, sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset))
    return packed


def _take_snapshot_entry(producers: dict[int, ProducerStateEntry], snapshot: SnapshotEntry) -> None:
    """Add one entry of a snapshot to the state that the entries before it made."""
    entry = producers.get(snapshot.producer_id)
    if entry is None or entry.producer_epoch != snapshot.producer_epoch:
        entry = producers[snapshot.producer_id] = ProducerStateEntry(snapshot.producer_id, snapshot.producer_epoch)
    entry.coordinator_epoch = snapshot.coordinator_epoch
    first_offset = snapshot.current_txn_first_offset
    entry.current_txn_first_offset = None if first_offset < 0 else first_offset
    if snapshot.last_offset >= 0:
        entry.add_batch(
            ProducedBatch(snapshot.last_sequence, snapshot.last_offset, snapshot.offset_delta, snapshot.timestamp)
        )
    entry.last_timestamp = snapshot.timestamp
