"""Kafka's ChangelogTopics: the numbers of partitions of a topology's changelog topics. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ......protocol.errors import ErrorCode, KafkaError
from ..streams_topology import Subtopology


def compute_changelog_topics(
    subtopologies: Iterable[Subtopology], partition_count: Callable[[str], int]
) -> dict[str, int]:
    """Return the number of partitions of each changelog topic: the number of tasks of its subtopology.

    Raises KafkaError STREAMS_INVALID_TOPOLOGY for a subtopology that reads no topic.
    """
    counts: dict[str, int] = {}
    for subtopology in subtopologies:
        task_count = max(map(partition_count, subtopology.all_source_topics), default=None)
        if task_count is None:
            raise KafkaError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                f"No source topics found for subtopology {subtopology.subtopology_id}",
            )
        for topic in subtopology.state_changelog_topics:
            counts[topic.name] = task_count
    return counts
