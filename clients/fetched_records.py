"""The records of one partition in one fetch response, decoded batch by batch as the consumer reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..protocol.errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.messages.fetch import AbortedTransaction
from ..protocol.record import Headers, TimestampType
from ..protocol.record_batch import Batch, ControlType, iter_batches, parse_control_key
from ..protocol.topic_partition import TopicPartition


class ConsumerRecord(NamedTuple):
    """One consumed record. `timestamp` is in ms, -1 if the record's format has none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int


class FetchedRecords:
    """Iterator from `next_offset` on; it skips earlier records, records of aborted transactions, and control records.

    `aborted` is the response's list for a read_committed consumer: a transaction of that producer begins at that offset
    and was aborted; it ends with the producer's next control record.
    """

    def __init__(
        self,
        partition: TopicPartition,
        records: memoryview,
        next_offset: int,
        *,
        aborted: list[AbortedTransaction] | None = None,
        check_crcs: bool = True,
    ) -> None:
        self.partition = partition
        self.next_offset = next_offset
        self.leader_epoch = -1
        self._batches = iter_batches(records)
        self._check_crcs = check_crcs
        self._aborted = sorted(aborted or (), key=lambda a: -a.first_offset)
        self._aborting: set[int] = set()
        self._decoded: Iterator[ConsumerRecord] = iter(())
        self._batch_end = next_offset
        self._batch_epoch = -1

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """Return up to this number of records; fewer only at the end, or before invalid bytes.

        Raises KafkaError(CORRUPT_MESSAGE) if the invalid bytes are first, so a later call from `next_offset` raises
        it.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < max_records:
            for record in self._decoded:
                taken.append(record)
                if len(taken) == max_records:
                    break
            else:
                self._pass(self._batch_end, self._batch_epoch)
                try:
                    if not self._next_batch():
                        break
                except KafkaError:
                    if not taken:
                        raise
                    break
        if taken and taken[-1].offset >= self.next_offset:
            self._pass(taken[-1].offset + 1, taken[-1].leader_epoch)
        return taken

    def _pass(self, next_offset: int, leader_epoch: int) -> None:
        if next_offset > self.next_offset:
            self.next_offset = next_offset
            self.leader_epoch = leader_epoch

    def _next_batch(self) -> bool:
        """Decode the next batch with records to return into `_decoded`; return False at the end."""
        try:
            for batch in self._batches:
                if self._check_crcs and not batch.is_valid:
                    raise ProtocolError("the CRC does not match")
                if self._is_hidden(batch):
                    self._pass(batch.last_offset + 1, batch.partition_leader_epoch)
                    continue
                self._batch_end = batch.last_offset + 1
                self._batch_epoch = batch.partition_leader_epoch
                self._decoded = iter(self._decode(batch))
                return True
        except ProtocolError as error:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"{self.partition} from offset {self.next_offset}: {error}"
            ) from error
        return False

    def _is_hidden(self, batch: Batch) -> bool:
        """Return whether the batch is a control batch or belongs to an aborted transaction."""
        while self._aborted and self._aborted[-1].first_offset <= batch.last_offset:
            self._aborting.add(self._aborted.pop().producer_id)
        if batch.is_control:
            for record in batch.records():
                if parse_control_key(record.key) == ControlType.ABORT:
                    self._aborting.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._aborting

    def _decode(self, batch: Batch) -> list[ConsumerRecord]:
        topic, partition = self.partition
        kind, epoch = batch.timestamp_type, batch.partition_leader_epoch
        first = self.next_offset
        return [
            ConsumerRecord(topic, partition, offset, timestamp, kind, key, value, headers, epoch)
            for offset, timestamp, key, value, headers in batch.records()
            if offset >= first
        ]
