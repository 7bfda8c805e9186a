"""A member as assignors see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from .assignment import Assignment


class Subscriber(NamedTuple):
    """Who wants which topics, and which partitions it was to have up to now."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    current: Assignment


PartitionCounts = Mapping[UUID, int]
"""Of all topics that are subscribed to; topics that do not exist are in no subscription."""


def are_alike(subscribers: Sequence[Subscriber]) -> bool:
    """Whether all want the same topics."""
    return len({subscriber.topics for subscriber in subscribers}) <= 1
