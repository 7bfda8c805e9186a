"""A request of every API that makes or removes an object, sent twice as by a client that lost the first response.

`REPETITIONS` has the errors of both responses as Apache Kafka 4.4.0 gives them, and the reason. Each row has objects of
its own, named for the row.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from tests.compat.answers import plain
from tests.compat.guarded_brokers import ROOT, GuardedBroker, guarded_barnabas, guarded_kafka
from tests.server.data_plane import batch, produce
from tests.server_process import wait_until

from barnabas.common.uuid_text import uuid_text
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import add_partitions_to_txn as add
from barnabas.protocol.messages import alter_client_quotas as quotas
from barnabas.protocol.messages import alter_configs as alter
from barnabas.protocol.messages import alter_partition_reassignments as reassign
from barnabas.protocol.messages import alter_replica_log_dirs as move
from barnabas.protocol.messages import alter_share_group_offsets as share_offsets
from barnabas.protocol.messages import alter_user_scram_credentials as scram
from barnabas.protocol.messages import create_acls, delete_acls, share_acknowledge, share_fetch
from barnabas.protocol.messages import create_delegation_token as token
from barnabas.protocol.messages import create_partitions as grow
from barnabas.protocol.messages import delete_records as purge
from barnabas.protocol.messages import delete_share_group_state as delete_state
from barnabas.protocol.messages import elect_leaders as elect
from barnabas.protocol.messages import incremental_alter_configs as incremental
from barnabas.protocol.messages import initialize_share_group_state as initialize
from barnabas.protocol.messages import join_group as join
from barnabas.protocol.messages import leave_group as leave
from barnabas.protocol.messages import offset_commit as commit
from barnabas.protocol.messages import offset_delete as forget
from barnabas.protocol.messages import streams_group_heartbeat as streams
from barnabas.protocol.messages import sync_group as sync
from barnabas.protocol.messages import txn_offset_commit as txn_commit
from barnabas.protocol.messages import update_features as features
from barnabas.protocol.messages import write_share_group_state as write_state
from barnabas.protocol.messages import write_txn_markers as markers
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
NODE = 1
TIMEOUT_MS = 20_000
DEADLINE_S = 60
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
RETRIED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""Errors of a moment, after which the same request is sent again."""
UNTOLD = {"throttle_time_ms", "error_message", "topic_id", "host", "port", "acquisition_lock_timeout_ms"}
UNTOLD |= {
    "hmac",
    "token_id",
    "issue_timestamp_ms",
    "expiry_timestamp_ms",
    "max_timestamp_ms",
    "producer_id",
    "configs",
}
UNTOLD |= {
    "log_append_time_ms",
    "heartbeat_interval_ms",
    "member_id",
    "leader",
    "records",
    "coordinator",
    "leader_epoch",
}
"""Values that each broker chooses, and texts for people."""


