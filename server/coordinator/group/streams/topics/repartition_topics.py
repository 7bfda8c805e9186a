"""Kafka's RepartitionTopics: the numbers of partitions of a topology's repartition topics. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from ......protocol.errors import ErrorCode, KafkaError
from ..streams_topology import Subtopology

PartitionCount = Callable[[str], int | None]
"""Returns the number of partitions of a topic; None if it is not known."""


def compute_repartition_topics(subtopologies: Iterable[Subtopology], partition_count: PartitionCount) -> dict[str, int]:
    """Return the number of partitions of each repartition topic.

    A topic without a number has as many partitions as the largest topic of the subtopology that writes it. Raises
    KafkaError STREAMS_INVALID_TOPOLOGY for a cycle of topics without a number, and for a topic that is never written.
    """
    subtopologies = list(subtopologies)
    counts: dict[str, int] = {
        topic.name: topic.partitions
        for subtopology in subtopologies
        for topic in subtopology.repartition_source_topics
        if topic.partitions
    }
    _add_counts_of_sinks(subtopologies, counts, partition_count)
    if any(sink not in counts for subtopology in subtopologies for sink in subtopology.repartition_sink_topics):
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Failed to compute number of partitions for all repartition topics. "
            "There may be loops in the topology that cannot be resolved.",
        )
    for subtopology in subtopologies:
        if any(topic.name not in counts for topic in subtopology.repartition_source_topics):
            raise KafkaError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                "Failed to compute number of partitions for all repartition topics, because a repartition source "
                "topic is never used as a sink topic.",
            )
    return counts


def _add_counts_of_sinks(
    subtopologies: list[Subtopology], counts: dict[str, int], partition_count: PartitionCount
) -> None:
    """Add the number of partitions of each topic that a subtopology writes, if that of one of its sources is known.

    Kafka visits all subtopologies in their order, pass after pass until nothing changes, and a subtopology takes the
    largest number that is known at its visit. Here each subtopology has one visit, in the order and with the numbers of
    Kafka's first visit that finds a source with a number: passes over a long chain take quadratic time.
    """
    readers: dict[str, list[int]] = {}
    """The positions of the subtopologies without such a source, by the topics that they read."""
    visits: list[tuple[int, int]] = []
    """A heap of passes and positions."""
    for position, subtopology in enumerate(subtopologies):
        if not subtopology.repartition_sink_topics:
            continue
        if _largest_source(subtopology, counts, partition_count) is not None:
            visits.append((0, position))
            continue
        for topic in subtopology.repartition_source_topics:
            readers.setdefault(topic.name, []).append(position)
    heapify(visits)
    is_planned = [False] * len(subtopologies)
    while visits:
        turn, position = heappop(visits)
        subtopology = subtopologies[position]
        # One number for all sinks: a sink that the subtopology also reads has this number, too.
        count = _largest_source(subtopology, counts, partition_count)
        assert count is not None, "a visit follows the number of a source"
        for sink in subtopology.repartition_sink_topics:
            if sink in counts:
                continue
            counts[sink] = count
            for reader in readers.pop(sink, ()):
                if not is_planned[reader]:
                    is_planned[reader] = True
                    heappush(visits, (turn if reader > position else turn + 1, reader))


def _largest_source(subtopology: Subtopology, counts: dict[str, int], partition_count: PartitionCount) -> int | None:
    known = [counts.get(topic.name) for topic in subtopology.repartition_source_topics]
    known += [partition_count(name) for name in subtopology.source_topics]
    return max((count for count in known if count is not None), default=None)
