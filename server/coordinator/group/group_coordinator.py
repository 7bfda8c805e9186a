"""Kafka's GroupCoordinator: the requests about groups of all types and about committed offsets.

`GroupMetadataManager` has the groups and their log, a `GroupTypeManager` the rebalance protocol of each type of group,
`OffsetMetadataManager` the committed offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.producer_identity import ProducerIdentity
from ....protocol.topic_partition import TopicPartitionKey
from ...metadata.cluster_features import GROUP_VERSION, SHARE_VERSION, SINCE_SHARE_GROUPS, STREAMS_VERSION
from ...runtime.loop_sharing import CountBudget
from ...runtime.scheduler import IsolatedWork
from ..coordinator_topic import TopicCreator
from ..creation_limiter import ClientIdentity
from .classic_group import (
    ClassicGroup,
    JoinRequest,
    LeaveReply,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from .classic_group_manager import ClassicGroupManager
from .consumer_group_manager import ConsumerGroupManager
from .group import CommittedPartition, Group, GroupType
from .group_metadata_manager import GroupMetadataManager, GroupTypeManager
from .offset_metadata_manager import Commits, Committer, OffsetMetadataManager
from .response_pacer import PacedReply
from .share.share_group import ShareGroup
from .share.share_group_manager import ShareGroupManager
from .share.share_state_store import ShareStateStore
from .streams.streams_group_manager import StreamsGroupManager

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...config.dynamic_config import DynamicConfig
    from ...metadata.metadata_cache import MetadataCache
    from ...replication.replica_manager import ReplicaManager
    from ...runtime.loop_sharing import SlicedWork, TurnQueue
    from ...runtime.ports import Ports
    from ..coordinator_log import ResponseCallback

T = TypeVar("T")

FIRST_TRANSACTIONAL_VERSION_WITH_IDS = 6
"""The first version of TxnOffsetCommit with topic ids and the errors of the consumer protocol (KIP-1319)."""
ERRORS_FOR_VALID_MEMBER = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
"""The outcomes of a commit that extend the session: with REBALANCE_IN_PROGRESS the member has to commit again later."""
GROUPS_PER_TURN = 20
"""Groups that are searched for expired offsets in one turn of the loop."""


class GroupCoordinator:
    """The coordinator of the groups in those partitions of `__consumer_offsets` that this broker leads.

    Owned by the broker and used on the loop's thread only. Methods with a group id raise KafkaError NOT_COORDINATOR,
    COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE unless this broker has loaded the group.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        controller: TopicCreator,
        dynamic_config: DynamicConfig,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        turn_queue: TurnQueue,
        sliced_work: SlicedWork,
        persister: ShareStateStore,
        feature_level: Callable[[str], int],
    ) -> None:
        """`feature_level` returns the present level of a feature, which permits the protocols of modern groups."""
        self._now_ms = ports.now_ms
        self._metadata = metadata
        self.group_manager = GroupMetadataManager(
            config=config,
            replica_manager=replica_manager,
            metadata=metadata,
            controller=controller,
            ports=ports,
            loop=loop,
            on_group_loaded=self._on_group_loaded,
            on_group_unloaded=self._on_group_unloaded,
        )
        self._classic = ClassicGroupManager(config, self.group_manager, ports, loop, turn_queue, sliced_work)
        self.consumer_group_manager = ConsumerGroupManager(
            config,
            dynamic_config,
            self.group_manager,
            self._classic,
            metadata,
            ports,
            loop,
            sliced_work,
            partial(feature_level, GROUP_VERSION),
        )
        self.streams_group_manager = StreamsGroupManager(
            config,
            dynamic_config,
            self.group_manager,
            self._classic,
            metadata,
            ports,
            loop,
            sliced_work,
            partial(feature_level, STREAMS_VERSION),
        )
        self.share_group_manager = ShareGroupManager(
            config,
            dynamic_config,
            self.group_manager,
            metadata,
            persister,
            ports,
            loop,
            sliced_work,
            lambda: feature_level(SHARE_VERSION) >= SINCE_SHARE_GROUPS,
        )
        self._type_managers: dict[GroupType, GroupTypeManager[Any]] = {
            GroupType.CLASSIC: self._classic,
            GroupType.CONSUMER: self.consumer_group_manager,
            GroupType.STREAMS: self.streams_group_manager,
            GroupType.SHARE: self.share_group_manager,
        }
        self._offsets = OffsetMetadataManager(config, self.group_manager, sliced_work)
        metadata.on_topics_removed.append(self._on_topics_deleted)

    # -- lifecycle -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to load the groups of all partitions that this broker leads."""
        self.group_manager.start()

    def reload_groups(self) -> None:
        """Unload all groups and load them again, as if another broker had led their partitions for a moment."""
        self.group_manager.reload()

    async def close(self) -> None:
        """Unload all groups; their waiting requests get NOT_COORDINATOR."""
        await self.group_manager.close()
        for manager in self._type_managers.values():
            manager.close()

    def _on_group_loaded(self, group: Group) -> None:
        self._offsets.on_group_loaded(group)
        self._type_managers[group.type].on_group_loaded(group)

    def _on_group_unloaded(self, group: Group, error: ErrorCode) -> None:
        self._offsets.on_group_unloaded(group)
        self._type_managers[group.type].on_group_unloaded(group, error)

    def _on_topics_deleted(self, names: Iterable[str]) -> None:
        deleted = set(names)  # without `__consumer_offsets` no group is left here
        self._offsets.on_topics_deleted(deleted, self.group_manager.group_ids)
        self.share_group_manager.state_manager.on_topics_deleted(frozenset(deleted), self.group_manager.group_ids)

    def delete_group(self, group_id: str, reply: ResponseCallback) -> None:
        """Delete a group without members, its offsets or its share state; `reply` gets the outcome."""
        try:
            group = self.group_manager.find_group(group_id)
        except KafkaError as error:
            reply(error.code)
            return
        if isinstance(group, ShareGroup):
            self.share_group_manager.state_manager.delete_group(group, reply)
        else:
            self.group_manager.delete_found_group(group, reply)

    # -- the classic protocol, for groups of all types -----------------------------------------------------------------

    def pace_reply(self, reply: Callable[[T], None]) -> PacedReply[T]:
        """Return the reply function of a request that may wait for other members."""
        return self._classic.pace(reply)

    def join_group(self, group_id: str, joining: JoinRequest) -> None:
        """Handle a JoinGroup; one without a member id creates the group if it does not exist.

        Raises KafkaError GROUP_MAX_SIZE_REACHED if the client may not create another group.
        """
        group = self.group_manager.find_group(group_id)
        if group is not None:
            self._type_managers[group.type].join(group, joining)
        elif joining.member_id:
            joining.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            self._join_new_group(ClassicGroup(group_id, self._now_ms()), joining)

    def _join_new_group(self, group: ClassicGroup, joining: JoinRequest) -> None:
        """Handle the first JoinGroup of a group; as in Kafka 4 the group is stored even if the member is refused."""
        client = ClientIdentity(joining.client_host, joining.client_id)
        self.group_manager.check_creation_limit(client)
        if not self._classic.store_empty(group):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group could not be written.")
        self.group_manager.add_group(group, client)
        self._classic.join(group, joining)

    def sync_group(self, group_id: str, syncing: SyncRequest) -> None:
        """Handle a SyncGroup; the request holds its reply function."""
        group = self.group_manager.find_group(group_id)
        if group is None:
            syncing.reply.immediately(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            self._type_managers[group.type].sync(group, syncing)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Handle a Heartbeat; return REBALANCE_IN_PROGRESS if the member has to join again."""
        group = self.group_manager.find_group(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self._type_managers[group.type].heartbeat(group, member_id, instance_id, generation)

    def leave_group(self, group_id: str, leaving: Sequence[LeavingMember], reply: LeaveReply) -> None:
        """Handle a LeaveGroup; `reply` gets the outcome when it is durable."""
        group = self.group_manager.find_group(group_id)
        if group is None:
            reply(LeaveResult(ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)))
        else:
            self._type_managers[group.type].leave(group, leaving, reply)

    def expire_sessions(self, group_id: str) -> None:
        """End the sessions of all members of a group now."""
        for manager in self._type_managers.values():
            manager.expire_sessions(group_id)

    # -- committed offsets ---------------------------------------------------------------------------------------------

    def commit_offsets(self, group_id: str, committer: Committer, offsets: Commits, reply: ResponseCallback) -> None:
        """Handle an OffsetCommit; `reply` gets the outcome when it is durable.

        The first commit of a consumer with manual assignment creates its group. Raises KafkaError
        GROUP_MAX_SIZE_REACHED if the client may not create another group, ILLEGAL_GENERATION or GROUP_ID_NOT_FOUND.
        """
        self._offsets.finish_topic_deletion(group_id)
        group = self.group_manager.find_group(group_id)
        if group is None and committer.generation >= 0:
            raise KafkaError(committer.missing_group_error, "the group does not exist")
        if group is None and offsets:
            group = self._create_simple_group(group_id, committer.client)
        if group is None:
            reply(ErrorCode.NONE)
            return
        error = group.validate_offset_commit(
            committer.member_id, committer.group_instance_id, committer.generation, committer.version
        )
        if not error:
            error = self._validate_partitions(group, committer, offsets)
        if error in ERRORS_FOR_VALID_MEMBER:
            self._type_managers[group.type].extend_session(group, committer.member_id)
        if error or not offsets:
            reply(error)
        else:
            self._offsets.commit_offsets(group, offsets, reply)
        if not group.is_logged and group.is_idle:
            # The append failed in the same turn: nothing in the log requires the new group.
            self.group_manager.remove_group(group)

    def commit_transactional_offsets(
        self, group_id: str, committer: Committer, producer: ProducerIdentity, offsets: Commits, reply: ResponseCallback
    ) -> None:
        """Handle a TxnOffsetCommit; as `commit_offsets`, but the offsets count when the transaction is committed."""
        self._offsets.finish_topic_deletion(group_id)
        group = self.group_manager.find_group(group_id)
        if group is None and committer.generation >= 0:
            names_missing_group = committer.version >= FIRST_TRANSACTIONAL_VERSION_WITH_IDS
            missing = ErrorCode.GROUP_ID_NOT_FOUND if names_missing_group else ErrorCode.ILLEGAL_GENERATION
            raise KafkaError(missing, "the group does not exist")
        if group is None:
            group = self._create_simple_group(group_id, committer.client)
        error = group.validate_transactional_offset_commit(
            committer.member_id, committer.group_instance_id, committer.generation
        ) or self._validate_partitions(group, committer, offsets)
        if error is ErrorCode.STALE_MEMBER_EPOCH and committer.version < FIRST_TRANSACTIONAL_VERSION_WITH_IDS:
            error = ErrorCode.ILLEGAL_GENERATION
        if error is ErrorCode.NONE:
            self._offsets.commit_transactional_offsets(group, producer, offsets, reply)
        else:
            reply(error)

    def _validate_partitions(self, group: Group, committer: Committer, offsets: Commits) -> ErrorCode:
        # Lazy: a commit with the present epoch requires no topic ids.
        partitions = (
            CommittedPartition(topic, self._metadata.topic_id(topic), partition) for topic, partition in offsets
        )
        return group.validate_committed_partitions(committer.member_id, committer.generation, partitions)

    def _create_simple_group(self, group_id: str, client: ClientIdentity) -> ClassicGroup:
        """Create a group that has only offsets (Kafka: a simple group)."""
        self.group_manager.check_creation_limit(client)
        group = ClassicGroup(group_id, self._now_ms())
        self.group_manager.add_group(group, client)
        return group

    def delete_offsets(self, group: Group, partitions: Iterable[TopicPartitionKey], reply: ResponseCallback) -> None:
        """Delete offsets of a group; `reply` gets the outcome when it is durable."""
        self._offsets.delete_offsets(group, partitions, reply)

    def complete_transaction(self, index: int, producer_id: int, *, is_commit: bool) -> None:
        """Apply or drop the pending offsets of a transaction whose marker is durable in a partition.

        Raises KafkaError, and changes nothing, if this broker has not loaded the groups of the partition.
        """
        self._offsets.complete_transaction(index, producer_id, is_commit=is_commit)

    async def cleanup_expired_offsets(self) -> None:
        """Delete expired offsets, and groups that have neither members nor offsets."""
        now_ms = self._now_ms()
        budget = CountBudget(GROUPS_PER_TURN)
        for group in self.group_manager.groups:
            with IsolatedWork(f"offsets of group {group.group_id!r} could not be expired"):
                self._offsets.cleanup_expired_offsets(group, now_ms)
            await budget.step()