class World:
    """One broker with rules, tokens and two log directories, and what a row requires of it."""

    def __init__(self, broker: GuardedBroker, log_dirs: tuple[Path, Path]) -> None:
        self.broker = broker
        self.log_dirs = log_dirs

    def call(self, key: ApiKey, version: int, request: Any, *, user: str = ROOT) -> Any:
        """Return the response, after errors of a moment that of the same request sent again."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            response = self.broker.hears(user, key, version, request)
            if not RETRIED & set(errors_of(response)):
                return response
            assert time.monotonic() < deadline, response
            time.sleep(0.02)

    def done(self, key: ApiKey, version: int, request: Any) -> Any:
        """`call` of a request that must succeed."""
        response = self.call(key, version, request)
        assert not errors_of(response), response
        return response

    def lose_connection(self) -> None:
        """The client's next request uses another connection."""
        self.broker.forget(ROOT)

    def topic(self, name: str, partitions: int = 1) -> UUID:
        """Create a topic and wait until the broker leads it; returns its id."""
        self.done(ApiKey.CREATE_TOPICS, 7, creation(name, partitions))
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        found: list[Any] = []

        def is_led() -> bool:
            found[:] = self.broker.hears(ROOT, ApiKey.METADATA, 12, request).topics
            return not errors_of(found[0]) and len(found[0].partitions) == partitions

        wait_until(is_led, timeout_s=DEADLINE_S, what=f"a leader of {name}")
        topic_id: UUID = found[0].topic_id
        return topic_id

    def records(self, name: str, count: int = 3) -> UUID:
        """Create a topic with records."""
        topic_id = self.topic(name)
        self.done(ApiKey.PRODUCE, 9, produce(batch(*[b"v"] * count), topic=name, acks=-1))
        return topic_id

    def offsets(self, name: str) -> UUID:
        """Create a topic and commit an offset of it by a group of this name without members."""
        topic_id = self.topic(name)
        self.done(ApiKey.OFFSET_COMMIT, 9, commitment(name))
        return topic_id

    def joined(self, name: str, instance: str | None = None) -> tuple[str, int]:
        """A classic group with one member that waits for its assignment; returns the member's id and generation."""
        request = joining(name, instance=instance)
        response = self.call(ApiKey.JOIN_GROUP, 9, request)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = response.member_id
            response = self.call(ApiKey.JOIN_GROUP, 9, request)
        assert not response.error_code, response
        return response.member_id, response.generation_id

    def member(self, name: str, instance: str | None = None) -> tuple[str, int]:
        """`joined` with its assignment."""
        member_id, generation = self.joined(name, instance)
        self.done(ApiKey.SYNC_GROUP, 5, syncing(name, member_id, generation, instance))
        return member_id, generation

    def producer(self, name: str) -> tuple[int, int]:
        """A transactional producer; returns its id and epoch."""
        response = self.done(ApiKey.INIT_PRODUCER_ID, 5, initialization(name))
        return response.producer_id, response.producer_epoch

    def transaction(self, name: str) -> tuple[int, int]:
        """A producer with an open transaction, which has one record in the topic of the same name."""
        self.topic(name)
        who = self.producer(name)
        self.done(ApiKey.ADD_PARTITIONS_TO_TXN, 3, adding(name, *who))
        self.done(ApiKey.PRODUCE, 11, transactional(name, *who))
        return who

    def token(self) -> Any:
        """Create a delegation token and wait until the broker has it."""
        made = self.done(ApiKey.CREATE_DELEGATION_TOKEN, 3, token_creation())
        request = DescribeDelegationTokenRequest(owners=None)

        def is_known() -> bool:
            described = self.done(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, request)
            return any(one.token_id == made.token_id for one in described.tokens)

        wait_until(is_known, timeout_s=DEADLINE_S, what="the token")
        return made

    def share_state(self, group: str, topic_id: UUID, index: int) -> None:
        """Initialize the state of a share-partition, as soon as the share coordinator has the topic in its metadata."""
        request = initializing(group, topic_id, index)
        wait_until(
            lambda: not errors_of(self.call(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, request)),
            timeout_s=DEADLINE_S,
            interval_s=0.05,
            what=f"share state of {group}",
        )

    def share_session(self, name: str) -> tuple[UUID, str]:
        """A member of a share group with a session in which it has acquired three records; its id, and the topic's."""
        group = config(ConfigResourceType.GROUP, name, ("share.auto.offset.reset", 0, "earliest"))
        self.done(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, group)
        topic_id, member_id = self.records(name), share_member(name)
        epoch = 0

        def is_assigned() -> bool:
            nonlocal epoch
            response = self.done(ApiKey.SHARE_GROUP_HEARTBEAT, 1, share_heartbeat(name, epoch, topics=[name]))
            epoch = response.member_epoch
            return bool(response.assignment and response.assignment.topic_partitions)

        wait_until(is_assigned, timeout_s=DEADLINE_S, interval_s=0.05, what="an assignment of the share group")
        session = 0

        def has_acquired() -> bool:
            nonlocal session
            response = self.done(ApiKey.SHARE_FETCH, 1, share_fetching(name, topic_id, session))
            session += 1
            partitions = [part for topic in response.responses for part in topic.partitions]
            return any(part.acquired_records for part in partitions)

        wait_until(has_acquired, timeout_s=DEADLINE_S, interval_s=0.05, what="acquired records")
        self.session = session
        return topic_id, member_id


def errors_of(value: Any) -> list[ErrorCode]:
    """Return all errors in a response, in its order."""
    return [ErrorCode(code) for code in _codes(plain(value, ())) if code]


def _codes(value: object) -> Iterator[int]:
    if isinstance(value, dict):
        for name, part in value.items():
            if name.endswith("error_code"):
                yield part
            else:
                yield from _codes(part)
    elif isinstance(value, list):
        for part in value:
            yield from _codes(part)


# -- requests ----------------------------------------------------------------------------------------------------------


def creation(name: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)


def commitment(group: str, generation: int = -1, member_id: str = "") -> commit.OffsetCommitRequest:
    partition = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [commit.OffsetCommitRequestTopic(name=group, partitions=[partition])]
    return commit.OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, topics=topics
    )


def joining(group: str, member_id: str = "", instance: str | None = None) -> join.JoinGroupRequest:
    return join.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[join.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )


def syncing(group: str, member_id: str, generation: int, instance: str | None = None) -> sync.SyncGroupRequest:
    return sync.SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[sync.SyncGroupRequestAssignment(member_id=member_id, assignment=b"assigned")],
    )


def leaving(group: str, member_id: str = "", instance: str | None = None) -> leave.LeaveGroupRequest:
    return leave.LeaveGroupRequest(
        group_id=group, members=[leave.MemberIdentity(member_id=member_id, group_instance_id=instance)]
    )


def consumer_heartbeat(group: str, epoch: int, instance: str | None = None) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=epoch, instance_id=instance)
    if not epoch:
        request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = 60_000, ["t"], []
    return request


