"""The groups of this broker and the write path of their records (Kafka up to 3.x: GroupMetadataManager).

A group belongs to the leader of one partition of `__consumer_offsets`. Each change of a group is a record there, so
that the next leader of the partition loads the state of its predecessor.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.producer_identity import ProducerIdentity
from ....protocol.topic_partition import TopicPartitionKey
from ...metadata.topic_names import GROUP_METADATA_TOPIC
from ...runtime.loop_sharing import CountBudget, lookup_steps
from ...runtime.scheduler import IsolatedWork
from ..coordinator_log import TOO_LARGE, WRITE_ERRORS, CoordinatorRecord, ResponseCallback, ignore
from ..coordinator_runtime import CoordinatorRuntime, CoordinatorShard
from ..creation_limiter import ClientIdentity, CreationLimiter
from ..leadership_barrier import LeadershipBarrier
from .classic_group import ClassicGroup, JoinRequest, LeaveReply, LeavingMember, SyncRequest
from .group import Group
from .group_loader import load_groups
from .group_records import BARRIER_RECORD, new_group_tombstones, new_offset_commit_tombstone

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...metadata.metadata_cache import MetadataCache
    from ...replication.partition import Partition
    from ...replication.replica_manager import ReplicaManager
    from ...runtime.ports import Ports
    from ..coordinator_topic import TopicCreator

GROUPS_PER_TURN = 20
"""Groups that are resumed after loading in one turn of the loop."""
IDLE_CANDIDATES_PER_REQUEST = 20
"""Groups of a client at its limit that are checked for idle ones to delete."""

GroupShard = CoordinatorShard[dict[str, Group]]
"""The groups of one partition of `__consumer_offsets` by id."""

OFFSET_WRITE_ERRORS = {**WRITE_ERRORS, **dict.fromkeys(TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)}
"""The error code for a client when offsets, or the deletion of a group, could not be written."""

G = TypeVar("G", bound=Group)


class GroupTypeManager(ABC, Generic[G]):
    """The rebalance protocol of all groups of one type on this broker.

    A further type of group (share groups, streams groups) is one more subclass, which the group coordinator keeps under
    its `GroupType`. The first four methods serve the classic protocol's requests, which clients may send to a group of
    any type. Owned by the group coordinator and used on the loop's thread only.
    """

    @abstractmethod
    def join(self, group: G, joining: JoinRequest) -> None:
        """Handle a JoinGroup; the request holds its reply function."""

    @abstractmethod
    def sync(self, group: G, syncing: SyncRequest) -> None:
        """Handle a SyncGroup; the request holds its reply function."""

    @abstractmethod
    def heartbeat(self, group: G, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Handle a Heartbeat; return REBALANCE_IN_PROGRESS if the member has to join again."""

    @abstractmethod
    def leave(self, group: G, leaving: Sequence[LeavingMember], reply: LeaveReply) -> None:
        """Handle a LeaveGroup; `reply` gets the outcome when it is durable."""

    @abstractmethod
    def extend_session(self, group: G, member_id: str) -> None:
        """Handle a valid OffsetCommit of a member, which some protocols treat as a heartbeat."""

    @abstractmethod
    def on_group_loaded(self, group: G) -> None:
        """Start the timers of a loaded group: each member has its full session timeout."""

    @abstractmethod
    def on_group_unloaded(self, group: G, error: ErrorCode) -> None:
        """Stop the timers of a group that moved away or was deleted; complete its waiting requests with `error`."""

    @abstractmethod
    def expire_sessions(self, group_id: str) -> None:
        """End the sessions of all members of a group now."""

    @abstractmethod
    def close(self) -> None:
        """Stop all timers."""


