"""A compacted partition and a model with all its written records, which cleaned logs are compared with."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from soak.cleaning.contents import RecordRow
from tests.storage.logs import Clock

from barnabas.protocol.record_batch import ControlType, RecordBatchBuilder, control_batch
from barnabas.storage.filesystem import FileSystem
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_validator import COORDINATOR_RULES

Restart = Literal["clean", "killed", "without snapshots"]
FORMATS = {0: "0.9.0", 1: "0.10.0", 2: "3.0"}


@dataclass(frozen=True)
class Settings:
    """The settings of a random history: sizes in bytes, times in ms."""

    magic: int = 2
    segment_bytes: int = 900
    segment_index_bytes: int = 400
    index_interval_bytes: int = 150
    delete_retention_ms: int = 1000
    min_compaction_lag_ms: int = 0

    def log_config(self, magic: int) -> LogConfig:
        return LogConfig(
            cleanup_policy="compact",
            segment_bytes=self.segment_bytes,
            segment_index_bytes=self.segment_index_bytes,
            index_interval_bytes=self.index_interval_bytes,
            delete_retention_ms=self.delete_retention_ms,
            min_compaction_lag_ms=self.min_compaction_lag_ms,
            min_cleanable_dirty_ratio=0.0,
            message_format_version=FORMATS[magic],
            file_delete_delay_ms=0,
            producer_id_expiration_ms=1 << 50,
        )

    def topic(self) -> dict[str, str]:
        """Return the same settings with Kafka's names."""
        return {
            "segment.bytes": str(self.segment_bytes),
            "segment.index.bytes": str(self.segment_index_bytes),
            "index.interval.bytes": str(self.index_interval_bytes),
            "delete.retention.ms": str(self.delete_retention_ms),
            "min.compaction.lag.ms": str(self.min_compaction_lag_ms),
        }


@dataclass
class Transaction:
    """A transaction of one producer in this partition; `marker` is the offset of its marker."""

    producer_id: int
    offsets: list[int] = field(default_factory=list)
    state: Literal["open", "committed", "aborted"] = "open"
    marker: int = -1


@dataclass(frozen=True)
class Written:
    """A written record, with its format, its time and its transaction."""

    row: RecordRow
    magic: int
    at_ms: int
    transaction: Transaction | None

    @property
    def is_aborted(self) -> bool:
        return self.transaction is not None and self.transaction.state == "aborted"


@dataclass
class Producer:
    """The state of a producer."""

    producer_id: int
    epoch: int = 0
    next_sequence: int = 0
    transaction: Transaction | None = None
    last_offset: int = -1

    def new_epoch(self) -> None:
        self.epoch += 1
        self.next_sequence = 0