def share_member(group: str) -> str:
    """The id of a group's member, which is a UUID."""
    return str(UUID(bytes=hashlib.md5(group.encode()).digest()))


def share_heartbeat(group: str, epoch: int, topics: list[str] | None = None) -> ShareGroupHeartbeatRequest:
    request = ShareGroupHeartbeatRequest(group_id=group, member_id=share_member(group), member_epoch=epoch)
    if not epoch:
        request.subscribed_topic_names = topics or ["t"]
    return request


def streams_heartbeat(group: str, epoch: int, instance: str | None = None) -> streams.StreamsGroupHeartbeatRequest:
    request = streams.StreamsGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=epoch, instance_id=instance
    )
    if not epoch:
        subtopology = streams.Subtopology(subtopology_id="0", source_topics=["t"])
        request.topology = streams.Topology(epoch=0, subtopologies=[subtopology])
        request.process_id, request.rebalance_timeout_ms = "p", 60_000
        request.active_tasks, request.standby_tasks, request.warmup_tasks, request.client_tags = [], [], [], []
    return request


def share_fetching(group: str, topic_id: UUID, epoch: int) -> share_fetch.ShareFetchRequest:
    topics = (
        []
        if epoch
        else [share_fetch.FetchTopic(topic_id=topic_id, partitions=[share_fetch.FetchPartition(partition_index=0)])]
    )
    return share_fetch.ShareFetchRequest(
        group_id=group,
        member_id=share_member(group),
        share_session_epoch=epoch,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=100,
        batch_size=100,
        topics=topics,
    )


def acknowledging(group: str, topic_id: UUID, epoch: int) -> share_acknowledge.ShareAcknowledgeRequest:
    accepted = share_acknowledge.AcknowledgementBatch(first_offset=0, last_offset=2, acknowledge_types=[1])
    partition = share_acknowledge.AcknowledgePartition(partition_index=0, acknowledgement_batches=[accepted])
    return share_acknowledge.ShareAcknowledgeRequest(
        group_id=group,
        member_id=share_member(group),
        share_session_epoch=epoch,
        topics=[share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=[partition])],
    )


def fetch_and_acknowledge(group: str, topic_id: UUID, epoch: int) -> share_fetch.ShareFetchRequest:
    request = share_fetching(group, topic_id, epoch)
    accepted = share_fetch.AcknowledgementBatch(first_offset=0, last_offset=2, acknowledge_types=[1])
    partition = share_fetch.FetchPartition(partition_index=0, acknowledgement_batches=[accepted])
    request.topics = [share_fetch.FetchTopic(topic_id=topic_id, partitions=[partition])]
    return request


def config(kind: ConfigResourceType, name: str, *changes: tuple[str, int, str | None]) -> Any:
    """IncrementalAlterConfigs; operations are 0 SET, 1 DELETE, 2 APPEND and 3 SUBTRACT."""
    configs = [
        incremental.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    return incremental.IncrementalAlterConfigsRequest(
        resources=[incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)]
    )


def token_creation() -> token.CreateDelegationTokenRequest:
    return token.CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=-1
    )


def quota(user: str, *, remove: bool) -> quotas.AlterClientQuotasRequest:
    operation = quotas.OpData(key="consumer_byte_rate", value=1e6, remove=remove)
    return quotas.AlterClientQuotasRequest(
        entries=[quotas.EntryData(entity=[quotas.EntityData(entity_type="user", entity_name=user)], ops=[operation])]
    )


def credential(user: str) -> scram.AlterUserScramCredentialsRequest:
    upsertion = scram.ScramCredentialUpsertion(
        name=user, mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
    )
    return scram.AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])


def without_credential(user: str) -> scram.AlterUserScramCredentialsRequest:
    return scram.AlterUserScramCredentialsRequest(
        deletions=[scram.ScramCredentialDeletion(name=user, mechanism=1)], upsertions=[]
    )


def acl(name: str) -> create_acls.CreateAclsRequest:
    made = create_acls.AclCreation(
        resource_type=AclResourceType.TOPIC,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:anna",
        host="*",
        operation=AclOperation.READ,
        permission_type=AclPermissionType.ALLOW,
    )
    return create_acls.CreateAclsRequest(creations=[made])


def without_acl(name: str) -> delete_acls.DeleteAclsRequest:
    filtered = delete_acls.DeleteAclsFilter(
        resource_type_filter=AclResourceType.TOPIC,
        resource_name_filter=name,
        pattern_type_filter=3,
        principal_filter="User:anna",
        host_filter="*",
        operation=AclOperation.READ,
        permission_type=AclPermissionType.ALLOW,
    )
    return delete_acls.DeleteAclsRequest(filters=[filtered])


def initialization(name: str) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)


