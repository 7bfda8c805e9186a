"""Partitions by topic and index, and their grouping in requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias
from uuid import UUID


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as in Kafka, `topic-0`, which is also its directory name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


TopicPartitionKey: TypeAlias = tuple[str, int]
"""A topic and a partition as a plain tuple, which equals the TopicPartition.

For large tables: a plain tuple of a string and a number is cheaper to create, and the garbage collector does not visit
it.
"""


class TopicIdPartition(NamedTuple):
    """One partition of one topic by id: a topic that was deleted and created again is another topic."""

    topic_id: UUID
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id}:{self.topic}-{self.partition}"

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def indexes_by_topic(partitions: Iterable[TopicPartitionKey]) -> dict[str, list[int]]:
    """Group the indexes by topic, in the given order."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics
