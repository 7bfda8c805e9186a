"""The admin client: topics, partitions, configurations, offsets, groups, log directories."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, Self

from ..protocol.apis import ApiKey, api_key_of
from ..protocol.config_resources import ConfigOperation, ConfigResourceType, ConfigSource
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ..protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ..protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ..protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ..protocol.messages.describe_cluster import DescribeClusterRequest
from ..protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ..protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ..protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ..protocol.topic_partition import TopicPartition
from .client import Client
from .cluster import BrokerNode, TopicInfo
from .connection import ConnectionOptions
from .errors import code_of
from .group_admin import GroupAdmin, Outcome
from .host import new_random
from .name_list import name_list
from .offsets import OffsetAndTimestamp, OffsetLookup, by_leader_of
from .security import PLAINTEXT, Security

BROKER_DEFAULT = -1
HIGH_WATERMARK = -1
_FIRST_VERSION_WITH_DEFAULTS = 4


class ConfigResource(NamedTuple):
    """A topic by name, or a broker by id as text (empty: all brokers)."""

    type: ConfigResourceType
    name: str


class ConfigChange(NamedTuple):
    """One change to one key."""

    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


class ConfigEntry(NamedTuple):
    """One key as it is in force; the value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    documentation: str | None


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created; -1 leaves a number to the broker (2.4). `assignments` are broker ids by partition."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)


class ClusterDescription(NamedTuple):
    """The brokers that are alive; `controller_id` -1 while there is none."""

    cluster_id: str | None
    controller_id: int
    brokers: list[BrokerNode]


class LogDir(NamedTuple):
    """One log directory of one broker; sizes in bytes, -1 where the broker does not tell (before 3.3)."""

    broker_id: int
    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    sizes: dict[TopicPartition, int]