def adding(name: str, producer_id: int, epoch: int) -> add.AddPartitionsToTxnRequest:
    return add.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[add.AddPartitionsToTxnTopic(name=name, partitions=[0])],
    )


def transactional(name: str, producer_id: int, epoch: int) -> Any:
    now = int(time.time() * 1000)
    who: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
    records = batch(b"v", timestamp=now, is_transactional=True, **who)
    return produce(records, topic=name, acks=-1, transactional_id=name)


def adding_offsets(name: str, producer_id: int, epoch: int) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id=name)


def ending(name: str, producer_id: int, epoch: int, *, is_commit: bool) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=is_commit)


def committing_in_transaction(name: str, producer_id: int, epoch: int) -> txn_commit.TxnOffsetCommitRequest:
    partition = txn_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = txn_commit.TxnOffsetCommitRequestTopic(name=name, partitions=[partition])
    return txn_commit.TxnOffsetCommitRequest(
        transactional_id=name, group_id=name, producer_id=producer_id, producer_epoch=epoch, topics=[topic]
    )


def marking(name: str, producer_id: int, epoch: int) -> markers.WriteTxnMarkersRequest:
    topic = markers.WritableTxnMarkerTopic(name=name, partition_indexes=[0])
    marker = markers.WritableTxnMarker(
        producer_id=producer_id, producer_epoch=epoch, transaction_result=True, topics=[topic], coordinator_epoch=0
    )
    return markers.WriteTxnMarkersRequest(markers=[marker])


def reassigning(name: str, replicas: list[int] | None) -> reassign.AlterPartitionReassignmentsRequest:
    topic = reassign.ReassignableTopic(
        name=name, partitions=[reassign.ReassignablePartition(partition_index=0, replicas=replicas)]
    )
    return reassign.AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[topic])


def feature(name: str, level: int, upgrade_type: int) -> features.UpdateFeaturesRequest:
    update = features.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
    return features.UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update])


def initializing(group: str, topic_id: UUID, index: int = 0) -> initialize.InitializeShareGroupStateRequest:
    partition = initialize.PartitionData(partition=index, state_epoch=1, start_offset=0)
    return initialize.InitializeShareGroupStateRequest(
        group_id=group, topics=[initialize.InitializeStateData(topic_id=topic_id, partitions=[partition])]
    )


def writing(group: str, topic_id: UUID) -> write_state.WriteShareGroupStateRequest:
    acknowledged = write_state.StateBatch(first_offset=0, last_offset=2, delivery_state=2, delivery_count=1)
    partition = write_state.PartitionData(
        partition=0, state_epoch=1, leader_epoch=0, start_offset=0, state_batches=[acknowledged]
    )
    return write_state.WriteShareGroupStateRequest(
        group_id=group, topics=[write_state.WriteStateData(topic_id=topic_id, partitions=[partition])]
    )


def deleting_state(group: str, topic_id: UUID) -> delete_state.DeleteShareGroupStateRequest:
    partition = delete_state.PartitionData(partition=0)
    return delete_state.DeleteShareGroupStateRequest(
        group_id=group, topics=[delete_state.DeleteStateData(topic_id=topic_id, partitions=[partition])]
    )


# -- the rows ----------------------------------------------------------------------------------------------------------


class Repetition(NamedTuple):
    """A request, the errors of its first and second response, and the rule behind the second."""

    name: str
    key: ApiKey
    version: int
    prepare: Callable[[World, str], Any]
    """Makes what the request requires, and returns the request."""
    second: tuple[ErrorCode, ...]
    rule: str
    first: tuple[ErrorCode, ...] = ()
    same_connection: bool = False
    """Whether the client repeats the request on the connection of the first one."""
    kafka: tuple[ErrorCode, ...] | None = None
    """The errors of Kafka's second response, if Barnabas differs on purpose."""
    together: tuple[ErrorCode, ...] | None = None
    """The errors of the second response if both requests arrive before the first response, if they differ."""


def _before(made: Callable[[World, str], Any], request: Callable[..., Any]) -> Callable[[World, str], Any]:
    """A request by the name of the row, after `made`."""

    def prepare(world: World, name: str) -> Any:
        made(world, name)
        return request(name)

    return prepare


def _by_id(world: World, name: str) -> Any:
    topic = DeleteTopicState(name=None, topic_id=world.topic(name))
    return DeleteTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)


def _leave_by_id(world: World, name: str) -> Any:
    return leaving(name, world.member(name)[0])


def _leave_before_version_3(world: World, name: str) -> Any:
    return leave.LeaveGroupRequest(group_id=name, member_id=world.member(name)[0])


def _leave_by_instance(world: World, name: str) -> Any:
    world.member(name, "i")
    return leaving(name, instance="i")


def _heartbeats(key: ApiKey, heartbeat: Callable[..., Any], epoch: int, *fields: Any) -> Callable[[World, str], Any]:
    """A heartbeat with an epoch of a member that has joined."""

    def prepare(world: World, name: str) -> Any:
        if epoch:
            world.done(key, 1, heartbeat(name, 0, *fields))
        return heartbeat(name, epoch, *fields)

    return prepare


