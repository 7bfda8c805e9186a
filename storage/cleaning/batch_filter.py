"""Decides which records of format v2 the cleaner retains, and writes them: Kafka's MemoryRecords.filterTo.

`BatchFilter.filter` has a compiled twin; this module is its specification.
"""

from array import array
from collections.abc import Iterable
from typing import NamedTuple

from ...protocol.batch_run import BatchRun, as_long
from ...protocol.native import native
from ...protocol.record_batch import (
    BATCH_HEADER,
    CODEC_MASK,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    write_crc,
)
from ...protocol.record_codec import locate_front
from ...protocol.varint import encode_varint

NO_TIMESTAMP = -1
_MAX_GROWTH = 12
"""Bytes that a record may gain by another base timestamp: nine of a timestamp delta, the rest of its length."""


class Kept(NamedTuple):
    """The result of filtering some records."""

    end: int
    """The position of its end in the output."""
    messages: int
    invalid: int
    """Records without a key, which go."""


class BatchFilter:
    """Retains the records that the offset map does not supersede, and all records above the map's latest offset.

    A tombstone is retained only until the delete horizon of its batch has passed (KIP-534). A batch without a horizon
    gets one in the first pass that retains a tombstone in it. Offsets and sequences of retained records never change.
    """

    def __init__(
        self,
        *,
        latest_offset: int,
        now_ms: int,
        delete_retention_ms: int,
        keep_empty: Iterable[int],
        use_native: bool = True,
    ) -> None:
        """`keep_empty`: last offsets of the batches that are retained even without a record."""
        self.latest_offset = latest_offset
        self.now_ms = now_ms
        self.new_horizon_ms = now_ms + delete_retention_ms
        self.keep_empty = array("q", sorted(set(keep_empty)))
        self._kept_empty = frozenset(self.keep_empty)
        self._use_native = use_native and native is not None

    def filter(self, run: BatchRun, found: "array[int]", output: bytearray, at: int) -> Kept:
        """Write the retained records of the run to `output` from `at` on; `output` grows as needed.

        `found` contains the offset map's entry for every record.
        """
        needed = at + len(run.buffer) + _MAX_GROWTH * run.records.count
        if len(output) < needed:
            output += bytes(needed - len(output))
        if self._use_native and native is not None:
            rules = (self.latest_offset, self.now_ms, self.new_horizon_ms)
            rows = (run.records.block, run.records.capacity, 0, run.records.count)
            return Kept(
                *native.filter_batches(
                    run.buffer, run.block, run.count, rows, found, rules, self.keep_empty, output, at
                )
            )
        messages = invalid = 0
        for index in range(run.count):
            rows_of_batch = range(run.first_row(index), run.first_row(index + 1))
            position, size = run.batch(index)
            batch = memoryview(run.buffer)[position : position + size]
            horizon = delete_horizon(batch)
            stay = [row for row in rows_of_batch if self._stays(run, row, found[row], horizon)]
            invalid += sum(
                run.records.key_sizes[row] < 0 and run.records.offsets[row] <= self.latest_offset
                for row in rows_of_batch
            )
            messages += len(stay)
            part = self._rewrite(run, batch, stay, len(rows_of_batch))
            output[at : at + len(part)] = part
            at += len(part)
        return Kept(at, messages, invalid)

    def _stays(self, run: BatchRun, row: int, found: int, horizon: int | None) -> bool:
        records = run.records
        if records.offsets[row] > self.latest_offset:
            return True
        if records.key_sizes[row] < 0 or records.offsets[row] < found:
            return False
        return records.value_sizes[row] >= 0 or horizon is None or self.now_ms < horizon

    def _rewrite(self, run: BatchRun, batch: memoryview, kept: list[int], count: int) -> bytes | bytearray | memoryview:
        header = BatchHeader.read(batch)
        if not kept:
            return empty_batch(header) if header.last_offset in self._kept_empty else b""
        needs_horizon = delete_horizon(batch) is None and any(run.records.value_sizes[row] < 0 for row in kept)
        if len(kept) == count and not needs_horizon:
            return batch
        return batch_of(run, batch, kept, self.new_horizon_ms if needs_horizon else None)


def delete_horizon(batch: memoryview) -> int | None:
    """Return the time after which the tombstones of a batch may be deleted; None if the batch has no horizon."""
    return BatchHeader.read(batch).delete_horizon_ms


def batch_of(run: BatchRun, batch: memoryview, kept: list[int], new_horizon: int | None) -> bytearray:
    """Return the batch with only the records in the rows `kept`. Their bytes change only with the base timestamp."""
    records, buffer = run.records, memoryview(run.buffer)
    out = bytearray(batch[:HEADER_SIZE])
    header = BatchHeader.read(batch)
    if new_horizon is None:
        for row in kept:
            out += buffer[records.starts[row] : records.ends[row]]
    else:
        shift = header.base_timestamp - new_horizon
        for row in kept:
            out += _shifted(bytes(buffer[records.starts[row] : records.ends[row]]), shift)
        BATCH_HEADER.patch(out, attributes=header.attributes | DELETE_HORIZON_MASK, base_timestamp=new_horizon)
    if not header.attributes & TIMESTAMP_TYPE_MASK:
        highest = max(NO_TIMESTAMP, *(records.timestamps[row] for row in kept))
        BATCH_HEADER.patch(out, max_timestamp=highest)
    BATCH_HEADER.patch(out, length=len(out) - LOG_OVERHEAD, record_count=len(kept))
    write_crc(memoryview(out))
    return out


def _shifted(record: bytes, shift: int) -> bytes:
    """Return a record whose timestamp delta is larger by `shift`, in 64 bits."""
    attributes_at, delta, rest, _ = locate_front(record, 0, len(record))
    body = record[attributes_at : attributes_at + 1] + encode_varint(as_long(delta + shift)) + record[rest:]
    return encode_varint(len(body)) + body


def empty_batch(header: BatchHeader) -> bytearray:
    """Return a batch without records that preserves its offsets and its producer; Kafka's writeEmptyHeader."""
    out = bytearray(
        HEADER.pack(
            *header._replace(
                length=HEADER_SIZE - LOG_OVERHEAD,
                crc=0,
                attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_MASK),
                base_timestamp=NO_TIMESTAMP,
                record_count=0,
            )
        )
    )
    write_crc(memoryview(out))
    return out
