"""Kafka's ShareGroupMetrics and BrokerTopicMetrics of share groups: counters since the start of the broker."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from .record_state import AcknowledgementType

MAX_GROUPS = 1000
"""Groups with their own counters of dead letters; the dead letters of further groups are in the totals only."""


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

    def record_dead_letters(self, group_id: str, *, records: int) -> None:
        """Count an attempt to write `records` dead letters; 0 for an attempt that failed."""
        counts = [self.dead_letters]
        if group_id in self.dead_letters_by_group or len(self.dead_letters_by_group) < MAX_GROUPS:
            counts.append(self.dead_letters_by_group.setdefault(group_id, DeadLetterCounts()))
        for one in counts:
            one.requests += 1
            one.records += records
            one.failed_requests += not records
