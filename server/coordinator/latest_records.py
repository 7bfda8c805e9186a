"""What counts of a coordinator's log: the last record of each key, transactions from their commit on."""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.record_batch import Batch, ControlType, RecordBatch, parse_control_key
from ..runtime.turns import Pace


class LatestRecords:
    """What is left of a partition's records when each is replaced by the later ones with its key."""

    def __init__(self) -> None:
        self._latest: dict[bytes, bytes] = {}
        self._pending: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        """Of transactions that are still open, by producer id, with the records' own offsets."""
        self._writers: dict[bytes, set[int]] = {}
        """Whose of these have a key in them: there may be thousands of transactions."""

    async def take(self, batch: Batch, pace: Pace) -> None:
        """Add a batch in log order. What is in a transaction counts from its commit, unless later ones are there.

        Each record is a step; others may run after each.
        """
        if isinstance(batch, RecordBatch):
            if batch.is_control:
                self._end_transaction(batch)
                await pace.step()
                return
            if batch.is_transactional:
                pending = self._pending.setdefault(batch.producer_id, {})
                for one in batch.records():
                    if one.key is not None:
                        key = bytes(one.key)
                        pending[key] = (one.offset, one.value)
                        self._writers.setdefault(key, set()).add(batch.producer_id)
                    await pace.step()
                return
        for record in batch.records():
            if record.key is not None:
                self._put(bytes(record.key), record.offset, record.value)
            await pace.step()

    def drain(self) -> Iterator[tuple[bytes, bytes]]:
        """Every key with its value, the last first; each is given up when it is taken."""
        while self._latest:
            yield self._latest.popitem()

    def pending(self) -> Iterator[tuple[int, bytes, int, bytes]]:
        """What open transactions have written: producer id, key, the record's own offset, value."""
        for producer_id, records in self._pending.items():
            for key, (offset, value) in records.items():
                if value is not None:
                    yield producer_id, key, offset, value

    def _end_transaction(self, batch: RecordBatch) -> None:
        for record in batch.records():
            pending = self._pending.pop(batch.producer_id, {})
            for key in pending:
                self._no_longer(key, batch.producer_id)
            if parse_control_key(record.key) == ControlType.COMMIT:
                for key, (offset, value) in pending.items():
                    self._put(key, offset, value)

    def _put(self, key: bytes, offset: int, value: bytes | None) -> None:
        """This counts from now on; what was written before it does not, even if its transaction is committed later."""
        for producer_id in list(self._writers.get(key, ())) if self._writers else ():
            pending = self._pending[producer_id]
            if pending[key][0] < offset:
                del pending[key]
                self._no_longer(key, producer_id)
        if value is None:
            self._latest.pop(key, None)
        else:
            self._latest[key] = value

    def _no_longer(self, key: bytes, producer_id: int) -> None:
        writers = self._writers[key]
        writers.remove(producer_id)
        if not writers:
            del self._writers[key]
