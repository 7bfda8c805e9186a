"""The records that a cleaner must keep and must remove, checked after each pass of any cleaner."""

from __future__ import annotations

from dataclasses import dataclass, field

from soak.cleaning.contents import (
    BatchRow,
    RecordRow,
    batches_of,
    data_records,
    latest,
    markers,
    record_row,
    tombstones,
)
from soak.cleaning.history import History

from barnabas.protocol.record_batch import Batch, RecordBatch, iter_batches
from barnabas.storage.dump import verify_indexes
from barnabas.storage.filesystem import FileSystem
from barnabas.storage.log_values import FetchData


class BrokenPromiseError(AssertionError):
    """A violation of a guarantee by a cleaner: a record that was lost, kept or changed."""


def require(condition: bool, text: str) -> None:
    """Raise BrokenPromiseError unless the condition holds."""
    if not condition:
        raise BrokenPromiseError(text)


@dataclass(frozen=True)
class Pass:
    """One pass over the log: the start and the limit of the dirty range, and the end of the cleaned range."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    next_dirty_offset: int


@dataclass
class Promises:
    """A checker that follows one history through its cleaner passes."""

    history: History
    fetch_bytes: int = 700
    """The size of a fetch of the readers."""
    clean_until: int = 0
    """All offsets below were in the dirty range of some pass."""
    cleanable_until: int = 0
    """All offsets from here on were uncleanable in all passes."""
    tombstone_seen_ms: dict[int, int] = field(default_factory=dict)
    """The time of the first pass over each tombstone, by offset."""
    marker_seen_ms: dict[int, int] = field(default_factory=dict)
    """The time of the first pass that left no record of the transaction, by offset of the marker."""
    tombstone_due_ms: dict[int, int] = field(default_factory=dict)
    """The time after which a pass must remove each tombstone, by offset."""
    marker_due_ms: dict[int, int] = field(default_factory=dict)
    """The time after which a pass must remove each marker, by offset."""
    bare_markers: set[int] = field(default_factory=set)
    """Markers of transactions without remaining batches, not even empty batches."""
    gone: set[int] = field(default_factory=set)
    """Offsets of removed records, which must not reappear."""

    def check_pass(self, done: Pass) -> None:
        """Check the effects of a pass, then the invariants."""
        history = self.history
        require(
            done.first_dirty_offset <= done.next_dirty_offset <= done.first_uncleanable_offset,
            f"the offsets of {done} are out of order",
        )
        require(
            done.next_dirty_offset <= history.last_stable_offset,
            f"cleaned up to {done.next_dirty_offset}, the last stable offset is {history.last_stable_offset}",
        )
        active = history.log.active_segment.base_offset
        require(done.next_dirty_offset <= active, f"cleaned up to {done.next_dirty_offset}, active segment at {active}")
        self._check_lag(done)
        self.clean_until = max(self.clean_until, done.next_dirty_offset)
        self.cleanable_until = max(self.cleanable_until, done.first_uncleanable_offset)
        rows = self.check()
        self._note_what_the_pass_saw(rows, done)
        self._check_that_it_cleaned(rows, done)
        self._check_that_horizons_pass(rows, done)

    def _check_lag(self, done: Pass) -> None:
        youngest = self.history.clock.now_ms - self.history.settings.min_compaction_lag_ms
        if self.history.settings.min_compaction_lag_ms == 0:
            return
        for entry in self.history.written:
            row = entry.row
            if done.first_dirty_offset <= row.offset < done.next_dirty_offset and row.timestamp is not None:
                require(row.timestamp <= youngest, f"the record at {row.offset} is too young to be cleaned")

    def check(self) -> list[BatchRow]:
        """Check the invariants; return the batches of the log."""
        history = self.history
        rows = batches_of(history.folder, history.fs)
        self._check_reader(rows)
        self._check_records(rows)
        self._check_batches(rows)
        self._check_markers(rows)
        self._check_stable_map()
        self._check_state()
        verify_all_indexes(history.fs, history.folder)
        return rows

    def _check_reader(self, rows: list[BatchRow]) -> None:
        """Check that a reader receives exactly the records in the files, in increasing order."""
        found: list[RecordRow] = []
        for batch in read(self.history, self.fetch_bytes):
            if not isinstance(batch, RecordBatch) or not batch.is_control:
                found += [record_row(record, batch.magic) for record in batch.records()]
        offsets = [record.offset for record in found]
        require(offsets == sorted(set(offsets)), f"offsets do not increase: {offsets}")
        require(found == data_records(rows), "a reader receives other records than the files contain")

    def _check_records(self, rows: list[BatchRow]) -> None:
        """Check that no record has changed, and that only superseded, aborted or expired records were removed."""
        written = {entry.row.offset: entry for entry in self.history.written}
        present = {record.offset: record for record in data_records(rows)}
        for offset, record in present.items():
            require(offset in written, f"the record at {offset} was never written")
            require(record == written[offset].row, f"{record} was written as {written[offset].row}")
            require(offset not in self.gone, f"the removed record at {offset} has reappeared")
        self.gone = set(written) - set(present)
        valid = [entry.row for entry in self.history.valid() if entry.row.offset < self.clean_until]
        last_of_key = {row.key: row.offset for row in valid}
        for offset, entry in written.items():
            if offset in present:
                continue
            if entry.is_aborted:
                require(offset < self.cleanable_until, f"the aborted record at {offset} could not be cleaned yet")
                continue
            require(offset < self.clean_until, f"the record at {offset} is missing above {self.clean_until}")
            if last_of_key[entry.row.key] != offset:
                continue
            require(entry.row.value is None, f"the last value of {entry.row.key!r}, at {offset}, is missing")
            seen_ms = self.tombstone_seen_ms.get(offset)
            require(seen_ms is not None, f"the first pass over the tombstone at {offset} removed it")
            # Formats v0 and v1 cannot store the time of the first pass: the age of the segment counts instead.
            self._require_past(entry.at_ms if entry.magic < 2 else seen_ms, f"the tombstone at {offset}")

    def _require_past(self, seen_ms: int | None, what: str) -> None:
        """Raise BrokenPromiseError unless `delete.retention.ms` have passed since `seen_ms`."""
        now_ms, retention = self.history.clock.now_ms, self.history.settings.delete_retention_ms
        if seen_ms is None:
            raise BrokenPromiseError(f"the first pass over {what} removed it")
        require(now_ms >= seen_ms + retention, f"{what} was removed after {now_ms - seen_ms} of {retention} ms")

    def _check_batches(self, rows: list[BatchRow]) -> None:
        """Check that the base offset, last offset, producer and codec of each batch have not changed."""
        for row in rows:
            if row.magic < 2:
                continue
            span = (row.base_offset, row.last_offset)
            original = self.history.batches.get(span)
            require(original is not None, f"the batch of {span} was never written")
            found = (row.attributes & 7, row.producer)
            assert original is not None
            expected = original if row.records else (0, original[1])
            require(found == expected, f"the batch of {span} was written as {expected}, now it is {found}")

    def _check_markers(self, rows: list[BatchRow]) -> None:
        """Check that a marker is kept while its transaction has records, and for `delete.retention.ms` afterwards."""
        present = {row.base_offset for row in rows if row.is_control and row.records}
        data = {record.offset for record in data_records(rows)}
        for transaction in self.history.transactions:
            if transaction.state == "open" or transaction.marker in present:
                continue
            left = [offset for offset in transaction.offsets if offset in data]
            require(not left, f"the marker at {transaction.marker} is missing, with records {left}")
            self._require_past(self.marker_seen_ms.get(transaction.marker), f"the marker at {transaction.marker}")

    def _check_stable_map(self) -> None:
        """Check that a read_committed reader, given the aborted transactions, ends with the model's map."""
        found = latest(read_committed(self.history, self.fetch_bytes))
        expected = self.history.stable_map()
        wrong = {key for key in {*found, *expected} if found.get(key) != expected.get(key)}
        require(not wrong, f"wrong after reading: {[(key, found.get(key), expected.get(key)) for key in wrong]}")

    def _check_state(self) -> None:
        """Check that the offsets of the log and the producer states have not changed."""
        history, log = self.history, self.history.log
        require(log.log_end_offset == history.end_offset, f"the log ends at {log.log_end_offset}")
        require(log.log_start_offset == 0, f"the log starts at {log.log_start_offset}")
        stable = history.last_stable_offset
        require(log.last_stable_offset == stable, f"last stable offset {log.last_stable_offset}, not {stable}")
        for producer in history.producers.values():
            if producer.next_sequence == 0:
                continue
            entry = log.producer_state.producers.get(producer.producer_id)
            require(entry is not None, f"producer {producer.producer_id} is forgotten")
            assert entry is not None
            known = (entry.producer_epoch, entry.last_sequence, entry.last_offset)
            expected = (producer.epoch, producer.next_sequence - 1, producer.last_offset)
            require(known == expected, f"producer {producer.producer_id} is at {known}, not at {expected}")

    def _note_what_the_pass_saw(self, rows: list[BatchRow], done: Pass) -> None:
        now_ms = self.history.clock.now_ms
        for entry in self.history.written:
            if entry.row.value is None and entry.row.offset < done.first_uncleanable_offset:
                self.tombstone_seen_ms.setdefault(entry.row.offset, now_ms)
        data = {record.offset for record in data_records(rows)}
        for transaction in self.history.transactions:
            if 0 <= transaction.marker < done.first_uncleanable_offset and not data.intersection(transaction.offsets):
                self.marker_seen_ms.setdefault(transaction.marker, now_ms)

    def _check_that_it_cleaned(self, rows: list[BatchRow], done: Pass) -> None:
        """Check that the cleaned range has each key once and no aborted records."""
        written = {entry.row.offset: entry for entry in self.history.written}
        seen: dict[bytes | None, int] = {}
        for record in data_records(rows):
            if record.offset >= done.next_dirty_offset:
                break
            require(not written[record.offset].is_aborted, f"the aborted record at {record.offset} was not removed")
            before = seen.get(record.key)
            require(before is None, f"{record.key!r} is at {before} and at {record.offset} in the cleaned range")
            seen[record.key] = record.offset

    def _check_that_horizons_pass(self, rows: list[BatchRow], done: Pass) -> None:
        """Check that a pass removes due tombstones and markers. Tombstones in formats v0 and v1 are not checked."""
        now_ms, horizon_ms = self.history.clock.now_ms, self.history.settings.delete_retention_ms
        legacy = {entry.row.offset for entry in self.history.written if entry.magic < 2}
        for due, present, what in (
            (self.tombstone_due_ms, tombstones(rows) - legacy, "tombstone"),
            (self.marker_due_ms, {offset for offset, _ in markers(rows)}, "marker"),
        ):
            for offset in present:
                if offset < done.next_dirty_offset and offset in due:
                    require(now_ms < due[offset], f"the {what} at {offset} is kept at {now_ms}, due at {due[offset]}")
        for offset in tombstones(rows):
            if offset < done.next_dirty_offset:
                self.tombstone_due_ms.setdefault(offset, now_ms + horizon_ms)
        spans = {offset for row in rows if row.is_transactional and not row.is_control for offset in span(row)}
        for transaction in self.history.transactions:
            if 0 <= transaction.marker < done.next_dirty_offset and transaction.marker in self.bare_markers:
                self.marker_due_ms.setdefault(transaction.marker, now_ms + horizon_ms)
        self.bare_markers = {
            entry.marker for entry in self.history.transactions if not spans.intersection(entry.offsets)
        }


