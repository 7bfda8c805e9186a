"""Kafka's ShareGroupMetrics and BrokerTopicMetrics of share groups: counters since the start of the broker."""

from __future__ import annotations

from collections import Counter

from .record_state import AcknowledgementType

MOST_GROUPS = 1000
"""Groups with counters of dead letters; dead letters of further groups are not counted."""


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
        self.dead_letters: Counter[str] = Counter()
        """Records written to dead-letter queues, by group."""
        self.dead_letter_requests: Counter[str] = Counter()
        self.failed_dead_letter_requests: Counter[str] = Counter()

    def record_acknowledgements(self, kind: int, count: int) -> None:
        """Count acknowledged records. Gaps are not records."""
        if kind != AcknowledgementType.GAP:
            self.acknowledgements[AcknowledgementType(kind)] += count

    def record_dead_letters(self, group_id: str, *, records: int) -> None:
        """Count an attempt to write `records` dead letters; 0 for an attempt that failed."""
        if group_id not in self.dead_letter_requests and len(self.dead_letter_requests) >= MOST_GROUPS:
            return
        self.dead_letter_requests[group_id] += 1
        if records:
            self.dead_letters[group_id] += records
        else:
            self.failed_dead_letter_requests[group_id] += 1
