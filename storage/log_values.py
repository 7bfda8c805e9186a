"""The small immutable values that a log returns."""

from enum import Enum, auto
from typing import NamedTuple
from uuid import UUID

from ..protocol.topic_partition import TopicPartition
from .filesystem import FileSlice, Sendable
from .partition_dir import FUTURE_SUFFIX
from .transaction_index import AbortedTxn

UNKNOWN_POSITION = -1


class LogOffsetMetadata(NamedTuple):
    """An offset with its segment and position, which are -1 where they have not been looked up."""

    offset: int
    segment_base_offset: int = UNKNOWN_POSITION
    position: int = UNKNOWN_POSITION

    def on_same_segment(self, that: "LogOffsetMetadata") -> bool:
        """Whether both offsets are in one segment."""
        return self.segment_base_offset == that.segment_base_offset

    def position_diff(self, that: "LogOffsetMetadata") -> int:
        """Return the bytes from `that` to this offset, which must be in the same segment."""
        assert self.on_same_segment(that), f"{self} and {that} are in different segments"
        return self.position - that.position


class LogAppendInfo(NamedTuple):
    """Kafka's LogAppendInfo: the result of an append. Offsets are -1 if there were no records."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    """-1 if no record has a timestamp."""
    log_append_time: int
    """The time in ms; -1 unless the topic uses LogAppendTime."""
    log_start_offset: int
    num_messages: int
    valid_bytes: int
    """The bytes written; 0 for a duplicate."""
    duplicate: bool = False
    """Whether the batch had been appended before. The offsets are from the first append."""


class LogExtent(NamedTuple):
    """The part of the disk that a log occupies at one moment, for a backup."""

    topic_partition: TopicPartition
    topic_id: UUID | None
    directory: str
    """The log directory, as it is configured."""
    log_start_offset: int
    log_end_offset: int
    segments: list[tuple[int, int]]
    """Base offset and bytes of each segment, the oldest first; the last segment is active."""
    clean_offset: int | None
    """The offset below which the log is compacted; None for a log that the cleaner has not touched."""


class FetchIsolation(Enum):
    """Kafka's FetchIsolation: the offset below which a reader may read."""

    LOG_END = auto()
    """The bound of reads by followers and coordinators."""
    HIGH_WATERMARK = auto()
    """The bound of reads by consumers."""
    TXN_COMMITTED = auto()
    """The last stable offset, the bound of reads by consumers with `isolation.level=read_committed`."""


class FetchData(NamedTuple):
    """Kafka's FetchDataInfo: the result of a read."""

    records: Sendable
    """The records from the batch on that contains the requested offset; may end inside a batch. In memory unless
    `as_file_slice` was set."""
    first: LogOffsetMetadata
    """The requested offset, and the position at which `records` starts."""
    aborted_transactions: list[AbortedTxn] | None = None
    """The aborted transactions that overlap `records`, for read-committed readers; None for others."""

    @property
    def data(self) -> bytes | memoryview:
        """The records in memory. Raises OSError if they have to be read."""
        return self.records.read() if isinstance(self.records, FileSlice) else self.records


def topic_partition_of(path: str) -> TopicPartition:
    """Return the partition whose directory `path` is, or a copy of it: the last `-` of the name separates topic and
    number.
    """
    name = path.rpartition("/")[2]
    if name.endswith(FUTURE_SUFFIX):
        name = name.rpartition(".")[0]
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))
