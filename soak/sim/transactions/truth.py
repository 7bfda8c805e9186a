"""The transactions in the logs, read batch by batch, independently of the state of brokers."""

from __future__ import annotations

from dataclasses import dataclass, field

from soak.sim.transactions.ledger import Copy, Written

from barnabas.protocol.record_batch import RecordBatch, iter_batches
from barnabas.protocol.record_batch_builder import ControlType, parse_control_key
from barnabas.server.replication.partition import Partition

MAX_BYTES = 1 << 24
NEVER = 2**63


@dataclass
class OpenTransactions:
    """The open transactions of a log that was read up to `end`."""

    end: int = 0
    first: dict[int, int] = field(default_factory=dict)
    """The first offset of each producer's open transaction."""
    ended: list[tuple[int, int]] = field(default_factory=list)
    """The first offset and the marker's offset of transactions whose marker is not below the high watermark yet."""

    def take_in(self, partition: Partition) -> None:
        """Read the batches that were appended since the last call."""
        log = partition.log
        while self.end < log.log_end_offset:
            for batch in batches(partition, self.end):
                header = batch.header
                self.end = header.last_offset + 1
                if header.is_control:
                    first = self.first.pop(header.producer_id, None)
                    if first is not None:
                        self.ended.append((first, header.last_offset))
                elif header.is_transactional:
                    self.first.setdefault(header.producer_id, header.base_offset)

    def stable_up_to(self, high_watermark: int) -> int:
        """Return the first offset of a transaction that is open, or whose marker is not committed; else NEVER."""
        self.ended = [(first, marker) for first, marker in self.ended if marker >= high_watermark]
        return min([NEVER, *self.first.values(), *(first for first, _ in self.ended)])


def batches(partition: Partition, start: int) -> list[RecordBatch]:
    """Return the batches of one read from offset `start`."""
    data = partition.log.read(start, MAX_BYTES, max_offset=partition.log.log_end_offset, min_one_message=True)
    assert isinstance(data.records, bytes | memoryview)
    return [batch for batch in iter_batches(data.records) if isinstance(batch, RecordBatch)]


def written(partition: Partition) -> list[Written]:
    """Return every record of a log without open transactions, and whether its transaction was committed."""
    open_ones: dict[int, list[int]] = {}
    found: list[Written] = []
    end = partition.log.log_start_offset
    while end < partition.log.log_end_offset:
        for batch in batches(partition, end):
            end = batch.last_offset + 1
            if not batch.is_control:
                numbers = open_ones.setdefault(batch.producer_id, [])
                for record in batch.records():
                    numbers.append(len(found))
                    found.append(Written(record.offset, Copy.of(bytes(record.value or b"")), False))
                continue
            (marker,) = batch.records()
            is_commit = parse_control_key(marker.key) == ControlType.COMMIT
            for number in open_ones.pop(batch.producer_id, ()):
                found[number] = found[number]._replace(is_committed=is_commit)
    return found
