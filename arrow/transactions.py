"""Batches that a read_committed reader skips: markers, and records of aborted transactions."""

from __future__ import annotations

from collections.abc import Iterable

from ..protocol.messages.fetch import AbortedTransaction
from ..protocol.record_batch import Batch, ControlType, parse_control_key


class TransactionFilter:
    """Receives the batches of one partition in order; `aborted` is a Fetch response's list, whose entries end with a
    marker.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = sorted(aborted, key=lambda a: -a.first_offset)
        self._aborting: set[int] = set()

    def is_hidden(self, batch: Batch) -> bool:
        """Return whether the batch is a control batch or belongs to an aborted transaction."""
        while self._aborted and self._aborted[-1].first_offset <= batch.last_offset:
            self._aborting.add(self._aborted.pop().producer_id)
        if batch.is_control:
            if any(parse_control_key(record.key) == ControlType.ABORT for record in batch.records()):
                self._aborting.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._aborting
