"""The topology of a streams application as its members send it (Kafka: StreamsTopology). Immutable values.

A topology has subtopologies, which are connected by repartition topics. A subtopology reads source topics and
repartition topics, writes repartition topics, and keeps its state in changelog topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, slots=True)
class InternalTopicInfo:
    """An internal topic: a repartition topic or a changelog topic."""

    name: str
    partitions: int = 0
    """The number of partitions; 0 if the broker decides."""
    replication_factor: int = 0
    """The replication factor; 0 for the broker's default."""
    topic_configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CopartitionGroup:
    """Topics that must have the same number of partitions, as indexes in the lists of their subtopology."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of the topology whose tasks are assigned together."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    state_changelog_topics: tuple[InternalTopicInfo, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopicInfo, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def all_source_topics(self) -> Iterator[str]:
        """The names of the topics that the subtopology reads: source topics, then repartition topics."""
        yield from self.source_topics
        for topic in self.repartition_source_topics:
            yield topic.name

    @property
    def copartitioned_topics(self) -> Iterator[frozenset[str]]:
        """The names of the topics of each copartition group. The indexes are within the lists."""
        for group in self.copartition_groups:
            sources = (self.source_topics[index] for index in group.source_topics)
            repartitions = (self.repartition_source_topics[index].name for index in group.repartition_source_topics)
            yield frozenset((*sources, *repartitions))


@dataclass(frozen=True)
class StreamsTopology:
    """A topology with its epoch, which the application raises with each new version of the topology."""

    epoch: int
    subtopologies: Mapping[str, Subtopology] = field(default_factory=dict)
    """The subtopologies by id."""

    @cached_property
    def source_topic_map(self) -> Mapping[str, Subtopology]:
        """The subtopology that reads each topic, by name of the topic."""
        return {
            name: subtopology for subtopology in self.subtopologies.values() for name in subtopology.all_source_topics
        }

    @cached_property
    def required_topics(self) -> frozenset[str]:
        """The names of all topics that the subtopologies read, and of their changelog topics."""
        changelogs = (
            topic.name for subtopology in self.subtopologies.values() for topic in subtopology.state_changelog_topics
        )
        return frozenset((*self.source_topic_map, *changelogs))

    @property
    def all_topics(self) -> Iterator[str]:
        """The names of all topics in the topology, with repetitions, including the topics that are only written."""
        for subtopology in self.subtopologies.values():
            yield from subtopology.source_topics
            yield from subtopology.repartition_sink_topics
            yield from (topic.name for topic in subtopology.repartition_source_topics)
            yield from (topic.name for topic in subtopology.state_changelog_topics)
