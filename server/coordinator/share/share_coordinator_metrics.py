"""Measurements of the share coordinator (Kafka: ShareCoordinatorMetrics)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

MEASURED_WRITES = 1000
"""Write requests whose latencies are kept for the average and the maximum."""


class ShareCoordinatorMetrics:
    """Counters that the coordinator updates and the metrics endpoint reads. Used on the loop's thread only."""

    def __init__(self) -> None:
        self.write_count = 0
        """Writes of the state of one share-partition; a request may have several."""
        self.write_latencies: deque[float] = deque(maxlen=MEASURED_WRITES)
        """Durations of the last write requests in seconds, including the wait for the commit."""
        self.last_pruned_offsets: dict[int, int] = {}
        """The offset before which records were deleted, by partition of `__share_group_state`."""

    def record_write(self) -> None:
        """Count the write of one share-partition."""
        self.write_count += 1

    def record_write_latency(self, seconds: float) -> None:
        """Keep the duration of a write request."""
        self.write_latencies.append(seconds)

    def record_prune(self, index: int, offset: int) -> None:
        """Keep the offset before which the records of a partition were deleted."""
        self.last_pruned_offsets[index] = offset

    def remove_partitions(self, is_led: Callable[[int], bool]) -> None:
        """Remove the partitions for which `is_led` returns false."""
        self.last_pruned_offsets = {
            index: offset for index, offset in self.last_pruned_offsets.items() if is_led(index)
        }
