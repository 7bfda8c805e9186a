"""The offsets that a group has committed, and when they expire."""

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
    """How far a group has read a partition: the next offset to read."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    """When it is to go by the wish of whoever committed it (OffsetCommit 2 to 4); -1 for the broker's rule."""
    topic_id: UUID = ZERO_UUID


class OffsetExpiry(NamedTuple):
    """When offsets of a group go (KIP-211, KIP-496)."""

    since_ms: int | None = None
    """When the group lost its last member; None if the time runs from each commit."""
    keep: frozenset[str] = frozenset()
    """Topics whose offsets stay."""


class PendingOffset(NamedTuple):
    """An offset committed in a transaction that is open."""

    order: int
    """Larger for what was written down later."""
    offset: CommittedOffset


@dataclass(slots=True)
class GroupOffsets:
    """Committed offsets by place. What is being written counts as there for `__bool__`: the group must not go.

    Offsets of a transaction count from its commit on, unless others for the same place were written later.
    """

    committed: dict[Place, CommittedOffset] = field(default_factory=dict)
    in_flight: Counter[Place] = field(default_factory=Counter)
    """Places whose offset is being written, and how many times."""
    pending: dict[int, dict[Place, PendingOffset]] = field(default_factory=dict)
    """Of open transactions, by producer id."""
    _producers: dict[Place, set[int]] = field(default_factory=dict)
    """Whose transactions are in `pending`, by place: there may be thousands of them."""
    _unsettled: Counter[Place] = field(default_factory=Counter)
    """Places whose offset is being written in a transaction."""
    _order: int = 0

    def __bool__(self) -> bool:
        return bool(self.committed) or bool(self.in_flight) or bool(self.pending)

    def commit(self, offsets: Mapping[Place, CommittedOffset]) -> None:
        """These count from now on; what was written before them never will."""
        self.committed.update(offsets)
        self._settle(offsets)

    def remove(self, places: Iterable[Place]) -> None:
        """Nothing is committed for these places any more."""
        gone = list(places)
        for place in gone:
            self.committed.pop(place, None)
        self._settle(gone)

    def _settle(self, places: Iterable[Place]) -> None:
        if self.pending:
            for place in places:
                self._drop_pending(place, self._order)

    def _drop_pending(self, place: Place, up_to: int) -> None:
        for producer_id in list(self._producers.get(place, ())):
            pending = self.pending[producer_id]
            if pending[place].order <= up_to:
                del pending[place]
                self._no_longer(place, producer_id)
                if not pending:
                    del self.pending[producer_id]

    def _no_longer(self, place: Place, producer_id: int) -> None:
        producers = self._producers[place]
        producers.remove(producer_id)
        if not producers:
            del self._producers[place]

    def begin_pending(self, places: Iterable[Place]) -> None:
        """Offsets of these places are being written in a transaction."""
        gathered = list(places)
        self.begin(gathered)
        self._unsettled.update(gathered)

    def finish_pending(self, places: Iterable[Place]) -> None:
        """They are written, or will not be."""
        gathered = list(places)
        self.finish(gathered)
        self._unsettled -= Counter(gathered)

    def add_pending(self, producer_id: int, offsets: Mapping[Place, CommittedOffset]) -> None:
        """These are written, and count once the producer's transaction is committed."""
        self._order += 1
        pending = self.pending.setdefault(producer_id, {})
        for place, offset in offsets.items():
            pending[place] = PendingOffset(self._order, offset)
            self._producers.setdefault(place, set()).add(producer_id)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The producer's transaction is over."""
        for place, (order, offset) in self.pending.pop(producer_id, {}).items():
            self._no_longer(place, producer_id)
            if is_commit:
                self.committed[place] = offset
                self._drop_pending(place, order)

    def has_pending(self, topic: str, partition: int) -> bool:
        """Whether a transaction is open that may change the offset of a partition (KIP-447)."""
        place = topic, partition
        return place in self._unsettled or place in self._producers

    def begin(self, places: Iterable[Place]) -> None:
        """Offsets of these places are being written."""
        self.in_flight.update(iter(places))

    def finish(self, places: Iterable[Place]) -> None:
        """They are written, or will not be."""
        for place in places:
            self.in_flight[place] -= 1
            if not self.in_flight[place]:
                del self.in_flight[place]

    @property
    def places(self) -> set[Place]:
        """Every place that a record says something about."""
        return self.committed.keys() | self.in_flight.keys() | self._producers.keys()

    def places_of(self, topics: Container[str]) -> set[Place]:
        """Those of `places` that are of these topics."""
        return {
            place
            for known in (self.committed, self.in_flight, self._producers)
            for place in known
            if place[0] in topics
        }

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        return self.committed.get((topic, partition))

    def expired(self, now_ms: int, retention_ms: int, expiry: OffsetExpiry) -> Iterator[Place]:
        """Places whose offset has outlived its time; an expiry of the commit's own counts instead of the group's."""
        since_ms, keep = expiry
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
