"""The name of one partition: a topic and a partition index; and of many, as requests list them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as Kafka does, `topic-0`, which is also its folder name on disk."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def indexes_by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The indexes of each topic's partitions, in the order given."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics
