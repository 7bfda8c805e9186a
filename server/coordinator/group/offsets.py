"""Committed offsets of one group (Kafka: OffsetAndMetadata, OffsetMetadataManager.Offsets) and their expiration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ....protocol.schema import ZERO_UUID

NO_OFFSET = -1
NO_LEADER_EPOCH = -1
Place = tuple[str, int]
"""Topic and partition."""


class CommittedOffset(NamedTuple):
    """The committed offset of a partition: the offset of the next record to read (Kafka: OffsetAndMetadata)."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    """The time of expiration that the client chose (OffsetCommit 2 to 4); -1 for the broker's retention."""
    topic_id: UUID = ZERO_UUID


class OffsetExpirationCondition(NamedTuple):
    """The rule for the expiration of a group's offsets (KIP-211, KIP-496)."""

    since_ms: int | None = None
    """The time at which the group lost its last member; None if the retention begins with each commit."""
    keep: frozenset[str] = frozenset()
    """The topics whose offsets do not expire."""


class PendingOffset(NamedTuple):
    """An offset that was committed in an open transaction."""

    order: int
    """Its position in the log, relative to other pending offsets of the group."""
    offset: CommittedOffset


@dataclass(slots=True)
class GroupOffsets:
    """The committed offsets of a group by partition.

    An offset that was committed in a transaction counts from the commit of the transaction, unless another offset for
    its partition was written later. `__bool__` includes offsets that are not durable yet: the group must not be deleted
    during their append.
    """

    committed: dict[Place, CommittedOffset] = field(default_factory=dict)
    in_flight: Counter[Place] = field(default_factory=Counter)
    """The number of appends in flight by partition."""
    pending: dict[int, dict[Place, PendingOffset]] = field(default_factory=dict)
    """The offsets in open transactions by producer id."""
    _producers: dict[Place, set[int]] = field(default_factory=dict)
    """The producer ids in `pending` by partition: a group may have thousands of open transactions."""
    _pending_in_flight: Counter[Place] = field(default_factory=Counter)
    """The part of `in_flight` that belongs to transactions."""
    _order: int = 0

    def __bool__(self) -> bool:
        return bool(self.committed) or bool(self.in_flight) or bool(self.pending)

    def commit(self, offsets: Mapping[Place, CommittedOffset]) -> None:
        """Set offsets, and drop the pending offsets of their partitions: those were written earlier."""
        self.committed.update(offsets)
        self._drop_all_pending(offsets)

    def remove(self, places: Iterable[Place]) -> None:
        """Remove the offsets and the pending offsets of partitions."""
        removed = list(places)
        for place in removed:
            self.committed.pop(place, None)
        self._drop_all_pending(removed)

    def _drop_all_pending(self, places: Iterable[Place]) -> None:
        if self.pending:
            for place in places:
                self._drop_pending(place, self._order)

    def _drop_pending(self, place: Place, up_to: int) -> None:
        for producer_id in list(self._producers.get(place, ())):
            pending = self.pending[producer_id]
            if pending[place].order <= up_to:
                del pending[place]
                self._remove_producer(place, producer_id)
                if not pending:
                    del self.pending[producer_id]

    def _remove_producer(self, place: Place, producer_id: int) -> None:
        producers = self._producers[place]
        producers.remove(producer_id)
        if not producers:
            del self._producers[place]

    def begin_pending(self, places: Iterable[Place]) -> None:
        """Count an append in a transaction as in flight."""
        appended = list(places)
        self.begin(appended)
        self._pending_in_flight.update(appended)

    def finish_pending(self, places: Iterable[Place]) -> None:
        """End an append in a transaction, successful or not."""
        appended = list(places)
        self.finish(appended)
        self._pending_in_flight -= Counter(appended)

    def add_pending(self, producer_id: int, offsets: Mapping[Place, CommittedOffset]) -> None:
        """Add offsets of a producer's open transaction."""
        self._order += 1
        pending = self.pending.setdefault(producer_id, {})
        for place, offset in offsets.items():
            pending[place] = PendingOffset(self._order, offset)
            self._producers.setdefault(place, set()).add(producer_id)

    def complete_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply or drop the pending offsets of a producer's transaction."""
        for place, (order, offset) in self.pending.pop(producer_id, {}).items():
            self._remove_producer(place, producer_id)
            if is_commit:
                self.committed[place] = offset
                self._drop_pending(place, order)

    def has_pending(self, topic: str, partition: int) -> bool:
        """Return whether an open transaction may change the offset of a partition (KIP-447)."""
        place = topic, partition
        return place in self._pending_in_flight or place in self._producers

    def begin(self, places: Iterable[Place]) -> None:
        """Count an append of these partitions' offsets as in flight."""
        self.in_flight.update(iter(places))

    def finish(self, places: Iterable[Place]) -> None:
        """End an append of these partitions' offsets, successful or not."""
        for place in places:
            self.in_flight[place] -= 1
            assert self.in_flight[place] >= 0, f"an append of the offset of {place} ended twice"
            if not self.in_flight[place]:
                del self.in_flight[place]

    @property
    def places(self) -> set[Place]:
        """The partitions that have a record in the log, or one in flight."""
        return self.committed.keys() | self.in_flight.keys() | self._producers.keys()

    def places_of(self, topics: Container[str]) -> set[Place]:
        """Return the partitions of these topics in `places`."""
        return {
            place
            for known in (self.committed, self.in_flight, self._producers)
            for place in known
            if place[0] in topics
        }

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        return self.committed.get((topic, partition))

    def expired(self, now_ms: int, retention_ms: int, condition: OffsetExpirationCondition) -> Iterator[Place]:
        """Yield the partitions whose offset has expired; a time that the client chose precedes the retention."""
        since_ms, keep = condition
        for place, offset in self.committed.items():
            if place[0] in keep or place in self.in_flight or (self.pending and self.has_pending(*place)):
                continue
            if offset.expire_timestamp_ms >= 0:
                is_over = now_ms >= offset.expire_timestamp_ms
            else:
                since = offset.commit_timestamp_ms if since_ms is None else since_ms
                is_over = now_ms - since >= retention_ms
            if is_over:
                yield place