def verify_all_indexes(fs: FileSystem, folder: str) -> None:
    """Raise BrokenPromiseError if an index of the partition in `folder` contradicts its log."""
    for name in sorted(fs.list_dir(folder)):
        if name.endswith(".log"):
            for problem in verify_indexes(fs, f"{folder}/{name}"):
                raise BrokenPromiseError(f"{name}: {problem}")


def span(row: BatchRow) -> range:
    """Return all offsets of a batch, including the offsets of removed records."""
    return range(row.base_offset, row.last_offset + 1)


def fetches(history: History, max_length: int, *, committed: bool) -> list[FetchData]:
    """Return the responses to consecutive fetches of a consumer that starts at offset 0."""
    log = history.log
    bound = log.last_stable_offset if committed else log.log_end_offset
    answers, offset = [], 0
    while offset < bound:
        answer = log.read(offset, max_length, max_offset=bound, min_one_message=True, read_committed=committed)
        whole = list(iter_batches(bytes(answer.data)))
        if not whole:
            break
        answers.append(answer)
        offset = whole[-1].last_offset + 1
    return answers


def read(history: History, max_length: int) -> list[Batch]:
    """Return all batches, fetched as a consumer fetches them."""
    return [
        batch for answer in fetches(history, max_length, committed=False) for batch in iter_batches(bytes(answer.data))
    ]


def read_committed(history: History, max_length: int) -> list[RecordRow]:
    """Return the records that Kafka's consumer returns with isolation.level=read_committed, by the same algorithm."""
    found: list[RecordRow] = []
    for answer in fetches(history, max_length, committed=True):
        pending = sorted(answer.aborted_transactions or (), key=lambda entry: entry.first_offset)
        aborted: set[int] = set()
        for batch in iter_batches(bytes(answer.data)):
            while pending and pending[0].first_offset <= batch.last_offset:
                aborted.add(pending.pop(0).producer_id)
            if isinstance(batch, RecordBatch) and batch.is_control:
                marker = batch.end_marker if batch.header.record_count else None
                if marker is not None and marker.is_abort:
                    aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborted):
                found += [record_row(record, batch.magic) for record in batch.records()]
    return found
