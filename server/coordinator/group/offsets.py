"""The offsets that a group has committed, and when they expire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
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


@dataclass(slots=True)
class GroupOffsets:
    """Committed offsets by place. What is being written counts as there for `__bool__`: the group must not go."""

    committed: dict[Place, CommittedOffset] = field(default_factory=dict)
    in_flight: Counter[Place] = field(default_factory=Counter)
    """Places whose offset is being written, and how many times."""

    def __bool__(self) -> bool:
        return bool(self.committed) or bool(self.in_flight)

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
        return self.committed.keys() | self.in_flight.keys()

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        """The committed offset of a partition."""
        return self.committed.get((topic, partition))

    def expired(self, now_ms: int, retention_ms: int, expiry: OffsetExpiry) -> Iterator[Place]:
        """Places whose offset has outlived its time; an expiry of the commit's own counts instead of the group's."""
        since_ms, keep = expiry
        for place, offset in self.committed.items():
            if place[0] in keep or place in self.in_flight:
                continue
            if offset.expire_timestamp_ms >= 0:
                is_over = now_ms >= offset.expire_timestamp_ms
            else:
                since = offset.commit_timestamp_ms if since_ms is None else since_ms
                is_over = now_ms - since >= retention_ms
            if is_over:
                yield place
