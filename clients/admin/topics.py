"""Topics and their partitions: making, growing, deleting, describing them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ...protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ...protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ...protocol.topic_partition import TopicPartition
from ..client import Client
from ..cluster import TopicInfo
from ..name_list import name_list
from .controller_link import ControllerLink
from .outcomes import Outcome, outcome, raise_error

BROKER_DEFAULT = -1
_FIRST_VERSION_WITH_DEFAULTS = 4


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created; -1 leaves a number to the broker (2.4). `assignments` are broker ids by partition."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)


class TopicAdmin:
    """What `Admin` does with topics."""

    def __init__(self, client: Client, controller: ControllerLink) -> None:
        self._client = client
        self._controller = controller

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> dict[str, Outcome]:
        """Create topics; done when the controller has them."""
        wanted = list(topics)
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in wanted],
            timeout_ms=self._controller.request_timeout_ms,
            validate_only=validate_only,
        )
        numbers = [n for t in wanted if not t.assignments for n in (t.num_partitions, t.replication_factor)]
        lowest = _FIRST_VERSION_WITH_DEFAULTS if BROKER_DEFAULT in numbers else int(validate_only)
        response = await self._controller.ask(request, "topics", lowest=lowest)
        return {r.name: outcome(r.error_code, r.error_message) for r in response.topics}

    async def delete_topics(self, names: Collection[str]) -> dict[str, Outcome]:
        """Delete topics with all their records."""
        wanted = name_list(names, "names")
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in wanted],
            topic_names=wanted,
            timeout_ms=self._controller.request_timeout_ms,
        )

        def fit(version: int) -> None:
            if version < 6:
                request.topics = []

        response = await self._controller.ask(request, "responses", fit=fit)
        return {r.name: outcome(r.error_code, r.error_message) for r in response.responses if r.name is not None}

    async def create_partitions(self, totals: Mapping[str, int], *, validate_only: bool = False) -> dict[str, Outcome]:
        """Grow topics to so many partitions in all."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=total, assignments=None) for name, total in totals.items()],
            timeout_ms=self._controller.request_timeout_ms,
            validate_only=validate_only,
        )
        response = await self._controller.ask(request, "results")
        return {r.name: outcome(r.error_code, r.error_message) for r in response.results}

    async def describe_topics(self, names: Collection[str] | None = None) -> list[TopicInfo]:
        """These topics or all, by name. A topic that does not exist comes with its `error`. Raises KafkaError."""
        response = await self._client.ask_metadata(None if names is None else name_list(names, "names"))
        wanted = {topic.name for topic in response.topics if topic.name is not None}
        return [self._client.cluster.topics[name] for name in sorted(wanted)]

    async def partitions_of(self, name: str, indexes: Collection[int] | None = None) -> list[TopicPartition]:
        """The partitions of a topic that exists, or those asked for, which may not. Raises KafkaError."""
        (topic,) = await self.describe_topics([name])
        raise_error(topic.error, f"topic {name!r}")
        return [TopicPartition(name, index) for index in indexes or sorted(topic.partitions)]


def _creatable(topic: NewTopic) -> CreatableTopic:
    assigned = bool(topic.assignments)
    return CreatableTopic(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if assigned else topic.num_partitions,
        replication_factor=BROKER_DEFAULT if assigned else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
            for index, ids in topic.assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )
