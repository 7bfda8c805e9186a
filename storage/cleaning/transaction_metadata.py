"""The batches of aborted transactions, and the markers whose data is removed, found while a log is read in order."""

import heapq
from collections.abc import Iterable

from ...protocol.record_batch import ControlType, RecordBatch, parse_control_key
from ..transaction_index import AbortedTxn


class CleanedTransactionMetadata:
    """Kafka's CleanedTransactionMetadata: reads the batches in log order and decides which of them are removable.

    In addition to Kafka's rules, a transaction that ended below a batch is over even if its marker was not seen.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        """`aborted`: every aborted transaction that has data in the part of the log to be walked."""
        self._to_come = [(transaction.first_offset, transaction) for transaction in aborted]
        heapq.heapify(self._to_come)
        self._committed: set[int] = set()
        """The producers with data outside of aborted transactions and without a later marker, so far."""
        self._aborted: dict[int, AbortedTxn] = {}
        self._with_data: set[AbortedTxn] = set()
        self.kept_aborted: list[AbortedTxn] = []
        """The entries for the transaction index of the cleaned segment, until the caller takes them."""

    def on_data(self, batch_end: int, producer_id: int) -> bool:
        """Return whether a transactional batch up to offset `batch_end` is aborted, so that it can be removed."""
        self._begin_up_to(batch_end)
        transaction = self._aborted.get(producer_id)
        if transaction is not None and transaction.last_offset < batch_end:
            del self._aborted[producer_id]
            transaction = None
        if transaction is None:
            self._committed.add(producer_id)
            return False
        self._with_data.add(transaction)
        return True

    def on_control_batch(self, batch: RecordBatch) -> bool:
        """Return whether no record of the marker's transaction is left, so that the marker can expire.

        Raises ProtocolError for malformed records.
        """
        self._begin_up_to(batch.last_offset)
        control_type = None
        for record in batch.records():
            control_type = parse_control_key(record.key)
            break
        else:
            return True  # it was emptied by an earlier pass
        if control_type == ControlType.ABORT:
            transaction = self._aborted.pop(batch.producer_id, None)
            if transaction is not None and transaction in self._with_data:
                self._with_data.remove(transaction)
                self.kept_aborted.append(transaction)
                return False
            return True
        if control_type == ControlType.COMMIT:
            had_data = batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return not had_data
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._to_come and self._to_come[0][0] <= offset:
            transaction = heapq.heappop(self._to_come)[1]
            open_one = self._aborted.get(transaction.producer_id)
            if open_one is None or open_one.last_offset < transaction.first_offset:
                self._aborted[transaction.producer_id] = transaction
