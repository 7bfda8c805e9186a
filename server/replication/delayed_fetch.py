"""A fetch, what it finds, and how it waits for enough bytes (Kafka's FetchParams, FetchPartitionData, DelayedFetch)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...protocol.errors import KafkaError
from ...storage.errors import LogDirFailedError
from .delayed_operation import DelayedOperation
from .partition import FetchIsolation

if TYPE_CHECKING:
    from ...protocol.messages.fetch import FetchPartition
    from ...storage.filesystem import Sendable
    from ...storage.leader_epochs import EpochEnd
    from ...storage.transaction_index import AbortedTxn
    from .partition import Partition


CONSUMER = -1
"""The replica id of a client that is no replica."""


@dataclass(slots=True)
class FetchParams:
    """What a reader wants to have, in the order in which it is served, and how long it waits for that."""

    partitions: Sequence[tuple[str, FetchPartition]]
    """Topics by name, and what is wanted of one partition."""
    max_wait_ms: int
    min_bytes: int
    """Answered at once if there are so many."""
    max_bytes: int
    isolation: FetchIsolation = "high watermark"
    hard_limit: bool = False
    """The limits count in any case, batches are cut off at them. Else nobody gets a part of a batch, and the first
    partition that has anything gives a whole one at least."""
    lend: bool = False
    """Large pieces are lent as parts of files instead of being read."""
    follower: int = CONSUMER
    """The broker that follows, and reads to the log's end."""
    follower_epoch: int = -1
    """Of that broker (KIP-903)."""
    any_replica: bool = False
    """A consumer may be served by a replica that follows, up to its own high watermark (KIP-392)."""
    rack: str = ""
    """Where the consumer is."""
    listener: str = ""
    """By which listener it came."""
    has_waited: bool = False
    """It is not a moment ago that it came."""


@dataclass(slots=True)
class FetchedPartition:
    """What was found in one partition."""

    records: Sendable
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: list[AbortedTxn] | None = None
    """For read-committed readers: those that overlap `records`. None for others."""
    diverging_epoch: EpochEnd | None = None
    """The reader's log parted from ours before the offset it asks for (KIP-595)."""
    preferred_read_replica: int = -1
    """A broker that is nearer to the consumer and has the same (KIP-392)."""
    is_news: bool = False
    """A follower is to hear of it at once, records or not."""


FetchResult = FetchedPartition | KafkaError
FetchCallback = Callable[[list[FetchResult]], None]


def calls_for_answer(results: list[FetchResult]) -> bool:
    """Whether there is something that the reader is to hear of at once, beside records."""
    return any(
        isinstance(result, KafkaError)
        or result.diverging_epoch is not None
        or result.preferred_read_replica >= 0
        or result.is_news
        for result in results
    )


class AwaitedRead(NamedTuple):
    """One partition's part of the request."""

    partition: Partition
    offset: int
    max_bytes: int
    leader_epoch: int
    """The epoch the partition had when the request came; another one ends the wait."""
    is_led: bool
    """Whether this broker led it in that epoch."""


class DelayedFetch(DelayedOperation):
    """Completes when `min_bytes` are there over all partitions, or when one of them changed in any other way."""

    __slots__ = ("_isolation", "_min_bytes", "_reads", "_respond")

    def __init__(
        self, reads: list[AwaitedRead], *, min_bytes: int, isolation: FetchIsolation, respond: Callable[[], None]
    ) -> None:
        super().__init__()
        self._reads = reads
        self._min_bytes = min_bytes
        self._isolation = isolation
        self._respond = respond

    def try_complete(self) -> bool:
        available = 0
        for read in self._reads:
            partition = read.partition
            if (
                partition.is_leader is not read.is_led
                or partition.is_offline
                or partition.leader_epoch != read.leader_epoch
            ):
                return self.force_complete()
            log = partition.log
            bound = partition.read_bound(self._isolation)
            if read.offset < bound:
                # A read ends with its segment: once the log has rolled, no more than there is now will come.
                if self._min_bytes <= 1 or read.offset < log.active_segment.base_offset:
                    return self.force_complete()
                try:
                    waiting = log.bytes_between(read.offset, bound)
                except (KafkaError, LogDirFailedError):  # out of range by now, or unreadable: the answer says so
                    return self.force_complete()
                available += min(waiting, read.max_bytes)
            elif read.offset > log.log_end_offset or read.offset < log.log_start_offset:
                return self.force_complete()
        return available >= self._min_bytes and self.force_complete()

    def on_complete(self) -> None:
        self._respond()
