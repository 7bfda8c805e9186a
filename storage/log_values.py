"""The small immutable values that a log answers with."""

from typing import NamedTuple

from ..protocol.topic_partition import TopicPartition
from .filesystem import FileSlice, Sendable
from .partition_dir import FUTURE_SUFFIX
from .transaction_index import AbortedTxn

UNKNOWN_POSITION = -1


class LogOffsetMetadata(NamedTuple):
    """An offset and where it lies; segment and position are -1 where nobody had to look."""

    offset: int
    segment_base_offset: int = UNKNOWN_POSITION
    position: int = UNKNOWN_POSITION


class LogAppendInfo(NamedTuple):
    """What an append did. Offsets are -1 if there were no records."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    """-1 if no record has a timestamp."""
    log_append_time_ms: int
    """-1 unless the topic uses LogAppendTime."""
    log_start_offset: int
    record_count: int
    bytes: int
    """How much was written; 0 for a duplicate."""
    duplicate: bool = False
    """The batch had been appended before; offsets are those it got then."""


class FetchData(NamedTuple):
    """What a read found."""

    records: Sendable
    """From the batch that contains the offset asked for; may end inside a batch. In memory unless it was to be lent."""
    first: LogOffsetMetadata
    """The offset asked for, and where `records` starts."""
    aborted_transactions: list[AbortedTxn] | None = None
    """For read-committed readers: those that overlap `records`. None for others."""

    @property
    def data(self) -> bytes | memoryview:
        """The records in memory. Raises OSError if they have to be read."""
        return self.records.read() if isinstance(self.records, FileSlice) else self.records


def topic_partition_of(path: str) -> TopicPartition:
    """The partition whose directory `path` is, or a copy of it: the last `-` of the name separates topic and number."""
    name = path.rpartition("/")[2]
    if name.endswith(FUTURE_SUFFIX):
        name = name.rpartition(".")[0]
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))
