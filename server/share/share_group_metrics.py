"""Kafka's ShareGroupMetrics and BrokerTopicMetrics of share groups: counters since the start of the broker."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from .record_state import AcknowledgementType

MAX_GROUPS = 1000
"""Groups with their own metrics of fetches, and of dead letters; further groups are in the totals only."""
SAMPLE_SIZE = 1028
"""The size of the samples of Kafka's histograms."""
GROUP_SAMPLE_SIZE = 100
"""The size of the samples of one group, of which there are many."""


class Histogram:
    """The number and the sum of measurements, and the last of them."""

    __slots__ = ("count", "last", "total")

    def __init__(self, sample_size: int = SAMPLE_SIZE) -> None:
        self.count = 0
        self.total = 0.0
        self.last: deque[float] = deque(maxlen=sample_size)

    def update(self, value: float) -> None:
        """Add a measurement."""
        self.count += 1
        self.total += value
        self.last.append(value)


@dataclass(slots=True)
class ShareFetchHistograms:
    """Measurements of share fetches."""

    acquire_time: Histogram
    """Seconds from the begin of a fetch until its share-partitions are selected, the wait for records included."""
    fetch_ratio: Histogram
    """Per cent of the share-partitions of a fetch that had acquirable records."""

    @classmethod
    def of_group(cls) -> ShareFetchHistograms:
        """Return the histograms of one group."""
        return cls(Histogram(GROUP_SAMPLE_SIZE), Histogram(GROUP_SAMPLE_SIZE))


@dataclass(slots=True)
class DeadLetterCounts:
    """Counts of writes to dead-letter queues."""

    requests: int = 0
    """Attempts to write."""
    failed_requests: int = 0
    records: int = 0
    """Records that were written."""


class ShareGroupMetrics:
    """Counters of fetches, acknowledgements and dead letters.

    Owned by the SharePartitionManager; used on the event loop.
    """

    def __init__(self) -> None:
        self.acknowledgements: Counter[AcknowledgementType] = Counter()
        """Acknowledged records by type."""
        self.fetch_requests = 0
        self.failed_fetch_requests = 0
        """Share fetches with an error in at least one partition."""
        self.acknowledgement_requests = 0
        self.failed_acknowledgement_requests = 0
        self.expired_fetches = 0
        """Share fetches whose wait for records has expired."""
        self.partition_load_time = Histogram()
        """Seconds until the state of a share-partition was read."""
        self.in_flight_batch_message_count = Histogram()
        """Records of each batch at its first acquisition."""
        self.fetches = ShareFetchHistograms(Histogram(), Histogram())
        """The fetches of all groups."""
        self.fetches_by_group: dict[str, ShareFetchHistograms] = {}
        self.acquired_records = 0
        self.redelivered_records = 0
        """Records that were acquired again after an earlier delivery."""
        self.acquisition_lock_timeouts = 0
        """Records whose acquisition locks have expired."""
        self.dead_letters = DeadLetterCounts()
        """The counts of all groups."""
        self.dead_letters_by_group: dict[str, DeadLetterCounts] = {}

    def record_acknowledgements(self, kind: int, count: int) -> None:
        """Count acknowledged records. Gaps are not records."""
        if kind != AcknowledgementType.GAP:
            self.acknowledgements[AcknowledgementType(kind)] += count

    def record_fetch(self, group_id: str, *, seconds: float, partitions: int, acquirable: int) -> None:
        """Record a fetch of this number of share-partitions, some of which had acquirable records."""
        measured = [self.fetches]
        if group_id in self.fetches_by_group or len(self.fetches_by_group) < MAX_GROUPS:
            measured.append(self.fetches_by_group.setdefault(group_id, ShareFetchHistograms.of_group()))
        for one in measured:
            one.acquire_time.update(seconds)
            one.fetch_ratio.update(acquirable * 100 // max(1, partitions))

    def record_dead_letters(self, group_id: str, *, records: int) -> None:
        """Count an attempt to write `records` dead letters; 0 for an attempt that failed."""
        counts = [self.dead_letters]
        if group_id in self.dead_letters_by_group or len(self.dead_letters_by_group) < MAX_GROUPS:
            counts.append(self.dead_letters_by_group.setdefault(group_id, DeadLetterCounts()))
        for one in counts:
            one.requests += 1
            one.records += records
            one.failed_requests += not records