def _token_request(request: Callable[[bytes], Any]) -> Callable[[World, str], Any]:
    return lambda world, name: request(world.token().hmac)


def _replica_move(world: World, name: str) -> Any:
    world.topic(name)
    described = world.done(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None)).results
    (held_by,) = (one.log_dir for one in described if any(topic.name == name for topic in one.topics))
    (other,) = (str(path) for path in world.log_dirs if str(path) != held_by)
    return move.AlterReplicaLogDirsRequest(
        dirs=[move.AlterReplicaLogDir(path=other, topics=[move.AlterReplicaLogDirTopic(name=name, partitions=[0])])]
    )


def _deletion(name: str) -> Any:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TIMEOUT_MS)


def _offset_deletion(name: str) -> Any:
    topic = forget.OffsetDeleteRequestTopic(
        name=name, partitions=[forget.OffsetDeleteRequestPartition(partition_index=0)]
    )
    return forget.OffsetDeleteRequest(group_id=name, topics=[topic])


def _purge(name: str) -> Any:
    topic = purge.DeleteRecordsTopic(name=name, partitions=[purge.DeleteRecordsPartition(partition_index=0, offset=2)])
    return purge.DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)


def _share_offsets(world: World, name: str) -> None:
    """A share group without members that has a start offset in its topic."""
    world.records(name)
    world.done(ApiKey.SHARE_GROUP_HEARTBEAT, 1, share_heartbeat(name, 0))
    world.done(ApiKey.SHARE_GROUP_HEARTBEAT, 1, share_heartbeat(name, -1))


def _altered_share_offsets(name: str) -> Any:
    partition = share_offsets.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)
    topic = share_offsets.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[partition])
    return share_offsets.AlterShareGroupOffsetsRequest(group_id=name, topics=[topic])


def _with_altered_share_offsets(world: World, name: str) -> None:
    _share_offsets(world, name)
    world.done(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, _altered_share_offsets(name))


def _acknowledge(world: World, name: str) -> Any:
    topic_id, _ = world.share_session(name)
    return acknowledging(name, topic_id, world.session)


def _fetch_and_acknowledge(world: World, name: str) -> Any:
    topic_id, _ = world.share_session(name)
    return fetch_and_acknowledge(name, topic_id, world.session)


def _close_share_session(world: World, name: str) -> Any:
    topic_id, _ = world.share_session(name)
    return acknowledging(name, topic_id, -1)


def _end_share_member(world: World, name: str) -> Any:
    world.share_session(name)
    return share_heartbeat(name, -1)


def _state(request: Callable[[str, UUID], Any], *, initialized: bool = True) -> Callable[[World, str], Any]:
    def prepare(world: World, name: str) -> Any:
        topic_id = world.topic(name, 2)
        world.share_state(name, topic_id, 1)
        if initialized:
            world.done(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, initializing(name, topic_id))
        return request(name, topic_id)

    return prepare


def _in_transaction(request: Callable[..., Any], **fields: Any) -> Callable[[World, str], Any]:
    return lambda world, name: request(name, *world.transaction(name), **fields)


def _of_producer(request: Callable[..., Any]) -> Callable[[World, str], Any]:
    def prepare(world: World, name: str) -> Any:
        world.topic(name)
        return request(name, *world.producer(name))

    return prepare


def _offsets_in_transaction(world: World, name: str) -> Any:
    who = world.transaction(name)
    world.done(ApiKey.ADD_OFFSETS_TO_TXN, 4, adding_offsets(name, *who))
    return committing_in_transaction(name, *who)


def _sync_of_leader(world: World, name: str) -> Any:
    return syncing(name, *world.joined(name))


def _join_with_id(world: World, name: str) -> Any:
    response = world.call(ApiKey.JOIN_GROUP, 9, joining(name))
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    return joining(name, response.member_id)


def _set_configs(name: str) -> Any:
    resource = alter.AlterConfigsResource(
        resource_type=2, resource_name=name, configs=[alter.AlterableConfig(name="retention.ms", value="60000")]
    )
    return alter.AlterConfigsRequest(resources=[resource])


def _commit_of_member(world: World, name: str) -> Any:
    world.topic(name)
    member_id, generation = world.member(name)
    return commitment(name, generation, member_id)


def _produced(world: World, name: str) -> Any:
    world.topic(name)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    who = world.done(ApiKey.INIT_PRODUCER_ID, 5, request)
    records = batch(b"v", producer_id=who.producer_id, producer_epoch=who.producer_epoch, base_sequence=0)
    return produce(records, topic=name, acks=-1)


def _election(name: str) -> Any:
    return elect.ElectLeadersRequest(
        election_type=0, topic_partitions=[elect.TopicPartitions(topic=name, partitions=[0])], timeout_ms=TIMEOUT_MS
    )


