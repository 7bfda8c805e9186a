"""Builder of record batches (format v2): for clients, for control records, and for rewritten records."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from .batch_header import BATCH_HEADER, CONTROL_MASK, HEADER_SIZE, TRANSACTIONAL_MASK
from .checksum import crc32c
from .compression import Compression, compress
from .layouts import Int16, Int32, Layout
from .native import native
from .record import (
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    Headers,
)
from .record_codec import RecordRun, encode_record, encode_records

_front = BATCH_HEADER.span("base_offset", "crc")
_back = BATCH_HEADER.span("attributes", "record_count")  # fields that the CRC covers, with the records


class RecordBatchBuilder:
    """Collects records and builds one batch of them.

    `max_size` limits the uncompressed batch: `append` rejects a record that would exceed it, unless it is the first.
    `log_append_time` (ms) makes the batch one of LogAppendTime. Records have the offsets `base_offset`, +1, … by
    default.
    """

    __slots__ = (
        "_base_timestamp",
        "_codec",
        "_in_runs",
        "_is_control",
        "_is_transactional",
        "_last_offset_delta",
        "_level",
        "_log_append_time",
        "_max_size",
        "_max_timestamp",
        "_partition_leader_epoch",
        "_producer",
        "_records",
        "base_offset",
        "size",
    )

    def __init__(
        self,
        *,
        codec: int = Compression.NONE,
        level: int | None = None,
        max_size: int | None = None,
        base_offset: int = 0,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        log_append_time: int | None = None,
    ) -> None:
        self._codec = codec
        self._level = level
        self._max_size = max_size
        self.base_offset = base_offset
        self._partition_leader_epoch = partition_leader_epoch
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._is_transactional = is_transactional
        self._is_control = is_control
        self._log_append_time = log_append_time
        self._records: list[bytes] = []
        """Each element is one record or many."""
        self._in_runs = 0
        """Number of records in addition to the number of elements."""
        self._last_offset_delta = -1
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP
        self.size = HEADER_SIZE

    def __len__(self) -> int:
        """Return the number of appended records."""
        return len(self._records) + self._in_runs

    @property
    def max_timestamp(self) -> int:
        """Return the largest timestamp so far, or the append time of a LogAppendTime batch; -1 without records."""
        return self._max_timestamp if self._log_append_time is None else self._log_append_time

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp: int = NO_TIMESTAMP,
        offset: int | None = None,
    ) -> bool:
        """Add one record; return False, and add nothing, if the batch would exceed `max_size`.

        `timestamp` is in ms. A larger `offset` than the next one leaves a gap, as compaction does.
        """
        delta = self._last_offset_delta + 1 if offset is None else offset - self.base_offset
        records = self._records
        if not records:
            self._base_timestamp = timestamp
        record = encode_record(delta, timestamp - self._base_timestamp, key, value, headers)
        size = self.size + len(record)
        if self._max_size is not None and size > self._max_size and records:
            return False
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        records.append(record)
        self._last_offset_delta = delta
        self.size = size
        return True

    def append_run(self, run: RecordRun, first: int) -> int:
        """Add the records of a run from its `first` on while there is room; return their number.

        The first record of a batch always has room.
        """
        if not self._records:
            self._base_timestamp = run.timestamp
        room = -1 if self._max_size is None else max(0, self._max_size - self.size)
        how = {"offset_delta": self._last_offset_delta + 1, "timestamp_delta": run.timestamp - self._base_timestamp}
        encoded, count = encode_records(run, first, room=room, **how)
        if not count and not self._records and first < len(run.values):
            alone = run._replace(keys=run.keys and run.keys[first : first + 1], values=run.values[first : first + 1])
            encoded, count = encode_records(alone, 0, room=-1, **how)
        if count:
            self._max_timestamp = max(self._max_timestamp, run.timestamp)
            self._records.append(encoded)
            self._in_runs += count - 1
            self._last_offset_delta += count
            self.size += len(encoded)
        return count

    def build(self) -> bytes:
        """Build the batch of all appended records."""
        records = b"".join(self._records)
        if self._codec != Compression.NONE:
            records = compress(self._codec, records, level=self._level)
        attributes = self._codec
        if self._log_append_time is not None:
            attributes |= TIMESTAMP_TYPE_MASK
        if self._is_transactional:
            attributes |= TRANSACTIONAL_MASK
        if self._is_control:
            attributes |= CONTROL_MASK
        back = _back.pack(
            attributes,
            self._last_offset_delta,
            self._base_timestamp,
            self.max_timestamp,
            *self._producer,
            len(self),
        )
        crc = crc32c(records, crc32c(back))
        length = HEADER_SIZE - LOG_OVERHEAD + len(records)
        return b"".join((_front.pack(self.base_offset, length, self._partition_leader_epoch, 2, crc), back, records))


def batch_of_pairs(
    pairs: list[tuple[bytes | None, bytes | None]],
    timestamp: int,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> bytearray:
    """Build the batch of keys and values of one time that a coordinator writes: no headers, no codec, no sequence."""
    if native is not None:
        return native.batch_of_pairs(pairs, timestamp, attributes, producer_id, producer_epoch)
    return batch_of_pairs_here(pairs, timestamp, attributes, producer_id, producer_epoch)


def batch_of_pairs_here(
    pairs: list[tuple[bytes | None, bytes | None]],
    timestamp: int,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
) -> bytearray:
    """`batch_of_pairs` without compiled code. Raises ValueError if there is no pair."""
    if not pairs:
        raise ValueError("a batch requires records")
    builder = RecordBatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=bool(attributes & TRANSACTIONAL_MASK),
        is_control=bool(attributes & CONTROL_MASK),
    )
    for key, value in pairs:
        builder.append(key, value, timestamp=timestamp)
    return bytearray(builder.build())


class ControlType(IntEnum):
    """Types of control records; readers skip unknown types."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndMarker(NamedTuple):
    """The contents of the marker at the end of a transaction."""

    is_abort: bool
    coordinator_epoch: int


class ControlRecordKey(NamedTuple):
    """Encode the key of a control record."""

    version: Int16
    type: Int16


class EndTransactionMarker(NamedTuple):
    """Encode the value of a commit or abort marker (KIP-98)."""

    version: Int16
    coordinator_epoch: Int32


CONTROL_RECORD_KEY = Layout(ControlRecordKey)
END_TRANSACTION_MARKER = Layout(EndTransactionMarker)


def control_batch(
    control_type: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """Build the batch with the single record that ends a transaction on a partition."""
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    key = CONTROL_RECORD_KEY.struct.pack(0, control_type)
    builder.append(key, END_TRANSACTION_MARKER.struct.pack(0, coordinator_epoch), (), timestamp)
    return builder.build()


def parse_control_key(key: bytes | None) -> int | None:
    """Return the type in the key of a control record; None for an unknown key."""
    if key is None or len(key) < CONTROL_RECORD_KEY.size:
        return None
    version, control_type = CONTROL_RECORD_KEY.read(key)
    return control_type if version >= 0 else None


def parse_end_marker(key: bytes | None, value: bytes | None) -> EndMarker | None:
    """Decode the record of a commit or abort marker; None for another record."""
    control_type = parse_control_key(key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if value is None or len(value) < END_TRANSACTION_MARKER.size:
        return None
    version, coordinator_epoch = END_TRANSACTION_MARKER.read(value)
    return EndMarker(control_type == ControlType.ABORT, coordinator_epoch) if version >= 0 else None