class History:
    """A log and its model. All writes of the log are also recorded in the model."""

    def __init__(self, fs: FileSystem, folder: str, settings: Settings, clock: Clock | None = None) -> None:
        self.fs = fs
        self.folder = folder
        self.settings = settings
        self.clock = clock or Clock()
        self.written: list[Written] = []
        self.batches: dict[tuple[int, int], tuple[int, tuple[int, int, int]]] = {}
        """The codec and producer of each v2 batch, markers included, by base offset and last offset."""
        self.transactions: list[Transaction] = []
        self.producers: dict[int, Producer] = {}
        self.first_dirty_offset = 0
        self.magic = settings.magic
        self.log = self._open(clean=True, recovery_point=0)

    def _open(self, *, clean: bool, recovery_point: int) -> Log:
        log = Log.open(
            self.folder,
            config=self.settings.log_config(self.magic),
            fs=self.fs,
            now_ms=self.clock,
            rng=random.Random(0),
            recovery_point=recovery_point,
            log_start_offset=0,
            clean_shutdown=clean,
        )
        log.update_high_watermark(log.log_end_offset)
        return log

    # -- writing ---------------------------------------------------------------------------------------------------

    def append(
        self,
        pairs: Sequence[tuple[int, bool]],
        *,
        codec: int = 0,
        producer_id: int = -1,
        transactional: bool = False,
        headers: bool = False,
    ) -> None:
        """Append a batch with a record for each pair: the number of a key, and whether the record is a tombstone.

        A producer with an open transaction continues this transaction.
        """
        log, now_ms = self.log, self.clock.now_ms
        producer = self.producers.setdefault(producer_id, Producer(producer_id)) if producer_id >= 0 else None
        transaction = self._transaction_of(producer, begin=transactional)
        base = log.log_end_offset
        builder = RecordBatchBuilder(
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer.epoch if producer else -1,
            base_sequence=producer.next_sequence if producer else -1,
            is_transactional=transaction is not None,
        )
        for delta, (key, is_tombstone) in enumerate(pairs):
            text = b"key-%d" % key
            value = None if is_tombstone else b"%d=%d/" % (key, base + delta) + b"." * (key * 7 % 40)
            some = (("at", b"%d" % (base + delta)), ("none", None)) if headers and self.magic == 2 else ()
            builder.append(text, value, some, now_ms + delta % 3)
            stamp = now_ms + delta % 3 if self.magic else None
            row = RecordRow(base + delta, text, value, stamp, some)
            self.written.append(Written(row, self.magic, now_ms, transaction))
            if transaction is not None:
                transaction.offsets.append(base + delta)
        end = base + len(pairs)
        identity = (producer_id, producer.epoch, producer.next_sequence) if producer else (-1, -1, -1)
        self.batches[base, end - 1] = (codec, identity)
        if producer is not None:
            producer.next_sequence += len(pairs)
            producer.last_offset = end - 1
        info = log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=0)
        assert (info.first_offset, log.log_end_offset) == (base, end)
        log.update_high_watermark(end)

    def _transaction_of(self, producer: Producer | None, *, begin: bool) -> Transaction | None:
        if producer is None:
            return None
        if producer.transaction is None and begin:
            producer.transaction = Transaction(producer.producer_id)
            self.transactions.append(producer.transaction)
        return producer.transaction

    def end(self, producer_id: int, *, commit: bool) -> None:
        """Append the marker of a producer's transaction, which may have no records in this partition."""
        producer = self.producers.setdefault(producer_id, Producer(producer_id))
        transaction, producer.transaction = producer.transaction, None
        if transaction is None:
            transaction = Transaction(producer_id)
            self.transactions.append(transaction)
        offset = self.log.log_end_offset
        marker = control_batch(
            ControlType.COMMIT if commit else ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=0,
            timestamp=self.clock.now_ms,
        )
        transaction.state = "committed" if commit else "aborted"
        transaction.marker = offset
        self.batches[offset, offset] = (0, (producer_id, producer.epoch, -1))
        self.log.append_as_leader(memoryview(bytearray(marker)), leader_epoch=0, rules=COORDINATOR_RULES)
        self.log.update_high_watermark(self.log.log_end_offset)

    def new_epoch(self, producer_id: int) -> None:
        """Restart a producer with a higher epoch, after aborting its open transaction."""
        producer = self.producers.get(producer_id)
        if producer is None:
            return
        if producer.transaction is not None:
            self.end(producer_id, commit=False)
        producer.new_epoch()

    def roll(self) -> None:
        self.log.roll()

    def upgrade(self) -> None:
        """Write batches in format v2 from now on."""
        self.magic = 2
        self.log.config = self.settings.log_config(2)

    def restart(self, how: Restart) -> None:
        """Close and reopen the log: cleanly, as after a kill, or with only the batches (no snapshots and indexes)."""
        log = self.log
        if how == "clean":
            log.close()
        else:
            log.flush()
            log.close_handles()
        if how == "without snapshots":
            for name in self.fs.list_dir(self.folder):
                if name.endswith((".snapshot", ".index", ".timeindex", ".txnindex")):
                    self.fs.unlink(f"{self.folder}/{name}")
        recovery_point = 0 if how == "without snapshots" else log.recovery_point
        self.log = self._open(clean=how == "clean", recovery_point=recovery_point)

    def close(self) -> None:
        """Close the log cleanly, so that another process can use the folder until `reopen`."""
        self.log.close()

    def reopen(self) -> None:
        self.log = self._open(clean=True, recovery_point=self.log.log_end_offset)

    # -- the model -------------------------------------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        """Return the offset after the last record or marker."""
        last = self.written[-1].row.offset if self.written else -1
        return max([last, *(transaction.marker for transaction in self.transactions)]) + 1

    @property
    def last_stable_offset(self) -> int:
        """Return the first offset of the oldest open transaction, or the end offset."""
        firsts = [entry.offsets[0] for entry in self.transactions if entry.state == "open" and entry.offsets]
        return min([self.end_offset, *firsts])

    def stable_map(self) -> dict[bytes | None, bytes]:
        """Return the final map of a read_committed reader."""
        found: dict[bytes | None, bytes] = {}
        stable = self.last_stable_offset
        for entry in self.written:
            if entry.row.offset >= stable or entry.is_aborted:
                continue
            if entry.row.value is None:
                found.pop(entry.row.key, None)
            else:
                found[entry.row.key] = entry.row.value
        return found

    def valid(self) -> Iterable[Written]:
        """Return the records that were not aborted."""
        return (entry for entry in self.written if not entry.is_aborted)
