"""The admin client: topics, partitions, configurations, offsets, groups, log directories."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import wraps
from random import Random
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ...protocol.acl_bindings import AclBinding, AclBindingFilter
from ...protocol.apis import ApiKey
from ...protocol.config_resources import ConfigResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ...protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ...protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ...protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ...protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ...protocol.messages.create_topics import (
    CreateTopicsRequest,
)
from ...protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ...protocol.messages.delete_groups import DeleteGroupsRequest
from ...protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ...protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ...protocol.messages.describe_acls import DescribeAclsRequest
from ...protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from ...protocol.messages.describe_cluster import DescribeClusterRequest
from ...protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ...protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ...protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ...protocol.messages.describe_quorum import DescribeQuorumRequest
from ...protocol.messages.describe_quorum import PartitionData as DescribeQuorumPartition
from ...protocol.messages.describe_quorum import TopicData as DescribeQuorumTopic
from ...protocol.messages.describe_transactions import DescribeTransactionsRequest
from ...protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ...protocol.messages.elect_leaders import ElectLeadersRequest
from ...protocol.messages.elect_leaders import TopicPartitions as ElectLeadersTopic
from ...protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ...protocol.messages.init_producer_id import InitProducerIdRequest
from ...protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ...protocol.messages.list_config_resources import ListConfigResourcesRequest
from ...protocol.messages.list_groups import ListGroupsRequest
from ...protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ...protocol.messages.list_transactions import ListTransactionsRequest
from ...protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ...protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ...protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ...protocol.negotiation import LAST_VERSIONS_BY_NAME
from ...protocol.schema import Versions
from ...protocol.special_timestamps import LATEST
from ...protocol.topic_partition import TopicPartition, indexes_by_topic
from ..client import Client
from ..cluster import BrokerNode, TopicInfo
from ..connection import BrokerConnection, ConnectionOptions
from ..errors import code_of
from ..group.find_coordinators import TRANSACTION
from ..group.offset_requests import (
    OffsetAndMetadata,
    commit_request,
    committed_offsets,
    fetch_requests,
)
from ..host import new_random, new_salt
from ..name_list import name_list
from ..offsets import OffsetAndTimestamp, OffsetLookup, by_leader_of
from ..security import PLAINTEXT, Security
from .acls import EVERY_ACL, acl_binding, creation_of, filter_fields
from .brokers import (
    FIRST_DESCRIPTION_WITH_FENCED_BROKERS,
    ClusterDescription,
    LogDirDescription,
    QuorumInfo,
    quorum_info,
    sorted_by_id,
)
from .configs import ConfigChange, ConfigEntry, ConfigResource, config_entry, group_by_broker
from .controller_link import ControllerLink
from .coordinators import Coordinators
from .features import FeatureLevel, FeatureUpgradeType, feature_levels
from .group_descriptions import GroupDescription, describe_on
from .groups import (
    FIRST_LEAVE_OF_MANY,
    FIRST_LIST_WITH_STATES,
    FIRST_LIST_WITH_TYPES,
    Committed,
    GroupListing,
    PartitionLag,
    is_of_another_type,
    offsets_lag,
    outcomes_by_partition,
    share_group_lag,
    with_end,
)
from .outcomes import Outcome, outcome, raise_error, raise_first
from .quotas import QuotaDescription, QuotaEntity
from .reassignments import ElectionType, PartitionReassignment
from .share_groups import (
    ShareGroupDescription,
    ShareOffsets,
    alter_share_offsets_on,
    delete_share_offsets_on,
    describe_share_groups_on,
    share_offsets_on,
)
from .streams_groups import STREAMS, StreamsGroupDescription, describe_streams_groups_on
from .topics import BROKER_DEFAULT, FIRST_VERSION_WITH_DEFAULTS, NewTopic, creatable_topic
from .transactions import NO_OFFSET, OpenTransaction, TransactionDescription, TransactionListing
from .users import DEFAULT_ITERATIONS, SALT_BYTES, ScramCredentialInfo, ScramMechanism, upsertion

P = ParamSpec("P")
R = TypeVar("R")
HIGH_WATERMARK = -1
"""The offset with which `delete_records` deletes all records below the high watermark."""


def _within_time_limit(
    method: Callable[Concatenate[Admin, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Admin, P], Coroutine[Any, Any, R]]:
    """Limit a method that sends several requests, or one without retries, to `default_api_timeout_ms` in total."""

    @wraps(method)
    async def call(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> R:
        async with self._client.time_limit(self._timeout_ms):
            return await method(self, *args, **kwargs)

    return call


class Admin:
    """An asyncio client that administers a cluster, after Kafka's `Admin`.

    A method that acts on several topics, groups or partitions returns an outcome for each of them.

    async with Admin("localhost:9092") as admin:
        await admin.create_topics([NewTopic("flights", num_partitions=4)])
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "barnabas-admin",
        request_timeout_ms: int = 30_000,
        socket_connection_setup_timeout_ms: int | None = None,
        default_api_timeout_ms: int = 60_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
        security: Security = PLAINTEXT,
        rng: Random | None = None,
    ) -> None:
        self._client = Client(
            bootstrap_servers,
            rng=rng or new_random(),
            options=ConnectionOptions(
                client_id, request_timeout_ms, socket_connection_setup_timeout_ms, security=security
            ),
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            allow_auto_topic_creation=False,
        )
        self._request_timeout_ms = request_timeout_ms
        self._timeout_ms = default_api_timeout_ms
        self._controller = ControllerLink(
            self._client, request_timeout_ms=request_timeout_ms, timeout_ms=default_api_timeout_ms
        )
        self._group_coordinators = Coordinators(self._client, timeout_ms=default_api_timeout_ms)
        self._transaction_coordinators = Coordinators(
            self._client, timeout_ms=default_api_timeout_ms, key_type=TRANSACTION
        )

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
        """Create topics; returns when the controller has created them."""
        wanted = list(topics)
        request = CreateTopicsRequest(
            topics=[creatable_topic(topic) for topic in wanted],
            timeout_ms=self._request_timeout_ms,
            validate_only=validate_only,
        )
        numbers = [n for t in wanted if not t.assignments for n in (t.num_partitions, t.replication_factor)]
        lowest = FIRST_VERSION_WITH_DEFAULTS if BROKER_DEFAULT in numbers else int(validate_only)
        response = await self._controller.ask(request, "topics", lowest=lowest)
        return {r.name: outcome(r.error_code, r.error_message) for r in response.topics}

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

        response = await self._controller.ask(request, "responses", fit=fit)
        return {r.name: outcome(r.error_code, r.error_message) for r in response.responses if r.name is not None}

    async def create_partitions(self, totals: Mapping[str, int], *, validate_only: bool = False) -> dict[str, Outcome]:
        """Increase the number of partitions of topics to these totals."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=total, assignments=None) for name, total in totals.items()],
            timeout_ms=self._request_timeout_ms,
            validate_only=validate_only,
        )
        response = await self._controller.ask(request, "results")
        return {r.name: outcome(r.error_code, r.error_message) for r in response.results}

    @_within_time_limit
    async def describe_topics(self, names: Collection[str] | None = None) -> list[TopicInfo]:
        """Describe these topics or all, by name. A topic that does not exist has an `error`. Raises KafkaError."""
        response = await self._client.ask_metadata(None if names is None else name_list(names, "names"))
        wanted = {topic.name for topic in response.topics if topic.name is not None}
        return [self._client.cluster.topics[name] for name in sorted(wanted)]

    async def partitions_of(self, name: str, indexes: Collection[int] | None = None) -> list[TopicPartition]:
        """Return the partitions of a topic, or `indexes` without a check that they exist. Raises KafkaError."""
        (topic,) = await self.describe_topics([name])
        raise_error(topic.error, f"topic {name!r}")
        return [TopicPartition(name, index) for index in indexes or sorted(topic.partitions)]

    # Settings

    @_within_time_limit
    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, documentation: bool = False
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        """Return all settings of these resources, by name. Raises KafkaError for the first resource with an error."""
        described: dict[ConfigResource, list[ConfigEntry]] = {}
        for node, group in group_by_broker(resources).items():
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
                raise_error(result.error_code, result.error_message)
                resource = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
                described[resource] = sorted(map(config_entry, result.configs))
        return described

    @_within_time_limit
    async def list_config_resources(self, resource_type: ConfigResourceType) -> list[str]:
        """Return the names of the resources of a type that have settings of their own (KIP-1142). Raises KafkaError.

        Brokers before Kafka 4.1 list client metrics subscriptions only.
        """
        connection = await self._client.any_connection()
        version = connection.version_for(ApiKey.LIST_CONFIG_RESOURCES)
        types: list[int] = [resource_type] if version >= 1 else []
        response = await connection.send(ListConfigResourcesRequest(resource_types=types), version)
        raise_error(response.error_code, None)
        return sorted(one.resource_name for one in response.config_resources if one.resource_type == resource_type)

    @_within_time_limit
    async def alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[ConfigChange]], *, validate_only: bool = False
    ) -> dict[ConfigResource, Outcome]:
        """Change single keys (KIP-339, brokers since 2.3) and keep the others."""
        outcomes: dict[ConfigResource, Outcome] = {}
        for node, group in group_by_broker(changes).items():
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
                response = await self._controller.ask(request, "responses")
            else:
                response = await self._client.ask(node, request)
            for r in response.responses:
                resource = ConfigResource(ConfigResourceType(r.resource_type), r.resource_name)
                outcomes[resource] = outcome(r.error_code, r.error_message)
        return outcomes

    # Records

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation_level: int = 0
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return offsets by timestamp (ms), or by one of `protocol.special_timestamps`. Raises KafkaError."""
        lookup = OffsetLookup(self._client, isolation_level=isolation_level)
        return await lookup.find(timestamps, timeout_ms=self._timeout_ms)

    @_within_time_limit
    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        """Delete all records below each offset (`HIGH_WATERMARK` for that); returns the new log start offsets."""
        with self._client.watching({tp.topic for tp in before}):
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
                    outcomes[tp] = outcome(p.error_code, f"partition {tp}") or p.low_watermark
        return outcomes

    # Brokers

    @_within_time_limit
    async def describe_cluster(self, *, include_fenced_brokers: bool = False) -> ClusterDescription:
        """Return the cluster id, the controller and the live brokers. Raises KafkaError.

        With `include_fenced_brokers`, KRaft clusters since 4.1 also return brokers that are registered and not live.
        """
        connection = await self._client.any_connection()
        if not connection.supports(ApiKey.DESCRIBE_CLUSTER):
            await self._client.refresh_metadata()
            cluster = self._client.cluster
            return ClusterDescription(cluster.cluster_id, cluster.controller_id, sorted_by_id(cluster.brokers.values()))
        with_fenced = include_fenced_brokers and connection.supports(
            ApiKey.DESCRIBE_CLUSTER, FIRST_DESCRIPTION_WITH_FENCED_BROKERS
        )
        response = await connection.send(DescribeClusterRequest(include_fenced_brokers=with_fenced))
        raise_error(response.error_code, response.error_message)
        brokers = [BrokerNode(b.broker_id, b.host, b.port, b.rack, b.is_fenced) for b in response.brokers]
        return ClusterDescription(response.cluster_id, response.controller_id, sorted_by_id(brokers))

    @_within_time_limit
    async def describe_metadata_quorum(self) -> QuorumInfo:
        """Return the controllers of a KRaft cluster and the lag of each replica of the metadata.

        Raises KafkaError, UnsupportedVersionError if the cluster has no KRaft quorum.
        """
        partition = DescribeQuorumPartition(partition_index=0)
        topic = DescribeQuorumTopic(topic_name="__cluster_metadata", partitions=[partition])
        connection = await self._client.any_connection()
        return quorum_info(await connection.send(DescribeQuorumRequest(topics=[topic])))

    @_within_time_limit
    async def describe_log_dirs(self, broker_ids: Collection[int] | None = None) -> list[LogDirDescription]:
        """Return the log directories of these brokers or all, with the size of every partition. Raises KafkaError."""
        ids = sorted(self._client.cluster.brokers if broker_ids is None else broker_ids)
        request = DescribeLogDirsRequest(topics=None)
        responses = await asyncio.gather(*(self._client.ask(broker_id, request) for broker_id in ids))
        log_dirs = []
        for broker_id, response in zip(ids, responses, strict=True):
            raise_error(response.error_code, f"log directories of broker {broker_id}")
            for r in response.results:
                sizes = {
                    TopicPartition(t.name, p.partition_index): p.partition_size for t in r.topics for p in t.partitions
                }
                log_dirs.append(
                    LogDirDescription(broker_id, r.log_dir, code_of(r.error_code), r.total_bytes, r.usable_bytes, sizes)
                )
        return log_dirs

    @_within_time_limit
    async def alter_replica_log_dirs(
        self, broker_id: int, moves: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, Outcome]:
        """Move replicas of a broker to other log directories of it. They are moved in the background."""
        partitions: dict[str, list[TopicPartition]] = {}
        for topic_partition, path in moves.items():
            partitions.setdefault(path, []).append(topic_partition)
        dirs = [
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                    for topic, indexes in indexes_by_topic(moved).items()
                ],
            )
            for path, moved in partitions.items()
        ]
        response = await self._client.ask(broker_id, AlterReplicaLogDirsRequest(dirs=dirs))
        return {
            TopicPartition(topic.topic_name, one.partition_index): outcome(one.error_code, None)
            for topic in response.results
            for one in topic.partitions
        }

    @_within_time_limit
    async def api_versions(self, broker_id: int) -> Mapping[int, Versions]:
        """Return the versions of each API that a broker supports, by API key. Raises KafkaError."""
        return (await self._client.connection(broker_id)).api_versions

    @_within_time_limit
    async def describe_features(self, broker_id: int | None = None) -> list[FeatureLevel]:
        """Return the finalized levels of all features, and the levels that a broker supports. Raises KafkaError.

        Without a `broker_id` any broker responds.
        """
        connect = self._client.any_connection() if broker_id is None else self._client.connection(broker_id)
        response = await (await connect).describe_versions()
        raise_error(response.error_code, None)
        return feature_levels(response)

    @_within_time_limit
    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade_type: FeatureUpgradeType = FeatureUpgradeType.UPGRADE,
        validate_only: bool = False,
    ) -> None:
        """Change finalized levels; level 0 disables a feature. Raises KafkaError, and changes nothing then."""
        updates = [
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
            for name, level in levels.items()
        ]
        request = UpdateFeaturesRequest(
            timeout_ms=self._request_timeout_ms, feature_updates=updates, validate_only=validate_only
        )
        response = await self._controller.ask(request, "results", lowest=1)
        raise_error(response.error_code, response.error_message)
        raise_first({one.feature: outcome(one.error_code, one.error_message) for one in response.results})

    # Leaders and replicas

    @_within_time_limit
    async def elect_leaders(
        self, election_type: ElectionType, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, Outcome]:
        """Elect the preferred leaders, or any live replicas as leaders, of these partitions or of all.

        An unclean election can lose acknowledged records. ELECTION_NOT_NEEDED is the outcome of a partition that keeps
        its leader; with None such partitions are not reported. Raises KafkaError.
        """
        topics = None
        if partitions is not None:
            topics = [
                ElectLeadersTopic(topic=topic, partitions=indexes)
                for topic, indexes in indexes_by_topic(partitions).items()
            ]
        request = ElectLeadersRequest(
            election_type=election_type, topic_partitions=topics, timeout_ms=self._request_timeout_ms
        )
        lowest = 0 if election_type is ElectionType.PREFERRED else 1
        response = await self._controller.ask(request, "", lowest=lowest)
        raise_error(response.error_code, None)
        return {
            TopicPartition(topic.topic, one.partition_id): outcome(one.error_code, one.error_message)
            for topic in response.replica_election_results
            for one in topic.partition_result
        }

    @_within_time_limit
    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, Outcome]:
        """Begin to move partitions to these replicas, the preferred leader first; None cancels a reassignment.

        Raises KafkaError.
        """
        topics = [
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=None if wanted is None else list(wanted))
                    for index in indexes
                    for wanted in [replicas[TopicPartition(topic, index)]]
                ],
            )
            for topic, indexes in indexes_by_topic(replicas).items()
        ]
        request = AlterPartitionReassignmentsRequest(timeout_ms=self._request_timeout_ms, topics=topics)
        response = await self._controller.ask(request, "")
        raise_error(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, one.partition_index): outcome(one.error_code, one.error_message)
            for topic in response.responses
            for one in topic.partitions
        }

    @_within_time_limit
    async def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """Return the reassignments in progress. Raises KafkaError."""
        request = ListPartitionReassignmentsRequest(timeout_ms=self._request_timeout_ms)
        response = await self._controller.ask(request, "")
        raise_error(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, one.partition_index): PartitionReassignment(
                one.replicas, one.adding_replicas, one.removing_replicas
            )
            for topic in response.topics
            for one in topic.partitions
        }

    # Groups

    @_within_time_limit
    async def list_groups(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """List groups of all brokers, by state (brokers since 2.6) and type (since 3.8). Raises KafkaError."""
        states_filter, types_filter = name_list(states, "states"), name_list(types, "types")

        async def ask(node_id: int) -> list[GroupListing]:
            connection = await self._client.connection(node_id)
            lowest = FIRST_LIST_WITH_TYPES if types else FIRST_LIST_WITH_STATES if states else 0
            version = connection.version_for(ApiKey.LIST_GROUPS, lowest=lowest)
            request = ListGroupsRequest(states_filter=states_filter, types_filter=types_filter)
            response = await connection.send(request, version)
            if response.error_code != ErrorCode.NONE:
                raise KafkaError(code_of(response.error_code), f"groups of broker {node_id}")
            return [GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in response.groups]

        async def attempt() -> list[list[GroupListing]]:
            return await asyncio.gather(*map(ask, self._client.cluster.brokers))

        await self._client.refresh_metadata()
        found = await self._client.retrying(attempt, timeout_ms=self._timeout_ms)
        return sorted(listing for listings in found for listing in listings)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription | KafkaError]:
        """Return the state and members of classic and consumer groups, GROUP_ID_NOT_FOUND for other groups."""
        return await self._group_coordinators.ask(group_ids, describe_on)

    async def describe_groups_of_all_types(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, GroupDescription | StreamsGroupDescription | ShareGroupDescription | KafkaError]:
        """Return the state and members of groups whose types are unknown, GROUP_ID_NOT_FOUND for a group that does not
        exist.

        The groups of coordinators that do not respond within `timeout_ms`, by default `default_api_timeout_ms`, have an
        error.
        """
        # The request for one type reports GROUP_ID_NOT_FOUND for groups of the others.
        found: dict[str, GroupDescription | StreamsGroupDescription | ShareGroupDescription | KafkaError] = {}
        found.update(await self._group_coordinators.ask(group_ids, describe_on, timeout_ms=timeout_ms))
        others = [group_id for group_id, one in found.items() if is_of_another_type(one)]
        if others:
            streams, share = await asyncio.gather(
                self.describe_streams_groups(others), self.describe_share_groups(others)
            )
            for answers in (streams, share):
                found.update({group_id: one for group_id, one in answers.items() if not is_of_another_type(one)})
        return found

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, Outcome]:
        """Delete groups of any type without members, with their committed offsets or share-group offsets."""

        async def ask(connection: BrokerConnection, ids: list[str]) -> dict[str, Outcome]:
            response = await connection.send(DeleteGroupsRequest(groups_names=ids))
            return {
                r.group_id: outcome(r.error_code, r.error_message or f"group {r.group_id!r}") for r in response.results
            }

        return await self._group_coordinators.ask(group_ids, ask)

    async def list_group_offsets(
        self, group_ids: Iterable[str], partitions: Iterable[TopicPartition] | None = None
    ) -> dict[str, Committed | KafkaError]:
        """Return the committed offsets of groups, of these partitions or of all. An unknown group has none."""
        wanted = None if partitions is None else list(partitions)

        async def ask(connection: BrokerConnection, ids: list[str]) -> dict[str, Committed | KafkaError]:
            version = connection.version_for(
                ApiKey.OFFSET_FETCH,
                lowest=2 if wanted is None else 0,
                highest=LAST_VERSIONS_BY_NAME[ApiKey.OFFSET_FETCH],
            )
            answers = [connection.send(request, version) for request in fetch_requests(ids, wanted, version)]
            return committed_offsets(ids, await asyncio.gather(*answers))

        return await self._group_coordinators.ask(group_ids, ask)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> dict[TopicPartition, Outcome]:
        """Set committed offsets of an inactive group; an active group reports UNKNOWN_MEMBER_ID. Raises KafkaError."""
        new = {tp: OffsetAndMetadata(at) if isinstance(at, int) else at for tp, at in offsets.items()}

        async def ask(connection: BrokerConnection, ids: list[str]) -> dict[str, dict[TopicPartition, Outcome]]:
            version = connection.version_for(ApiKey.OFFSET_COMMIT, highest=LAST_VERSIONS_BY_NAME[ApiKey.OFFSET_COMMIT])
            response = await connection.send(commit_request(group_id, new), version)
            return {group_id: outcomes_by_partition(response.topics)}

        return await self._group_coordinators.ask_one(group_id, ask)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Outcome]:
        """Delete offsets of topics without a subscribed member (KIP-496, brokers since 2.4). Raises KafkaError."""
        topics: dict[str, OffsetDeleteRequestTopic] = {}
        for tp in partitions:
            topic = topics.setdefault(tp.topic, OffsetDeleteRequestTopic(name=tp.topic))
            topic.partitions.append(OffsetDeleteRequestPartition(partition_index=tp.partition))
        request = OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))

        async def ask(
            connection: BrokerConnection, ids: list[str]
        ) -> dict[str, dict[TopicPartition, Outcome] | KafkaError]:
            response = await connection.send(request)
            error = outcome(response.error_code, f"group {group_id!r}")
            return {group_id: error or outcomes_by_partition(response.topics)}

        return await self._group_coordinators.ask_one(group_id, ask)

    async def remove_members(
        self, group_id: str, instance_ids: Iterable[str] | None = None, *, reason: str = "removed by an admin client"
    ) -> dict[str, Outcome]:
        """Remove static members (KIP-345), or all members (KIP-571); brokers since 2.4. Raises KafkaError."""
        if instance_ids is not None:
            members = [
                MemberIdentity(group_instance_id=name, reason=reason)
                for name in name_list(instance_ids, "instance_ids")
            ]
        else:
            described = (await self.describe_groups([group_id]))[group_id]
            if isinstance(described, KafkaError):
                raise described
            members = [
                MemberIdentity(member_id=m.member_id, group_instance_id=m.group_instance_id, reason=reason)
                for m in described.members
            ]
        request = LeaveGroupRequest(group_id=group_id, members=members)

        async def ask(connection: BrokerConnection, ids: list[str]) -> dict[str, dict[str, Outcome] | KafkaError]:
            version = connection.version_for(ApiKey.LEAVE_GROUP, lowest=FIRST_LEAVE_OF_MANY)
            response = await connection.send(request, version)
            error = outcome(response.error_code, f"group {group_id!r}")
            return {
                group_id: error
                or {m.group_instance_id or m.member_id: outcome(m.error_code, "member") for m in response.members}
            }

        return await self._group_coordinators.ask_one(group_id, ask)

    @_within_time_limit
    async def group_lag(self, group_ids: Iterable[str] | None = None) -> list[PartitionLag]:
        """Return the lag of groups of all types (all groups by default) by group and partition, with or without
        members.

        The partitions are all committed and all assigned partitions; in a share group, all with a start offset. Raises
        KafkaError, also for a named group that does not exist.
        """
        ids = [g.group_id for g in await self.list_groups()] if group_ids is None else name_list(group_ids, "group_ids")
        described = await self.describe_groups_of_all_types(ids)
        share_ids = [group_id for group_id, one in described.items() if isinstance(one, ShareGroupDescription)]
        committed, start_offsets = await asyncio.gather(
            self.list_group_offsets([group_id for group_id in described if group_id not in share_ids]),
            self.list_share_group_offsets(share_ids),
        )
        lags: list[PartitionLag] = []
        for group_id in sorted(described):
            group = described[group_id]
            if isinstance(group, ShareGroupDescription):
                lags += share_group_lag(group, start_offsets[group_id])
                continue
            offsets = committed[group_id]
            if isinstance(group, KafkaError) and group_ids is not None and not offsets:
                raise group
            lags += offsets_lag(group_id, group, offsets)
        ends = await self._ends({lag.partition for lag in lags})
        topics = self._client.cluster.topics
        return [
            with_end(lag, ends.get(lag.partition))
            for lag in lags
            # The tasks of a subtopology exceed the partitions of its smaller source topics.
            if lag.type != STREAMS or lag.committed is not None or _exists(topics, lag.partition)
        ]

    async def _ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log end offset of each partition with a leader."""
        await self._client.ask_metadata({tp.topic for tp in partitions})
        there = [tp for tp in partitions if self._client.cluster.leader(tp) is not None]
        found = await OffsetLookup(self._client).find(dict.fromkeys(there, LATEST), timeout_ms=self._timeout_ms)
        return {tp: at.offset for tp, at in found.items()}

    # Share groups (KIP-932, brokers since 4.1)

    async def describe_share_groups(self, group_ids: Iterable[str]) -> dict[str, ShareGroupDescription | KafkaError]:
        """Return the state and members of share groups, GROUP_ID_NOT_FOUND for a group that is not a share group."""
        return await self._group_coordinators.ask(group_ids, describe_share_groups_on)

    async def list_share_group_offsets(
        self, group_ids: Iterable[str], partitions: Iterable[TopicPartition] | None = None
    ) -> dict[str, ShareOffsets | KafkaError]:
        """Return start offsets and lag of share groups, for these partitions or for all that the group has read."""
        wanted = None if partitions is None else list(partitions)

        async def ask(connection: BrokerConnection, ids: list[str]) -> dict[str, ShareOffsets | KafkaError]:
            return await share_offsets_on(connection, ids, wanted)

        return await self._group_coordinators.ask(group_ids, ask)

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Outcome]:
        """Set the start offsets of an empty share group; a group that does not exist is created. Raises KafkaError,
        NON_EMPTY_GROUP for a group with members.
        """

        async def ask(
            connection: BrokerConnection, ids: list[str]
        ) -> dict[str, dict[TopicPartition, Outcome] | KafkaError]:
            return {group_id: await alter_share_offsets_on(connection, group_id, offsets)}

        return await self._group_coordinators.ask_one(group_id, ask)

    async def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> dict[str, Outcome]:
        """Delete the start offsets of topics of an empty share group. Raises KafkaError, NON_EMPTY_GROUP for a group
        with members.
        """
        names = name_list(topics, "topics")

        async def ask(connection: BrokerConnection, ids: list[str]) -> dict[str, dict[str, Outcome] | KafkaError]:
            return {group_id: await delete_share_offsets_on(connection, group_id, names)}

        return await self._group_coordinators.ask_one(group_id, ask)

    async def delete_share_groups(self, group_ids: Iterable[str]) -> dict[str, Outcome]:
        """Delete share groups without members; a group of another type reports GROUP_ID_NOT_FOUND."""
        return await self._delete_described(await self.describe_share_groups(group_ids))

    # Streams groups (KIP-1071, brokers since 4.1)

    async def describe_streams_groups(
        self, group_ids: Iterable[str], *, include_topology_description: bool = False
    ) -> dict[str, StreamsGroupDescription | KafkaError]:
        """Return state, topology and members of streams groups, GROUP_ID_NOT_FOUND for a group of another type.

        With `include_topology_description`, the result also has the description of the topology that a plug-in of the
        broker has stored (KIP-1331); before Kafka 4.4 each group then has the error UNSUPPORTED_VERSION.
        """

        async def ask(connection: BrokerConnection, ids: list[str]) -> dict[str, StreamsGroupDescription | KafkaError]:
            return await describe_streams_groups_on(
                connection, ids, include_topology_description=include_topology_description
            )

        return await self._group_coordinators.ask(group_ids, ask)

    async def list_streams_group_offsets(
        self, group_ids: Iterable[str], partitions: Iterable[TopicPartition] | None = None
    ) -> dict[str, Committed | KafkaError]:
        """Return the committed offsets of streams groups, of these partitions or of all, with OffsetFetch.

        A streams group commits offsets of source topics and repartition topics. An unknown group has no offsets.
        """
        return await self.list_group_offsets(group_ids, partitions)

    async def alter_streams_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> dict[TopicPartition, Outcome]:
        """Set committed offsets of a streams group without members, with OffsetCommit; a group with members reports
        UNKNOWN_MEMBER_ID. Repartition and changelog topics keep their records. Raises KafkaError.
        """
        return await self.alter_group_offsets(group_id, offsets)

    async def delete_streams_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Outcome]:
        """Delete committed offsets of a streams group, with OffsetDelete; the topics of a group with members report
        GROUP_SUBSCRIBED_TO_TOPIC. Raises KafkaError.
        """
        return await self.delete_group_offsets(group_id, partitions)

    async def delete_streams_groups(self, group_ids: Iterable[str]) -> dict[str, Outcome]:
        """Delete streams groups without members, with their committed offsets and their topology.

        Repartition and changelog topics are kept. A group of another type reports GROUP_ID_NOT_FOUND.
        """
        return await self._delete_described(await self.describe_streams_groups(group_ids))

    async def _delete_described(self, described: Mapping[str, object]) -> dict[str, Outcome]:
        """Delete the groups that have a description; the others report their errors."""
        errors = {group_id: one for group_id, one in described.items() if isinstance(one, KafkaError)}
        deleted = await self.delete_groups([group_id for group_id in described if group_id not in errors])
        return {group_id: errors[group_id] if group_id in errors else deleted[group_id] for group_id in described}

    # Quotas

    @_within_time_limit
    async def describe_quotas(self) -> list[QuotaDescription]:
        """Return all quotas. Raises KafkaError."""
        response = await self._client.ask(None, DescribeClientQuotasRequest(components=[], strict=False))
        raise_error(response.error_code, response.error_message)
        return [
            QuotaDescription(
                {e.entity_type: e.entity_name for e in entry.entity}, {v.key: v.value for v in entry.values}
            )
            for entry in response.entries or ()
        ]

    async def alter_quotas(self, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
        """Set quotas of one entity; None removes a quota. Raises KafkaError."""
        entry = EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
            ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
        )
        response = await self._controller.ask(AlterClientQuotasRequest(entries=[entry]), "entries")
        raise_first({index: outcome(e.error_code, e.error_message) for index, e in enumerate(response.entries)})

    # ACLs

    @_within_time_limit
    async def describe_acls(self, wanted: AclBindingFilter = EVERY_ACL) -> list[AclBinding]:
        """Return the ACLs that match a filter. Raises KafkaError, SECURITY_DISABLED without an authorizer."""
        response = await self._client.ask(None, DescribeAclsRequest(**filter_fields(wanted)))
        raise_error(response.error_code, response.error_message)
        return sorted(
            acl_binding(r.resource_type, r.resource_name, r.pattern_type, a) for r in response.resources for a in r.acls
        )

    async def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Create ACLs and keep existing ones. Raises KafkaError for the first ACL with an error."""
        response = await self._controller.ask(creation_of(bindings), "results")
        raise_first({index: outcome(r.error_code, r.error_message) for index, r in enumerate(response.results)})

    async def delete_acls(self, wanted: AclBindingFilter) -> list[AclBinding]:
        """Delete the ACLs that match a filter, and return them. Raises KafkaError."""
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**filter_fields(wanted))])
        (result,) = (await self._controller.ask(request, "filter_results")).filter_results
        raise_error(result.error_code, result.error_message)
        for rule in result.matching_acls:
            raise_error(rule.error_code, rule.error_message)
        return sorted(acl_binding(r.resource_type, r.resource_name, r.pattern_type, r) for r in result.matching_acls)

    # Users

    @_within_time_limit
    async def describe_user_scram_credentials(
        self, users: Collection[str] | None = None
    ) -> dict[str, list[ScramCredentialInfo]]:
        """Return the SCRAM credentials of these users or of all. Raises KafkaError."""
        names = None if users is None else [UserName(name=user) for user in users]
        response = await self._client.ask(None, DescribeUserScramCredentialsRequest(users=names))
        raise_error(response.error_code, response.error_message)
        raise_first({one.user: outcome(one.error_code, one.error_message) for one in response.results})
        return {
            one.user: [
                ScramCredentialInfo(ScramMechanism(info.mechanism), info.iterations) for info in one.credential_infos
            ]
            for one in sorted(response.results, key=lambda one: one.user)
        }

    @_within_time_limit
    async def upsert_user_scram_credential(
        self,
        user: str,
        password: str,
        mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512,
        *,
        iterations: int = DEFAULT_ITERATIONS,
    ) -> None:
        """Add a user, or set a new password. The password is not sent, only its salted hash. Raises KafkaError."""
        entry = upsertion(user, password, mechanism, iterations, new_salt(SALT_BYTES))
        await self._alter_user_scram_credentials(upsertions=[entry])

    @_within_time_limit
    async def delete_user_scram_credential(self, user: str, mechanism: ScramMechanism) -> None:
        """Delete one credential of a user. Raises KafkaError, RESOURCE_NOT_FOUND if the user does not have it."""
        await self._alter_user_scram_credentials(deletions=[ScramCredentialDeletion(name=user, mechanism=mechanism)])

    async def _alter_user_scram_credentials(
        self,
        *,
        upsertions: Sequence[ScramCredentialUpsertion] = (),
        deletions: Sequence[ScramCredentialDeletion] = (),
    ) -> None:
        request = AlterUserScramCredentialsRequest(deletions=list(deletions), upsertions=list(upsertions))
        response = await self._controller.ask(request, "results")
        raise_first({one.user: outcome(one.error_code, one.error_message) for one in response.results})

    # Transactions

    async def list_transactions(
        self, *, states: Collection[str] = (), producer_ids: Collection[int] = ()
    ) -> list[TransactionListing]:
        """List the transactional ids of all brokers, by name. Raises KafkaError."""
        request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))

        async def ask(broker_id: int) -> list[TransactionListing]:
            response = await self._client.ask(broker_id, request)
            raise_error(response.error_code, f"transactions of broker {broker_id}")
            return [
                TransactionListing(one.transactional_id, one.producer_id, one.transaction_state, broker_id)
                for one in response.transaction_states
            ]

        async def ask_all() -> list[list[TransactionListing]]:
            return await asyncio.gather(*(ask(broker_id) for broker_id in sorted(self._client.cluster.brokers)))

        found = await self._client.retrying(ask_all, timeout_ms=self._timeout_ms)
        return sorted(one for listed in found for one in listed)

    async def describe_transactions(self, names: Iterable[str]) -> dict[str, TransactionDescription | KafkaError]:
        """Describe transactional ids; an id has its description or its error."""

        async def ask(connection: BrokerConnection, some: list[str]) -> dict[str, TransactionDescription | KafkaError]:
            response = await connection.send(DescribeTransactionsRequest(transactional_ids=some))
            answers: dict[str, TransactionDescription | KafkaError] = {}
            for one in response.transaction_states:
                if one.error_code != ErrorCode.NONE:
                    text = f"transactional id {one.transactional_id!r}"
                    answers[one.transactional_id] = KafkaError(code_of(one.error_code), text)
                    continue
                answers[one.transactional_id] = TransactionDescription(
                    one.transactional_id,
                    one.transaction_state,
                    one.producer_id,
                    one.producer_epoch,
                    one.transaction_timeout_ms,
                    one.transaction_start_time_ms,
                    [TopicPartition(topic.topic, index) for topic in one.topics for index in topic.partitions],
                )
            return answers

        return await self._transaction_coordinators.ask(names, ask)

    @_within_time_limit
    async def open_transactions(self, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
        """Return the open transactions that the leaders of these partitions report. Raises KafkaError."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            by_leader.setdefault(await self._leader_of(partition), []).append(partition)

        async def ask(leader: int, led: list[TopicPartition]) -> list[OpenTransaction]:
            wanted = [
                TopicRequest(name=name, partition_indexes=indexes) for name, indexes in indexes_by_topic(led).items()
            ]
            response = await self._client.ask(leader, DescribeProducersRequest(topics=wanted))
            found = []
            for topic in response.topics:
                for part in topic.partitions:
                    raise_error(part.error_code, f"{topic.name}-{part.partition_index}")
                    place = TopicPartition(topic.name, part.partition_index)
                    found += [
                        OpenTransaction(
                            place,
                            one.producer_id,
                            one.producer_epoch,
                            one.coordinator_epoch,
                            one.current_txn_start_offset,
                            one.last_timestamp,
                        )
                        for one in part.active_producers
                        if one.current_txn_start_offset != NO_OFFSET
                    ]
            return found

        answers = await asyncio.gather(*(ask(leader, topics) for leader, topics in by_leader.items()))
        return sorted(one for found in answers for one in found)

    @_within_time_limit
    async def abort_transaction(self, transaction: OpenTransaction) -> None:
        """Abort the open transaction of a producer on one partition with a marker from this client.

        Only for hanging transactions: the coordinator does not learn of the marker. Raises KafkaError.
        """
        partition = transaction.partition
        marker = WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            coordinator_epoch=max(transaction.coordinator_epoch, 0),
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        response = await self._client.ask(await self._leader_of(partition), request)
        for one in response.markers:
            for topic in one.topics:
                for part in topic.partitions:
                    raise_error(part.error_code, f"{topic.name}-{part.partition_index}")

    async def fence_producers(self, names: Iterable[str]) -> dict[str, Outcome]:
        """Fence the producers of transactional ids: the coordinator aborts open transactions and increments the epoch.

        It waits until the abort is complete. The producer's next request fails with PRODUCER_FENCED. A transactional id
        that does not exist is created, as by Kafka's Admin.
        """

        async def ask(connection: BrokerConnection, some: list[str]) -> dict[str, Outcome]:
            answers: dict[str, Outcome] = {}
            for name in some:
                # The timeout applies to later transactions of the id, whose producer sets its own.
                request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=self._request_timeout_ms)
                response = await connection.send(request)
                answers[name] = outcome(response.error_code, f"transactional id {name!r}")
            return answers

        return await self._transaction_coordinators.ask(names, ask)

    async def find_hanging(
        self, partitions: Iterable[TopicPartition], *, older_than_ms: int, now_ms: int
    ) -> list[OpenTransaction]:
        """Return transactions that have been open on a partition for `older_than_ms` and that no coordinator has.

        Raises KafkaError, also if a coordinator does not describe its transactions: without its answer a live
        transaction would look like a hanging one, and the caller would abort it.
        """
        candidates = [
            one for one in await self.open_transactions(partitions) if now_ms - one.last_timestamp_ms >= older_than_ms
        ]
        if not candidates:
            return []
        listed = await self.list_transactions(producer_ids={one.producer_id for one in candidates})
        described = await self.describe_transactions([one.transactional_id for one in listed])
        known: set[tuple[int, TopicPartition]] = set()
        for one in described.values():
            if not isinstance(one, KafkaError):
                known.update((one.producer_id, partition) for partition in one.partitions)
            elif one.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise one
        return [one for one in candidates if (one.producer_id, one.partition) not in known]

    async def _leader_of(self, partition: TopicPartition) -> int:
        """Return the id of the leader. Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE."""
        await self._client.topic(partition.topic, self._timeout_ms)
        leader = self._client.cluster.leader(partition)
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        return leader


def _exists(topics: Mapping[str, TopicInfo], partition: TopicPartition) -> bool:
    return partition.topic in topics and partition.partition in topics[partition.topic].partitions