def _next_epoch(world: World, name: str) -> Any:
    producer_id, epoch = world.producer(name)
    return InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=60_000, producer_id=producer_id, producer_epoch=epoch
    )


def _nothing(world: World, name: str) -> None:
    """The request requires nothing."""


K, E, R = ApiKey, ErrorCode, Repetition
TOPIC = ConfigResourceType.TOPIC
SAME = "the second request finds what it asks for and changes nothing"

REPETITIONS = [
    # Topics and records: the controller has no memory of requests.
    R("create-topics", K.CREATE_TOPICS, 7, _before(_nothing, creation), (E.TOPIC_ALREADY_EXISTS,), "as for any topic"),
    R("delete-topics", K.DELETE_TOPICS, 6, _before(World.topic, _deletion), (E.UNKNOWN_TOPIC_OR_PARTITION,), "by name"),
    R("delete-topics-by-id", K.DELETE_TOPICS, 6, _by_id, (E.UNKNOWN_TOPIC_ID,), "by id"),
    R(
        "create-partitions",
        K.CREATE_PARTITIONS,
        3,
        _before(
            World.topic,
            lambda name: grow.CreatePartitionsRequest(
                topics=[grow.CreatePartitionsTopic(name=name, count=3, assignments=None)], timeout_ms=20_000
            ),
        ),
        (E.INVALID_PARTITIONS,),
        "the topic has this number of partitions",
    ),
    R("delete-records", K.DELETE_RECORDS, 2, _before(World.records, _purge), (), "the log start offset is kept"),
    R("produce", K.PRODUCE, 9, _produced, (), "the offset of the first append, by the sequence number"),
    # Rules, tokens and credentials.
    R("create-acls", K.CREATE_ACLS, 3, _before(_nothing, acl), (), SAME),
    R(
        "delete-acls",
        K.DELETE_ACLS,
        3,
        _before(lambda world, name: world.done(K.CREATE_ACLS, 3, acl(name)), without_acl),
        (),
        "no ACL matches",
    ),
    R(
        "create-token",
        K.CREATE_DELEGATION_TOKEN,
        3,
        lambda world, name: token_creation(),
        (),
        "a second token; the first one expires unused",
    ),
    R(
        "renew-token",
        K.RENEW_DELEGATION_TOKEN,
        2,
        _token_request(lambda hmac: RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=60_000)),
        (),
        SAME,
    ),
    R(
        "expire-token",
        K.EXPIRE_DELEGATION_TOKEN,
        2,
        _token_request(lambda hmac: ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)),
        (E.DELEGATION_TOKEN_NOT_FOUND,),
        "the token is deleted",
    ),
    R("upsert-credential", K.ALTER_USER_SCRAM_CREDENTIALS, 0, _before(_nothing, credential), (), SAME),
    R(
        "delete-credential",
        K.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        _before(
            lambda world, name: world.done(K.ALTER_USER_SCRAM_CREDENTIALS, 0, credential(name)), without_credential
        ),
        (E.RESOURCE_NOT_FOUND,),
        "the user has no such credential",
    ),
    R("set-quota", K.ALTER_CLIENT_QUOTAS, 1, lambda world, name: quota(name, remove=False), (), SAME),
    R(
        "remove-quota",
        K.ALTER_CLIENT_QUOTAS,
        1,
        _before(
            lambda world, name: world.done(K.ALTER_CLIENT_QUOTAS, 1, quota(name, remove=False)),
            lambda name: quota(name, remove=True),
        ),
        (),
        "there is nothing to remove",
    ),
    # Settings.
    R("alter-configs", K.ALTER_CONFIGS, 2, _before(World.topic, _set_configs), (), SAME),
    R(
        "set-config",
        K.INCREMENTAL_ALTER_CONFIGS,
        1,
        _before(World.topic, lambda name: config(TOPIC, name, ("retention.ms", 0, "1"))),
        (),
        SAME,
    ),
    R(
        "delete-config",
        K.INCREMENTAL_ALTER_CONFIGS,
        1,
        _before(World.topic, lambda name: config(TOPIC, name, ("retention.ms", 1, None))),
        (),
        SAME,
    ),
    R(
        "append-config",
        K.INCREMENTAL_ALTER_CONFIGS,
        1,
        _before(World.topic, lambda name: config(TOPIC, name, ("cleanup.policy", 2, "compact"))),
        (),
        "a value is in the list once",
    ),
    R(
        "subtract-config",
        K.INCREMENTAL_ALTER_CONFIGS,
        1,
        _before(
            lambda world, name: (
                world.topic(name),
                world.done(
                    K.INCREMENTAL_ALTER_CONFIGS, 1, config(TOPIC, name, ("cleanup.policy", 0, "compact,delete"))
                ),
            ),
            lambda name: config(TOPIC, name, ("cleanup.policy", 3, "delete")),
        ),
        (),
        "the value is not in the list",
    ),
    # Partitions and their replicas.
    R(
        "reassign",
        K.ALTER_PARTITION_REASSIGNMENTS,
        1,
        _before(World.topic, lambda name: reassigning(name, [NODE])),
        (),
        SAME,
    ),
    R(
        "cancel-reassignment",
        K.ALTER_PARTITION_REASSIGNMENTS,
        1,
        _before(World.topic, lambda name: reassigning(name, None)),
        (E.NO_REASSIGNMENT_IN_PROGRESS,),
        "there is none to cancel",
        (E.NO_REASSIGNMENT_IN_PROGRESS,),
    ),
    R(
        "elect-leaders",
        K.ELECT_LEADERS,
        2,
        _before(World.topic, _election),
        (E.ELECTION_NOT_NEEDED,),
        "",
        (E.ELECTION_NOT_NEEDED,),
    ),
    R("move-replica", K.ALTER_REPLICA_LOG_DIRS, 2, _replica_move, (), SAME),
    # Classic groups.
    R("join", K.JOIN_GROUP, 9, _join_with_id, (), "the leader joins again: the next generation"),
    R("sync", K.SYNC_GROUP, 5, _sync_of_leader, (), "the assignment"),
    R("leave", K.LEAVE_GROUP, 5, _leave_by_id, (E.UNKNOWN_MEMBER_ID,), "the member has left"),
    R("leave-v2", K.LEAVE_GROUP, 2, _leave_before_version_3, (E.UNKNOWN_MEMBER_ID,), "the member has left"),
    R("leave-static", K.LEAVE_GROUP, 5, _leave_by_instance, (E.UNKNOWN_MEMBER_ID,), "the instance has left"),
    R("commit-offsets", K.OFFSET_COMMIT, 9, _commit_of_member, (), SAME),
    R(
        "delete-groups",
        K.DELETE_GROUPS,
        3,
        _before(World.offsets, lambda name: DeleteGroupsRequest(groups_names=[name])),
        (E.GROUP_ID_NOT_FOUND,),
        "",
    ),
    R("delete-offsets", K.OFFSET_DELETE, 0, _before(World.offsets, _offset_deletion), (), SAME),
    # Groups of the other types.
    *(
        R(
            f"{kind}-{what}",
            key,
            1,
            _heartbeats(key, heartbeat, epoch, *fields),
            second,
            rule,
            kafka=kafka,
        )
        for kind, key, heartbeat, instances in (
            ("consumer", K.CONSUMER_GROUP_HEARTBEAT, consumer_heartbeat, True),
            ("share", K.SHARE_GROUP_HEARTBEAT, share_heartbeat, False),
            ("streams", K.STREAMS_GROUP_HEARTBEAT, streams_heartbeat, True),
        )
        for what, epoch, fields, second, rule, kafka in (
            ("join", 0, (), (), "the present state of the member", None),
            ("leave", -1, (), (E.UNKNOWN_MEMBER_ID,), "the member has left", None),
            # The error is fatal in librdkafka: after a lost response the member would keep itself out of its group.
            ("static-join", 0, ("i",), (), "the present state of the instance", (E.UNRELEASED_INSTANCE_ID,)),
            ("static-leave", -1, ("i",), (E.UNKNOWN_MEMBER_ID,), "the member has left", None),
            ("static-pause", -2, ("i",), (), "the instance is away", None),
        )
        if instances or not fields
    ),
    # Share groups.
    R("alter-share-offsets", K.ALTER_SHARE_GROUP_OFFSETS, 0, _before(_share_offsets, _altered_share_offsets), (), SAME),
    R(
        "delete-share-offsets",
        K.DELETE_SHARE_GROUP_OFFSETS,
        0,
        _before(
            _with_altered_share_offsets,
            lambda name: DeleteShareGroupOffsetsRequest(
                group_id=name, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name)]
            ),
        ),
        (E.UNKNOWN_TOPIC_OR_PARTITION,),
        "the group has no offsets of the topic",
        together=(),
    ),
    R("initialize-state", K.INITIALIZE_SHARE_GROUP_STATE, 0, _state(initializing, initialized=False), (), SAME),
    R("write-state", K.WRITE_SHARE_GROUP_STATE, 1, _state(writing), (), SAME),
    R("delete-state", K.DELETE_SHARE_GROUP_STATE, 0, _state(deleting_state), (), "there is nothing to delete"),
    R("acknowledge", K.SHARE_ACKNOWLEDGE, 1, _acknowledge, (E.INVALID_SHARE_SESSION_EPOCH,), "", same_connection=True),
    R(
        "acknowledge-elsewhere",
        K.SHARE_ACKNOWLEDGE,
        1,
        _acknowledge,
        (E.SHARE_SESSION_NOT_FOUND,),
        "sessions end with their connection",
        together=(E.INVALID_SHARE_SESSION_EPOCH,),
    ),
    R(
        "share-fetch",
        K.SHARE_FETCH,
        1,
        _fetch_and_acknowledge,
        (E.INVALID_SHARE_SESSION_EPOCH,),
        "",
        same_connection=True,
    ),
    R(
        "close-session",
        K.SHARE_ACKNOWLEDGE,
        1,
        _close_share_session,
        (E.SHARE_SESSION_NOT_FOUND,),
        "",
        same_connection=True,
    ),
    R(
        "leave-share-group",
        K.SHARE_GROUP_HEARTBEAT,
        1,
        _end_share_member,
        (E.UNKNOWN_MEMBER_ID,),
        "",
        same_connection=True,
    ),
    # Transactions.
    R(
        "init-producer-id",
        K.INIT_PRODUCER_ID,
        5,
        lambda world, name: initialization(name),
        (),
        "the next epoch",
    ),
    R("next-epoch", K.INIT_PRODUCER_ID, 5, _next_epoch, (), "the epoch that the first response has"),
    R("add-partitions", K.ADD_PARTITIONS_TO_TXN, 3, _of_producer(adding), (), SAME),
    R("add-offsets", K.ADD_OFFSETS_TO_TXN, 4, _of_producer(adding_offsets), (), SAME),
    R("txn-offset-commit", K.TXN_OFFSET_COMMIT, 4, _offsets_in_transaction, (), SAME),
    R("commit", K.END_TXN, 4, _in_transaction(ending, is_commit=True), (), "the transaction is committed"),
    R("abort", K.END_TXN, 4, _in_transaction(ending, is_commit=False), (), "the transaction is aborted"),
    R("commit-v5", K.END_TXN, 5, _in_transaction(ending, is_commit=True), (), "the epoch that the first response has"),
    R("abort-v5", K.END_TXN, 5, _in_transaction(ending, is_commit=False), (), "the epoch that the first response has"),
    R("write-markers", K.WRITE_TXN_MARKERS, 1, _in_transaction(marking), (), "a second marker without records"),
    # Last: transactions have their older form afterwards.
    R("update-features", K.UPDATE_FEATURES, 1, lambda world, name: feature("transaction.version", 1, 2), (), SAME),
]


