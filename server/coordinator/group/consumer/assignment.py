"""Assignments: partitions by topic id. They are never altered, so that members and targets may share them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol
from uuid import UUID

from .....protocol.coordinator_records import AssignedTopic


class PartitionsOfTopic(Protocol):
    """Partitions of one topic, in a request or a record."""

    topic_id: UUID
    partitions: list[int]


Assignment = Mapping[UUID, frozenset[int]]
"""Topics without partitions are left out."""

NOTHING: Assignment = MappingProxyType({})


def union(left: Assignment, right: Assignment) -> Assignment:
    """What is in either."""
    if not right:
        return left
    return {topic: left.get(topic, frozenset()) | right.get(topic, frozenset()) for topic in left.keys() | right.keys()}


def intersection(left: Assignment, right: Assignment) -> Assignment:
    both = {topic: partitions & right.get(topic, frozenset()) for topic, partitions in left.items()}
    return {topic: partitions for topic, partitions in both.items() if partitions}


def difference(left: Assignment, right: Assignment) -> Assignment:
    """What is in the first and not in the second."""
    rest = {topic: partitions - right.get(topic, frozenset()) for topic, partitions in left.items()}
    return {topic: partitions for topic, partitions in rest.items() if partitions}


def is_within(left: Assignment, right: Assignment) -> bool:
    """Whether the second has all of the first."""
    return all(partitions <= right.get(topic, frozenset()) for topic, partitions in left.items())


def overlap(left: Assignment, right: Assignment) -> bool:
    """Whether something is in both."""
    return any(not partitions.isdisjoint(right.get(topic, frozenset())) for topic, partitions in left.items())


def size(assignment: Assignment) -> int:
    """How many partitions there are."""
    return sum(map(len, assignment.values()))


def from_wire(topics: Iterable[PartitionsOfTopic]) -> Assignment:
    """The assignment in a request or a record."""
    partitions: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            partitions[topic.topic_id] = partitions.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return partitions


def to_record(assignment: Assignment) -> list[AssignedTopic]:
    """The assignment as records carry it."""
    return [AssignedTopic(topic_id=topic, partitions=sorted(partitions)) for topic, partitions in assignment.items()]
