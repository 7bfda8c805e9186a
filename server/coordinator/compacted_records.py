"""The effective records of a coordinator's log: the last one of each key, without aborted transactions."""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.record_batch import Batch, ControlType, RecordBatch, parse_control_key
from ..runtime.loop_sharing import CountBudget


class CompactedRecords:
    """The last record of each key of a partition while its batches are read in log order.

    A record of a transaction counts from the commit on, unless a later record of its key exists.
    """

    def __init__(self) -> None:
        self._latest: dict[bytes, bytes] = {}
        self._pending: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        """The records of open transactions by producer id, with their offsets."""
        self._writers: dict[bytes, set[int]] = {}
        """The producer ids in `_pending` by key: thousands of transactions may be open."""

    async def take(self, batch: Batch, budget: CountBudget) -> None:
        """Add the next batch; each record is a step of `budget`."""
        if isinstance(batch, RecordBatch):
            if batch.is_control:
                self._end_transaction(batch)
                await budget.step()
                return
            if batch.is_transactional:
                pending = self._pending.setdefault(batch.producer_id, {})
                for one in batch.records():
                    if one.key is not None:
                        key = bytes(one.key)
                        pending[key] = (one.offset, one.value)
                        self._writers.setdefault(key, set()).add(batch.producer_id)
                    await budget.step()
                return
        for record in batch.records():
            if record.key is not None:
                self._put(bytes(record.key), record.offset, record.value)
            await budget.step()

    def drain(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield and remove each key with its value, the last one first."""
        while self._latest:
            yield self._latest.popitem()

    def pending(self) -> Iterator[tuple[int, bytes, int, bytes]]:
        """Yield the records of open transactions: producer id, key, offset, value."""
        for producer_id, records in self._pending.items():
            for key, (offset, value) in records.items():
                if value is not None:
                    yield producer_id, key, offset, value

    def _end_transaction(self, batch: RecordBatch) -> None:
        for record in batch.records():
            pending = self._pending.pop(batch.producer_id, {})
            for key in pending:
                self._remove_writer(key, batch.producer_id)
            if parse_control_key(record.key) == ControlType.COMMIT:
                for key, (offset, value) in pending.items():
                    self._put(key, offset, value)

    def _put(self, key: bytes, offset: int, value: bytes | None) -> None:
        """Set the record of a key, and drop earlier ones in open transactions: their commit does not restore them."""
        for producer_id in list(self._writers.get(key, ())) if self._writers else ():
            pending = self._pending[producer_id]
            if pending[key][0] < offset:
                del pending[key]
                self._remove_writer(key, producer_id)
        if value is None:
            self._latest.pop(key, None)
        else:
            self._latest[key] = value

    def _remove_writer(self, key: bytes, producer_id: int) -> None:
        writers = self._writers[key]
        writers.remove(producer_id)
        if not writers:
            del self._writers[key]
