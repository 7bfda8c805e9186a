"""A fetch request that waits for enough bytes (Kafka's DelayedFetch)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...protocol.errors import KafkaError
from ...storage.errors import LogDirFailedError
from .delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from .partition import Partition


@dataclass(slots=True)
class AwaitedRead:
    """One partition's part of the request."""

    partition: Partition
    offset: int
    max_bytes: int
    leader_epoch: int
    """The epoch the partition had when the request came; another one ends the wait."""


class DelayedFetch(DelayedOperation):
    """Completes when `min_bytes` are there over all partitions, or when one of them changed in any other way."""

    __slots__ = ("_min_bytes", "_read_committed", "_reads", "_respond")

    def __init__(
        self, reads: list[AwaitedRead], *, min_bytes: int, read_committed: bool, respond: Callable[[], None]
    ) -> None:
        super().__init__()
        self._reads = reads
        self._min_bytes = min_bytes
        self._read_committed = read_committed
        self._respond = respond

    def try_complete(self) -> bool:
        available = 0
        for read in self._reads:
            partition = read.partition
            if not partition.is_leader or partition.is_offline or partition.leader_epoch != read.leader_epoch:
                return self.force_complete()
            log = partition.log
            bound = partition.read_bound(read_committed=self._read_committed)
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