class GroupMetadataManager:
    """The groups of all types that this broker coordinates, loaded from `__consumer_offsets` and written to it.

    Owned by the group coordinator and used on the loop's thread only. Methods that look up a group raise KafkaError
    NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE unless this broker has loaded it.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        controller: TopicCreator,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        on_group_loaded: Callable[[Group], None],
        on_group_unloaded: Callable[[Group, ErrorCode], None],
    ) -> None:
        """Call `on_group_loaded` for each group that was loaded, to start its timers.

        Call `on_group_unloaded` for each group that moved away or was deleted, with the error code for its waiting
        requests.
        """
        self._config = config
        self._now_ms = ports.now_ms
        self._on_group_loaded = on_group_loaded
        self._on_group_unloaded = on_group_unloaded
        self._creation_limiter = CreationLimiter()
        self._runtime: CoordinatorRuntime[dict[str, Group]] = CoordinatorRuntime(
            GROUP_METADATA_TOPIC,
            replica_manager=replica_manager,
            metadata=metadata,
            controller=controller,
            now_ms=ports.now_ms,
            loop=loop,
            new_state=dict,
            load=self._load,
            on_loaded=self._on_loaded,
            on_unloaded=self._on_unloaded,
        )
        self._topic, self._log = self._runtime.topic, self._runtime.coordinator_log
        self._leadership_barrier = LeadershipBarrier(
            self._log, loop, BARRIER_RECORD, lambda: config.offsets_commit_timeout_ms
        )

    # -- lifecycle -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to load the groups of all partitions that this broker leads."""
        self._runtime.start()

    def reload(self) -> None:
        """Unload all groups and load them again."""
        self._runtime.reload()

    async def close(self) -> None:
        """Unload all groups; their waiting requests get NOT_COORDINATOR."""
        await self._runtime.close()

    async def _load(self, partition: Partition) -> dict[str, Group]:
        return await load_groups(await self._log.load(partition), self._now_ms())

    async def _on_loaded(self, groups: dict[str, Group]) -> None:
        budget = CountBudget(GROUPS_PER_TURN)
        for group in list(groups.values()):
            with IsolatedWork(f"group {group.group_id!r} could not be resumed"):
                self._on_group_loaded(group)
            await budget.step()

    def _on_unloaded(self, groups: dict[str, Group]) -> None:
        for group in groups.values():
            self._creation_limiter.record_deletion(group.group_id)
            self._on_group_unloaded(group, ErrorCode.NOT_COORDINATOR)

    # -- coordinators of groups ----------------------------------------------------------------------------------------

    async def find_coordinator(self, group_id: str) -> int:
        """Return the id of the broker that coordinates a group; create `__consumer_offsets` if it does not exist.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE.
        """
        return await self._topic.find_coordinator(group_id)

    @property
    def partition_count(self) -> int | None:
        """The number of partitions of `__consumer_offsets`; None while the topic does not exist."""
        return self._topic.partition_count

    def partition_for(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that has the records of a group (Kafka: partitionFor)."""
        return self._topic.partition_of(group_id) or 0

    def topic_partition_for(self, group_id: str) -> TopicPartitionKey:
        """Return the topic and the partition that have the records of a group."""
        return GROUP_METADATA_TOPIC, self.partition_for(group_id)

    def check_partition_loaded(self, index: int) -> None:
        """Raise KafkaError unless this broker has loaded the groups of a partition of `__consumer_offsets`."""
        self._runtime.get_loaded_shard(index)

    async def find_unconfirmed_groups(self, group_ids: Iterable[str]) -> frozenset[str]:
        """Return the groups for which this broker's coordinatorship cannot be confirmed.

        Their next coordinator may have stored offsets that this broker does not know. The cost is that of
        `LeadershipBarrier.confirm_leadership`.
        """
        indexes: dict[str, int] = {}
        budget = CountBudget()
        for group_id in group_ids:
            indexes[group_id] = self.partition_for(group_id)
            await budget.step(lookup_steps(group_id))
        partitions = list(set(indexes.values()))
        confirmed = await asyncio.gather(*map(self._leadership_barrier.confirm_leadership, partitions))
        lost = {index for index, is_leader in zip(partitions, confirmed, strict=True) if not is_leader}
        return frozenset(group_id for group_id, index in indexes.items() if index in lost) if lost else frozenset()

    # -- the table of groups -------------------------------------------------------------------------------------------

    def get_shard(self, group_id: str) -> GroupShard:
        """Return the loaded shard that a group belongs to, whether the group exists or not."""
        return self._runtime.get_loaded_shard(self._topic.partition_of(group_id))

    def find_group(self, group_id: str) -> Group | None:
        """Return a group, None if it does not exist."""
        return self.get_shard(group_id).state.get(group_id)

    def get_group(self, group_id: str) -> Group:
        """Return a group. Raises KafkaError GROUP_ID_NOT_FOUND if it does not exist."""
        group = self.find_group(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def get_classic_group(self, group_id: str) -> ClassicGroup:
        """Return a classic group. Raises KafkaError GROUP_ID_NOT_FOUND, also for a group of another type."""
        group = self.get_group(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
        return group

    @property
    def groups(self) -> Iterator[Group]:
        """All groups of this broker."""
        for shard in self._runtime:
            yield from list(shard.state.values())

    @property
    def group_ids(self) -> Iterator[str]:
        """The ids of all groups of this broker."""
        for shard in self._runtime:
            yield from shard.state

    @property
    def is_loading(self) -> bool:
        """Whether groups of some partitions are still being loaded."""
        return self._runtime.is_loading

    def check_creation_limit(self, client: ClientIdentity) -> None:
        """Raise KafkaError GROUP_MAX_SIZE_REACHED if the client may not create another group.

        Deletes groups that the client created and that have neither members nor offsets if the limit is reached.
        """
        if self._creation_limiter.can_create(client):
            return
        for group_id in self._creation_limiter.take_names(client, IDLE_CANDIDATES_PER_REQUEST):
            group = self.find_group(group_id)
            if group is not None and group.is_idle:
                self.delete_group(group_id, ignore)
        if not self._creation_limiter.can_create(client):
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, "This client has created too many groups.")

    def add_group(self, group: Group, client: ClientIdentity) -> None:
        """Add a group that a client created."""
        self.replace_group(group)
        self._creation_limiter.record_creation(group.group_id, client)

    def replace_group(self, group: Group) -> None:
        """Put a group in the place of the group with its id."""
        self.get_shard(group.group_id).state[group.group_id] = group

    def remove_group(self, group: Group) -> None:
        """Remove a group from memory; its waiting requests get UNKNOWN_MEMBER_ID."""
        del self.get_shard(group.group_id).state[group.group_id]
        self._creation_limiter.record_deletion(group.group_id)
        self._on_group_unloaded(group, ErrorCode.UNKNOWN_MEMBER_ID)

    def delete_group(self, group_id: str, reply: ResponseCallback) -> None:
        """Delete a group without members and its offsets; `reply` gets the outcome when that is durable."""
        try:
            group = self.find_group(group_id)
        except KafkaError as error:
            reply(error.code)
        else:
            self.delete_found_group(group, reply)

    def delete_found_group(self, group: Group | None, reply: ResponseCallback) -> None:
        """Delete the group that `find_group` has returned in this turn of the loop, as `delete_group`."""
        if group is None:
            reply(ErrorCode.GROUP_ID_NOT_FOUND)
        elif not group.is_empty:
            reply(ErrorCode.NON_EMPTY_GROUP)
        elif self.append(
            group.group_id,
            [
                *(new_offset_commit_tombstone(group.group_id, partition) for partition in group.offsets.partitions),
                *new_group_tombstones(group),
            ],
            lambda outcome: reply(OFFSET_WRITE_ERRORS.get(outcome, outcome)),
        ):
            self.remove_group(group)

    def delete_unused_group(self, group: Group) -> None:
        """Delete a group whose only member ids have expired without a JoinGroup, if this broker still has it."""
        shard = self._runtime.find_shard(self.partition_for(group.group_id))
        if shard is not None and shard.state.get(group.group_id) is group:
            self.delete_group(group.group_id, ignore)

    # -- records -------------------------------------------------------------------------------------------------------

    def append(
        self,
        group_id: str,
        records: Iterable[CoordinatorRecord],
        done: ResponseCallback,
        *,
        on_overdue: Callable[[], None] | None = None,
        may_linger: bool = False,
        producer: ProducerIdentity | None = None,
    ) -> bool:
        """Append records of a group as one batch, as `CoordinatorLog.append`, within `offsets.commit.timeout.ms`."""
        return self._log.append(
            self._topic.partition_of(group_id) or 0,
            records,
            done,
            timeout_ms=self._config.offsets_commit_timeout_ms,
            on_overdue=on_overdue,
            may_linger=may_linger,
            producer=producer,
        )


def not_a_consumer_group(group_id: str) -> KafkaError:
    """Return the error for a request that requires a consumer group."""
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
