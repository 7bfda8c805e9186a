"""Assignments: partitions by topic id. They are immutable, so that members and target assignments share them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol
from uuid import UUID

from ....protocol.coordinator_records import AssignedTopic, CurrentlyAssignedTopic


class PartitionsOfTopic(Protocol):
    """The partitions of one topic: an element of several requests and records."""

    topic_id: UUID
    partitions: list[int]


Assignment = Mapping[UUID, frozenset[int]]
"""Partitions by topic id, without topics that have no partitions."""

NOTHING: Assignment = MappingProxyType({})

PartitionEpochs = Mapping[UUID, Mapping[int, int]]
"""The member epoch in which each partition was assigned, by topic id (KIP-1251). A missing partition has epoch 0."""

NO_EPOCHS: PartitionEpochs = MappingProxyType({})


def union(left: Assignment, right: Assignment) -> Assignment:
    """Return the partitions in either assignment."""
    if not right:
        return left
    return {topic: left.get(topic, frozenset()) | right.get(topic, frozenset()) for topic in left.keys() | right.keys()}


def intersection(left: Assignment, right: Assignment) -> Assignment:
    """Return the partitions in both assignments."""
    both = {topic: partitions & right.get(topic, frozenset()) for topic, partitions in left.items()}
    return {topic: partitions for topic, partitions in both.items() if partitions}


def difference(left: Assignment, right: Assignment) -> Assignment:
    """Return the partitions in the first assignment and not in the second."""
    rest = {topic: partitions - right.get(topic, frozenset()) for topic, partitions in left.items()}
    return {topic: partitions for topic, partitions in rest.items() if partitions}


def is_within(left: Assignment, right: Assignment) -> bool:
    """Return whether the second assignment has all partitions of the first."""
    return all(partitions <= right.get(topic, frozenset()) for topic, partitions in left.items())


def overlap(left: Assignment, right: Assignment) -> bool:
    """Return whether a partition is in both assignments."""
    return any(not partitions.isdisjoint(right.get(topic, frozenset())) for topic, partitions in left.items())


def size(assignment: Assignment) -> int:
    """Return the number of partitions."""
    return sum(map(len, assignment.values()))


def from_wire(topics: Iterable[PartitionsOfTopic]) -> Assignment:
    """Return the assignment in a request or a record."""
    partitions: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            partitions[topic.topic_id] = partitions.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return partitions


def to_record(assignment: Assignment) -> list[AssignedTopic]:
    """Return a target assignment in the form of records."""
    return [AssignedTopic(topic_id=topic, partitions=sorted(partitions)) for topic, partitions in assignment.items()]


def to_current_record(assignment: Assignment, epochs: PartitionEpochs) -> list[CurrentlyAssignedTopic]:
    """Return a present assignment in the form of records."""
    topics = []
    for topic, partitions in assignment.items():
        of_topic, ordered = epochs.get(topic, {}), sorted(partitions)
        assignment_epochs = [of_topic.get(partition, 0) for partition in ordered]
        topics.append(CurrentlyAssignedTopic(topic_id=topic, partitions=ordered, assignment_epochs=assignment_epochs))
    return topics


def epochs_from_record(topics: Iterable[CurrentlyAssignedTopic], member_epoch: int) -> dict[UUID, dict[int, int]]:
    """Return the epochs in the record of a member; records of Kafka 4.3 and older have only the member's epoch."""
    found: dict[UUID, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs or ()
        if len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        found.setdefault(topic.topic_id, {}).update(zip(topic.partitions, epochs, strict=True))
    return found


def epochs_at(assignment: Assignment, epoch: int) -> PartitionEpochs:
    """Return the epochs of an assignment whose partitions were assigned together."""
    return {topic: dict.fromkeys(partitions, epoch) for topic, partitions in assignment.items()}
