"""Walks over the batches of a log in order and classifies them by the treatment that the cleaner gives them."""

from typing import Protocol

from ...protocol.batch_run import SPECIAL, BatchRun, Stop
from ...protocol.errors import KafkaError, ProtocolError
from ...protocol.record_batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    TRANSACTIONAL_MASK,
    LegacyBatch,
    RecordBatch,
    iter_batches,
)
from ..log_config import LARGEST_RECORD
from ..record_search import check_sizes, decompressed
from .segment_reader import SegmentReader
from .transaction_metadata import CleanedTransactionMetadata

_front = BATCH_HEADER.reader("base_offset", "length", "last_offset_delta", "producer_id")


class BatchVisitor(Protocol):
    """The operations on batches. A call that returns False ends the walk."""

    def on_run(self, run: BatchRun, compressed: RecordBatch | None) -> bool:
        """Handle data batches as columns of records. A compressed batch is passed alone, with its records."""
        ...

    def on_aborted(self, batch: RecordBatch) -> bool:
        """Handle data of an aborted transaction."""
        ...

    def on_control(self, batch: RecordBatch, has_no_data: bool) -> bool:
        """Handle a marker. `has_no_data` is True if no record of the marker's transaction is left."""
        ...

    def on_legacy(self, batch: LegacyBatch) -> bool:
        """Handle a message of format v0 or v1, or a wrapper of several."""
        ...


class BatchWalk:
    """Remembers the transactions that are open at the place reached."""

    def __init__(
        self, transactions: CleanedTransactionMetadata, *, use_native: bool, max_record_size: int = LARGEST_RECORD
    ) -> None:
        self._transactions = transactions
        self._max_record_size = max_record_size
        self._run = BatchRun(use_native=use_native)
        self._inner = BatchRun(use_native=use_native)

    def walk(self, data: bytes, reader: SegmentReader, visitor: BatchVisitor) -> int | None:
        """Visit the whole batches of a buffer and return the end of the last one; None if the visitor ends the walk.

        Raises `CorruptSegmentError` for an invalid batch, and does not visit the batches after it.
        """
        run, position = self._run, 0
        run.start(data)
        while True:
            position, stop = run.scan(position)
            if stop == Stop.END:
                return position if self._visit_run(visitor) else None
            if stop == Stop.CORRUPT:
                raise reader.corrupt("invalid record batch", position)
            end = self._scan_transactional(data, position)
            if end != position:
                position = end
                continue
            try:
                batch = next(iter_batches(data, position), None)
                if batch is None:
                    return position if self._visit_run(visitor) else None
                if not batch.is_valid:
                    raise ProtocolError("wrong CRC")
                if not self._visit_special(batch, visitor):
                    return None
            except (ProtocolError, KafkaError) as error:
                raise reader.corrupt(f"invalid record batch ({error})", position) from error
            position += batch.size

    def _scan_transactional(self, data: bytes, position: int) -> int:
        """Add the batch to the run if it is a plain one of a committed transaction; return its end.

        Most transactional batches are of this kind, and this path takes a fraction of the time of `_visit_special`,
        which handles all others. Passing a batch to the transaction metadata twice has no effect.
        """
        if (
            data[position + MAGIC_POSITION] != 2
            or data[position + ATTRIBUTES_POSITION + 1] & SPECIAL != TRANSACTIONAL_MASK
        ):
            return position
        base_offset, length, last_delta, producer_id = _front(data, position)
        if self._transactions.on_data(base_offset + last_delta, producer_id):
            return position
        return self._run.scan(position, position + LOG_OVERHEAD + length, special=SPECIAL & ~TRANSACTIONAL_MASK)[0]

    def _visit_run(self, visitor: BatchVisitor) -> bool:
        if not self._run.count:
            return True
        goes_on = visitor.on_run(self._run, None)
        self._run.clear()
        return goes_on

    def _visit_special(self, batch: RecordBatch | LegacyBatch, visitor: BatchVisitor) -> bool:
        if self._max_record_size < LARGEST_RECORD and not batch.is_control:
            check_sizes(batch, self._max_record_size)
        if isinstance(batch, LegacyBatch):
            return self._visit_run(visitor) and visitor.on_legacy(batch)
        if batch.is_control:
            has_no_data = self._transactions.on_control_batch(batch)
            return self._visit_run(visitor) and visitor.on_control(batch, has_no_data)
        if batch.is_transactional and self._transactions.on_data(batch.last_offset, batch.producer_id):
            return self._visit_run(visitor) and visitor.on_aborted(batch)
        if batch.codec:
            return self._visit_run(visitor) and self._visit_compressed(batch, visitor)
        raise ProtocolError("malformed records")

    def _visit_compressed(self, batch: RecordBatch, visitor: BatchVisitor) -> bool:
        inner = self._inner
        inner.start(decompressed(batch))
        end, stop = inner.scan(0, special=0, check_crc=False)
        if stop != Stop.END or end != len(inner.buffer):
            raise ProtocolError("malformed records")
        return visitor.on_run(inner, batch)