class Admin(GroupAdmin):
    """One cluster's administration. Methods that act on several things return an outcome for each.

    async with Admin("localhost:9092") as admin:
        await admin.create_topics([NewTopic("flights", num_partitions=4)])
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "barnabas-admin",
        request_timeout_ms: int = 30_000,
        default_api_timeout_ms: int = 60_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
        security: Security = PLAINTEXT,
        rng: Random | None = None,
    ) -> None:
        self._client = Client(
            bootstrap_servers,
            rng=rng or new_random(),
            options=ConnectionOptions(client_id=client_id, request_timeout_ms=request_timeout_ms, security=security),
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            allow_auto_topic_creation=False,
        )
        self._request_timeout_ms = request_timeout_ms
        self._timeout_ms = default_api_timeout_ms

    async def start(self) -> Self:
        """Reach the cluster. Raises BrokerUnreachableError."""
        await self._client.start()
        return self

    async def close(self) -> None:
        await self._client.close()

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Topics

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> dict[str, Outcome]:
        """Create topics; done when the controller has them."""
        wanted = list(topics)
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in wanted],
            timeout_ms=self._request_timeout_ms,
            validate_only=validate_only,
        )
        numbers = [n for t in wanted if not t.assignments for n in (t.num_partitions, t.replication_factor)]
        lowest = _FIRST_VERSION_WITH_DEFAULTS if BROKER_DEFAULT in numbers else int(validate_only)
        response = await self._ask_controller(request, "topics", lowest=lowest)
        return {r.name: _outcome(r.error_code, r.error_message) for r in response.topics}

    async def delete_topics(self, names: Collection[str]) -> dict[str, Outcome]:
        """Delete topics with all their records."""
        wanted = name_list(names, "names")
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in wanted],
            topic_names=wanted,
            timeout_ms=self._request_timeout_ms,
        )

        def fit(version: int) -> None:
            if version < 6:
                request.topics = []

        response = await self._ask_controller(request, "responses", fit=fit)
        return {r.name: _outcome(r.error_code, r.error_message) for r in response.responses if r.name is not None}

    async def create_partitions(self, totals: Mapping[str, int], *, validate_only: bool = False) -> dict[str, Outcome]:
        """Grow topics to so many partitions in all."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=total, assignments=None) for name, total in totals.items()],
            timeout_ms=self._request_timeout_ms,
            validate_only=validate_only,
        )
        response = await self._ask_controller(request, "results")
        return {r.name: _outcome(r.error_code, r.error_message) for r in response.results}

    async def describe_topics(self, names: Collection[str] | None = None) -> list[TopicInfo]:
        """These topics or all, by name. A topic that does not exist comes with its `error`. Raises KafkaError."""
        response = await self._client.ask_metadata(None if names is None else name_list(names, "names"))
        wanted = {topic.name for topic in response.topics if topic.name is not None}
        return [self._client.cluster.topics[name] for name in sorted(wanted)]

    async def partitions_of(self, name: str, indexes: Collection[int] | None = None) -> list[TopicPartition]:
        """The partitions of a topic that exists, or those asked for, which may not. Raises KafkaError."""
        (topic,) = await self.describe_topics([name])
        _raise(topic.error, f"topic {name!r}")
        return [TopicPartition(name, index) for index in indexes or sorted(topic.partitions)]

    # Configurations

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, documentation: bool = False
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        """All settings of these resources, by name. Raises KafkaError for the first that cannot be described."""
        described: dict[ConfigResource, list[ConfigEntry]] = {}
        for node, group in self._by_broker(resources).items():
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=r.type, resource_name=r.name, configuration_keys=None)
                    for r in group
                ]
            )
            connection = await (self._client.any_connection() if node is None else self._client.connection(node))
            version = connection.version_for(ApiKey.DESCRIBE_CONFIGS)
            request.include_documentation = documentation and version >= 3
            response = await connection.send(request, version)
            for result in response.results:
                _raise(result.error_code, result.error_message)
                resource = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
                described[resource] = sorted(map(_config_entry, result.configs))
        return described

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[ConfigChange]], *, validate_only: bool = False
    ) -> dict[ConfigResource, Outcome]:
        """Change single keys (KIP-339, brokers since 2.3); other keys stay."""
        outcomes: dict[ConfigResource, Outcome] = {}
        for node, group in self._by_broker(changes).items():
            request = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=r.type,
                        resource_name=r.name,
                        configs=[
                            AlterableConfig(name=c.name, value=c.value, config_operation=c.operation)
                            for c in changes[r]
                        ],
                    )
                    for r in group
                ],
                validate_only=validate_only,
            )
            if node is None:
                response = await self._ask_controller(request, "responses")
            else:
                response = await self._client.ask(node, request)
            for r in response.responses:
                resource = ConfigResource(ConfigResourceType(r.resource_type), r.resource_name)
                outcomes[resource] = _outcome(r.error_code, r.error_message)
        return outcomes

    # Offsets

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation_level: int = 0
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets by timestamp (ms), or one of `protocol.special_timestamps`. Raises KafkaError."""
        lookup = OffsetLookup(self._client, isolation_level=isolation_level)
        return await lookup.find(timestamps, timeout_ms=self._timeout_ms)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        """Drop all records before each offset (-1: the high watermark); returns the new log start offsets."""
        self._client.watch_topics({tp.topic for tp in before})
        await self._client.refresh_metadata()
        outcomes: dict[TopicPartition, int | KafkaError] = {}
        for leader, partitions in by_leader_of(self._client, before).items():
            topics: dict[str, DeleteRecordsTopic] = {}
            for tp in partitions:
                topic = topics.setdefault(tp.topic, DeleteRecordsTopic(name=tp.topic))
                topic.partitions.append(DeleteRecordsPartition(partition_index=tp.partition, offset=before[tp]))
            request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=self._request_timeout_ms)
            response = await self._client.ask(leader, request)
            for answer in response.topics:
                for p in answer.partitions:
                    tp = TopicPartition(answer.name, p.partition_index)
                    outcomes[tp] = _outcome(p.error_code, f"partition {tp}") or p.low_watermark
        return outcomes

    # Brokers

    async def describe_cluster(self) -> ClusterDescription:
        """Cluster id, controller, brokers. Raises KafkaError."""
        connection = await self._client.any_connection()
        if not connection.supports(ApiKey.DESCRIBE_CLUSTER):
            await self._client.refresh_metadata()
            cluster = self._client.cluster
            return ClusterDescription(cluster.cluster_id, cluster.controller_id, _by_id(cluster.brokers.values()))
        response = await connection.send(DescribeClusterRequest())
        _raise(response.error_code, response.error_message)
        brokers = [BrokerNode(b.broker_id, b.host, b.port, b.rack) for b in response.brokers]
        return ClusterDescription(response.cluster_id, response.controller_id, _by_id(brokers))

    async def describe_log_dirs(self, broker_ids: Collection[int] | None = None) -> list[LogDir]:
        """The log directories of these brokers or all, with the size of every partition. Raises KafkaError."""
        ids = sorted(self._client.cluster.brokers if broker_ids is None else broker_ids)
        request = DescribeLogDirsRequest(topics=None)
        responses = await asyncio.gather(*(self._client.ask(broker_id, request) for broker_id in ids))
        log_dirs = []
        for broker_id, response in zip(ids, responses, strict=True):
            _raise(response.error_code, f"log directories of broker {broker_id}")
            for r in response.results:
                sizes = {
                    TopicPartition(t.name, p.partition_index): p.partition_size for t in r.topics for p in t.partitions
                }
                log_dirs.append(
                    LogDir(broker_id, r.log_dir, code_of(r.error_code), r.total_bytes, r.usable_bytes, sizes)
                )
        return log_dirs

    async def _ask_controller(self, request: Any, results: str, *, lowest: int = 0, fit: Any = None) -> Any:
        """Send to the controller; again if it is not that any more. `results` names the list with the outcomes."""

        async def ask() -> Any:
            connection = await self._client.controller_connection()
            version = connection.version_for(api_key_of(request.__class__), lowest=lowest)
            if fit is not None:
                fit(version)
            timeout_ms = self._request_timeout_ms + self._timeout_ms
            response = await connection.send(request, version, timeout_ms=timeout_ms)
            if any(result.error_code == ErrorCode.NOT_CONTROLLER for result in getattr(response, results)):
                raise KafkaError(ErrorCode.NOT_CONTROLLER, f"broker {connection.address}")
            return response

        return await self._client.retrying(ask, timeout_ms=self._timeout_ms)

    @staticmethod
    def _by_broker(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
        """Settings of one broker are that broker's business; all others anybody can answer (None)."""
        groups: dict[int | None, list[ConfigResource]] = {}
        for resource in resources:
            own = resource.type is not ConfigResourceType.TOPIC and resource.name.isdecimal()
            groups.setdefault(int(resource.name) if own else None, []).append(resource)
        return groups


def raise_first(outcomes: Mapping[Any, Outcome]) -> None:
    """Raise the first error among the outcomes, if there is one."""
    for outcome in outcomes.values():
        if outcome is not None:
            raise outcome


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


def _config_entry(config: Any) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        ConfigSource.DEFAULT if config.is_default else ConfigSource(config.config_source),
        config.read_only,
        config.is_sensitive,
        config.documentation,
    )


def _by_id(brokers: Iterable[BrokerNode]) -> list[BrokerNode]:
    return sorted(brokers, key=lambda broker: broker.node_id)


def _outcome(code: int, message: str | None) -> Outcome:
    return None if code == ErrorCode.NONE else KafkaError(code_of(code), message or "")


def _raise(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(code_of(code), message or "")
