"""Kafka's InternalTopicManager: the configuration of a topology at one state of the cluster's topics. No I/O.

It decides the numbers of partitions of the internal topics, and finds the internal topics that have to be created. The
functions are generators: the configuration of the largest topology takes 30 ms, and is done in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ......protocol.errors import ErrorCode, KafkaError
from .....runtime.loop_sharing import Steps
from ..streams_topology import InternalTopicInfo, StreamsTopology, Subtopology
from .changelog_topics import compute_changelog_topics
from .configured_topology import ConfiguredInternalTopic, ConfiguredSubtopology, ConfiguredTopology
from .copartitioned_topics_enforcer import CopartitionedTopicsEnforcer
from .repartition_topics import compute_repartition_topics
from .topic_configuration_error import Status, TopicConfigurationError

ExistingPartitions = Callable[[str], int | None]
"""Returns the number of partitions of a topic of the cluster; None if the topic does not exist. The numbers must not
change between the steps of a configuration."""

NAMED_TOPICS = 3
"""Maximum number of topic names in a message."""


def configure_topics(
    topology: StreamsTopology, metadata_hash: int, existing_partitions: ExistingPartitions
) -> Steps[ConfiguredTopology]:
    """Return the topology with the partition counts of its topics, or with the error of its topics, in steps.

    Raises KafkaError STREAMS_INVALID_TOPOLOGY for a topology that no topics can satisfy.
    """
    try:
        _check_source_topics(topology, existing_partitions)
        yield
        counts = yield from _decide_partition_counts(topology, existing_partitions)
        subtopologies: dict[str, ConfiguredSubtopology] = {}
        for name in sorted(topology.subtopologies):
            subtopology = topology.subtopologies[name]
            subtopologies[name] = yield from _configure_subtopology(subtopology, existing_partitions, counts)
        missing = yield from _missing_internal_topics(subtopologies, topology, existing_partitions)
    except TopicConfigurationError as error:
        return ConfiguredTopology(topology.epoch, metadata_hash, None, error=error)
    missing_error = None
    if missing:
        missing_error = TopicConfigurationError(
            Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {summarize_topics(missing)}"
        )
    return ConfiguredTopology(topology.epoch, metadata_hash, subtopologies, missing, missing_error)


def _check_source_topics(topology: StreamsTopology, existing_partitions: ExistingPartitions) -> None:
    missing = {
        name
        for subtopology in topology.subtopologies.values()
        for name in subtopology.source_topics
        if existing_partitions(name) is None
    }
    if missing:
        raise TopicConfigurationError(
            Status.MISSING_SOURCE_TOPICS, f"Source topics {summarize_topics(sorted(missing))} are missing."
        )


def _decide_partition_counts(
    topology: StreamsTopology, existing_partitions: ExistingPartitions
) -> Steps[dict[str, int]]:
    """Return the numbers of partitions of all internal topics, computed from the numbers of existing topics."""
    subtopologies = topology.subtopologies.values()
    decided: dict[str, int] = {}

    def known_count(name: str) -> int:
        count = existing_partitions(name)
        if count is None:
            count = decided.get(name)
        if count is None:
            # A copartition group or a subtopology names a topic that is neither a source nor a repartition topic.
            raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"Number of partitions is not set for topic: {name}")
        return count

    decided.update(compute_repartition_topics(subtopologies, existing_partitions))
    yield
    repartition_topics = [topic for one in subtopologies for topic in one.repartition_source_topics]
    fixed = frozenset(topic.name for topic in repartition_topics if topic.partitions)
    flexible = frozenset(topic.name for topic in repartition_topics if not topic.partitions)
    enforcer = CopartitionedTopicsEnforcer(fixed, flexible, known_count)
    for subtopology in subtopologies:
        for group in subtopology.copartitioned_topics:
            decided.update(enforcer.enforce(group))
            yield
    decided.update(compute_changelog_topics(subtopologies, known_count))
    return decided


def _configure_subtopology(
    subtopology: Subtopology, existing_partitions: ExistingPartitions, counts: Mapping[str, int]
) -> Steps[ConfiguredSubtopology]:
    def count(name: str) -> int:
        existing = existing_partitions(name)
        return counts[name] if existing is None else existing

    return ConfiguredSubtopology(
        task_count=max(map(count, subtopology.all_source_topics)),
        source_topics=frozenset(subtopology.source_topics),
        repartition_source_topics=(yield from _configure_topics(subtopology.repartition_source_topics, counts)),
        repartition_sink_topics=frozenset(subtopology.repartition_sink_topics),
        state_changelog_topics=(yield from _configure_topics(subtopology.state_changelog_topics, counts)),
    )


def _configure_topics(
    topics: Collection[InternalTopicInfo], counts: Mapping[str, int]
) -> Steps[dict[str, ConfiguredInternalTopic]]:
    configured: dict[str, ConfiguredInternalTopic] = {}
    for topic in topics:
        configured[topic.name] = ConfiguredInternalTopic(
            topic.name, topic.partitions or counts[topic.name], topic.replication_factor, dict(topic.topic_configs)
        )
        yield
    return configured


def _missing_internal_topics(
    subtopologies: Mapping[str, ConfiguredSubtopology],
    topology: StreamsTopology,
    existing_partitions: ExistingPartitions,
) -> Steps[dict[str, ConfiguredInternalTopic]]:
    missing: dict[str, ConfiguredInternalTopic] = {}
    for subtopology in subtopologies.values():
        missing.update(subtopology.repartition_source_topics)
        missing.update(subtopology.state_changelog_topics)
        yield
    for name in sorted(topology.required_topics):
        existing = existing_partitions(name)
        expected = missing.pop(name, None) if existing is not None else None
        if expected is not None and expected.partition_count != existing:
            raise TopicConfigurationError(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {expected.partition_count}, "
                f"found {existing}",
            )
    return missing


def summarize_topics(names: Collection[str]) -> str:
    """Return the first names, and the number of the others."""
    text = ", ".join(list(names)[:NAMED_TOPICS])
    return f"{text} and {len(names) - NAMED_TOPICS} additional topics" if len(names) > NAMED_TOPICS else text
