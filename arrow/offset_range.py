"""The records to read of one partition."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from ..protocol.schema import ZERO_UUID
from ..protocol.topic_partition import TopicPartition


@dataclass(frozen=True)
class OffsetRange:
    """Offsets from `start` up to, and without, `end` of one partition; `topic_id` is zero if brokers do not have
    ids.
    """

    partition: TopicPartition
    start: int
    end: int
    topic_id: UUID = ZERO_UUID
    bytes_per_record: float = 0.0

    @property
    def records(self) -> int:
        """Return the maximum number of records; compaction and transaction markers leave fewer."""
        return self.end - self.start

    @property
    def size(self) -> float:
        return self.records * self.bytes_per_record
