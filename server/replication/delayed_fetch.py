"""Kafka's FetchParams, FetchPartitionData and DelayedFetch: a fetch, its results, and its wait for `min_bytes`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...protocol.errors import KafkaError
from ...storage.errors import LogDirFailedError
from ...storage.log_values import FetchIsolation
from .delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from ...protocol.messages.fetch import FetchPartition
    from ...protocol.topic_partition import TopicPartition
    from ...storage.filesystem import Sendable
    from ...storage.leader_epochs import EpochEnd
    from ...storage.transaction_index import AbortedTxn
    from .partition import Partition


CONSUMER = -1
"""The replica id of a consumer."""


@dataclass(slots=True)
class FetchParams:
    """Kafka's FetchParams: the requested partitions, in the order in which they are read, and the limits."""

    partitions: Sequence[tuple[str, FetchPartition]]
    """Topic names with the request for one partition."""
    max_wait_ms: int
    min_bytes: int
    """The bytes that complete the fetch before its timeout."""
    max_bytes: int
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK
    hard_limit: bool = False
    """Whether batches are cut off at the limits (before Fetch version 3). Else all batches are whole, and the first
    partition with records returns at least one."""
    as_file_slice: bool = False
    """Large stretches are returned as `FileSlice`, without being read."""
    follower: int = CONSUMER
    """The id of the follower that fetches, up to the log end offset."""
    follower_epoch: int = -1
    """The broker epoch of the follower (KIP-903)."""
    any_replica: bool = False
    """Whether a follower may serve the consumer, up to its own high watermark (KIP-392)."""
    rack: str = ""
    """The rack of the consumer."""
    listener: str = ""
    """The listener of the connection."""
    has_waited: bool = False
    """Whether the fetch has waited in the purgatory."""


@dataclass(slots=True)
class FetchedPartition:
    """Kafka's FetchPartitionData: the result of one partition."""

    records: Sendable
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: list[AbortedTxn] | None = None
    """The aborted transactions that overlap `records`, for read-committed readers; None for others."""
    diverging_epoch: EpochEnd | None = None
    """The offset from which the reader's log differs from this log, if it is below its fetch offset (KIP-595)."""
    preferred_read_replica: int = -1
    """A replica nearer to the consumer that has the same records (KIP-392)."""
    is_immediate: bool = False
    """Whether a follower receives the result immediately, even without records."""


FetchResult = FetchedPartition | KafkaError
FetchCallback = Callable[[list[FetchResult]], None]


def share_result(previous: object, error: KafkaError) -> KafkaError:
    """Return `previous` if it is the same error: a request may name 100 000 partitions that do not exist."""
    if type(previous) is type(error) is KafkaError and (previous.code, previous.message) == (error.code, error.message):
        return previous
    return error.as_result()


def must_respond(results: list[FetchResult]) -> bool:
    """Whether a result must be sent immediately even if there are no records."""
    for result in results:  # a generator costs more than the rest for the usual single result
        if (
            isinstance(result, KafkaError)
            or result.diverging_epoch is not None
            or result.preferred_read_replica >= 0
            or result.is_immediate
        ):
            return True
    return False


class AwaitedRead(NamedTuple):
    """The wait of one partition."""

    partition: Partition
    offset: int
    max_bytes: int
    leader_epoch: int
    """The leader epoch at the request; another epoch ends the wait."""
    is_led: bool
    """Whether this broker led it in that epoch."""


class DelayedFetch(DelayedOperation):
    """Completes when all partitions together have `min_bytes`, or when one of them changed in any other way."""

    __slots__ = ("_available", "_isolation", "_min_bytes", "_reads", "_respond", "_waiting", "size")

    def __init__(
        self,
        reads: Mapping[TopicPartition, AwaitedRead],
        *,
        min_bytes: int,
        isolation: FetchIsolation,
        respond: Callable[[], None],
    ) -> None:
        super().__init__()
        self._reads = reads
        self._min_bytes = min_bytes
        self._isolation = isolation
        self._respond = respond
        self._waiting: dict[Hashable, int] = {}
        """The bytes that the partitions had at their last check. Only kept for fetches of more than one byte."""
        self._available = 0
        """The sum of these."""
        self.size = 1

    @property
    def has_other_fetches(self) -> bool:
        """Whether it waits for one partition only, and other fetches wait for the same partition."""
        if self.purgatory is None or len(self.keys) != 1:
            return False
        (key,) = self.keys
        return len(self.purgatory.watchers[key]) > 1

    def try_complete(self) -> bool:
        for key, read in self._reads.items():  # a generator costs more than the check of the usual single partition
            if self._is_complete(key, read):
                return self.force_complete()
        return False

    def try_complete_for(self, key: Hashable) -> bool:
        read = self._reads.get(key)  # type: ignore[call-overload]  # a follower's id is a key without a read
        return read is not None and self._is_complete(key, read) and self.force_complete()

    def _is_complete(self, key: Hashable, read: AwaitedRead) -> bool:
        """Whether this partition, with the bytes that the others had at their last check, completes the fetch."""
        partition = read.partition
        if (
            partition.is_leader is not read.is_led
            or partition.is_offline
            or partition.leader_epoch != read.leader_epoch
        ):
            return True
        log = partition.log
        bound = partition.read_bound(self._isolation)
        waiting = 0
        if read.offset < bound:
            # A read ends with its segment: after a roll this read cannot return more bytes.
            if self._min_bytes <= 1 or read.offset < log.active_segment.base_offset:
                return True
            try:
                waiting = min(log.bytes_between(read.offset, bound), read.max_bytes)
            except (KafkaError, LogDirFailedError):  # out of range or unreadable now: the response reports it
                return True
        elif read.offset > log.log_end_offset or read.offset < log.log_start_offset:
            return True
        if self._min_bytes <= 1:
            return False
        self._available += waiting - self._waiting.get(key, 0)
        self._waiting[key] = waiting
        return self._available >= self._min_bytes

    def on_complete(self) -> None:
        self._respond()


class LongFetch:
    """A fetch of more partitions than are read in one loop turn, until its response."""

    __slots__ = ("is_cancelled", "waiting")

    def __init__(self) -> None:
        self.is_cancelled = False
        self.waiting: DelayedFetch | None = None
        """The delayed fetch, once all partitions have been read."""

    def cancel(self) -> None:
        """End without a response, because the client has disconnected."""
        self.is_cancelled = True
        if self.waiting is not None:
            self.waiting.cancel()
