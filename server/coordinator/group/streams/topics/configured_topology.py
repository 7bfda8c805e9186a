"""A topology with the partition counts of its topics (Kafka: ConfiguredTopology and its parts). Immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .topic_configuration_error import TopicConfigurationError


@dataclass(frozen=True, slots=True)
class ConfiguredInternalTopic:
    """An internal topic with its number of partitions."""

    name: str
    partition_count: int
    replication_factor: int = 0
    """0 for the broker's default."""
    topic_configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology with its number of tasks: the largest number of partitions of the topics that it reads."""

    task_count: int
    source_topics: frozenset[str] = frozenset()
    repartition_source_topics: Mapping[str, ConfiguredInternalTopic] = field(default_factory=dict)
    repartition_sink_topics: frozenset[str] = frozenset()
    state_changelog_topics: Mapping[str, ConfiguredInternalTopic] = field(default_factory=dict)

    @property
    def is_stateful(self) -> bool:
        """Whether the tasks have state with a changelog, which standby tasks can replicate."""
        return bool(self.state_changelog_topics)


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """The result of the configuration of a topology at one state of the cluster's topics."""

    topology_epoch: int
    metadata_hash: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    """The subtopologies by id, in the order of the ids; None if the topics do not allow a configuration."""
    internal_topics_to_create: Mapping[str, ConfiguredInternalTopic] = field(default_factory=dict)
    error: TopicConfigurationError | None = None
    """The reason why no task can be assigned."""

    @property
    def is_ready(self) -> bool:
        """Whether all topics exist with the right number of partitions, so that tasks can be assigned."""
        return self.error is None