def of_row(row: Repetition, world: World) -> tuple[Any, Any]:
    """Send the request of a row twice; returns both responses."""
    request = row.prepare(world, row.name)
    first = world.call(row.key, row.version, request)
    if not row.same_connection:
        world.lose_connection()
    return first, world.call(row.key, row.version, request)


def sent_together(row: Repetition, world: World) -> tuple[Any, Any]:
    """Send the request of a row on two connections before the first response, as a client after its timeout does."""
    request = row.prepare(world, f"{row.name}-together")
    with closing(world.broker.connect(ROOT)) as one, closing(world.broker.connect(ROOT)) as other:
        for client in (one, other):
            client.send(row.key, row.version, request)
        return one.receive(row.key, row.version), other.receive(row.key, row.version)


def _properties(folder: Path) -> tuple[dict[str, str], tuple[Path, Path]]:
    log_dirs = folder / "a", folder / "b"
    properties = {
        "log.dirs": ",".join(map(str, log_dirs)),
        "delegation.token.secret.key": "the key of all brokers",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.streams.initial.rebalance.delay.ms": "0",
    }
    return properties, log_dirs


def _world(broker: GuardedBroker, log_dirs: tuple[Path, Path]) -> World:
    broker.prepare("t", set())
    world = World(broker, log_dirs)
    topic_id = world.topic("first")
    # Makes the topic of the share coordinator and waits until it is loaded.
    find = FindCoordinatorRequest(key_type=2, coordinator_keys=[f"first:{uuid_text(topic_id)}:0"])
    world.done(ApiKey.FIND_COORDINATOR, 6, find)
    world.share_state("first", topic_id, 0)
    return world


class _Guarded:
    """Context manager of a world."""

    def __init__(self, broker: AbstractContextManager[GuardedBroker], log_dirs: tuple[Path, Path]) -> None:
        self._broker, self._log_dirs = broker, log_dirs

    def __enter__(self) -> World:
        return _world(self._broker.__enter__(), self._log_dirs)

    def __exit__(self, *error: Any) -> None:
        self._broker.__exit__(*error)


def barnabas_world(folder: Path) -> _Guarded:
    """Barnabas."""
    properties, log_dirs = _properties(folder)
    return _Guarded(guarded_barnabas(folder, AUTHORIZER, {ROOT}, properties), log_dirs)


def kafka_world(folder: Path) -> _Guarded:
    """Apache Kafka 4.4.0."""
    properties, log_dirs = _properties(folder)
    return _Guarded(guarded_kafka(folder, "4.4.0", AUTHORIZER, {ROOT}, properties), log_dirs)
