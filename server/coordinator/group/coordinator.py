"""The group coordinator: which groups are this broker's, loading them, and finding the one a request is about.

A group belongs to the leader of one partition of `__consumer_offsets`, its *shard* here. Everything a group must not
forget is a record there, so whoever leads the partition next knows what this broker knew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.topic_partition import TopicPartition
from ...metadata.topic_names import GROUP_METADATA_TOPIC
from ..coordinator_log import CoordinatorLog, Entry
from ..latest_records import LatestRecords
from ..shards import Shard, Shards
from .answers import Later
from .any_group import AnyGroup
from .consumer.classic_members import ClassicMembers
from .consumer.group import ConsumerGroup
from .consumer.groups import ConsumerGroups
from .consumer.membership import ConsumerMembership
from .consumer.records import removal
from .group import Group
from .group_id import partition_for
from .group_log import groups_of
from .group_records import group_key
from .membership import Joining, Membership, Syncing
from .offset_commits import OffsetCommits

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...config.dynamic_config import DynamicConfig
    from ...controller.controller import Controller
    from ...metadata.metadata_cache import MetadataCache
    from ...replication.replica_manager import ReplicaManager
    from ...runtime.ports import Ports
    from ...runtime.turns import Turns

logger = logging.getLogger("barnabas.groups")

T = TypeVar("T")

MOST_GROUPS = 10_000
"""Groups in memory; more are refused, as surplus members of one group are."""
GROUPS_A_TURN = 20
"""Others are served after so many."""


GroupShard = Shard[dict[str, AnyGroup]]
"""The groups of one partition of `__consumer_offsets`, by name."""


class GroupCoordinator:
    """Kafka's GroupCoordinator, for groups of either protocol and plain offsets. Loop-thread only."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        controller: Controller,
        dynamic_config: DynamicConfig,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        turns: Turns,
    ) -> None:
        self._metadata = metadata
        self._controller = controller
        self._now_ms = ports.now_ms
        self._loop = loop
        self._creation: asyncio.Task[None] | None = None
        log = CoordinatorLog(GROUP_METADATA_TOPIC, replica_manager, ports.now_ms, loop)
        self._shards: Shards[dict[str, AnyGroup]] = Shards(
            log, loop, empty=dict, build=self._build, resume=self._resume_all, unload=self._unload
        )
        self.members = Membership(config, log, ports, loop, turns, partition_of=self._index_of, on_idle=self._forget)
        self.offsets = OffsetCommits(config, log, self.members, self._index_of)
        consumers = ConsumerMembership(
            config, dynamic_config, log, ports, loop, metadata=metadata, partition_of=self._index_of
        )
        self.consumers = ConsumerGroups(config, self, consumers, self.members, metadata=metadata, now_ms=ports.now_ms)
        self.classic_members = ClassicMembers(
            self.consumers, self.members, metadata=metadata, now_ms=ports.now_ms, loop=loop
        )
        metadata.on_topics_removed.append(self._topics_removed)

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to load the groups of all partitions that this broker leads."""
        for index in range(self.partition_count or 0):
            self._shards.current(index)

    async def close(self) -> None:
        """Give all groups up: members that wait are told to look for another coordinator."""
        if self._creation is not None:
            self._creation.cancel()
            await asyncio.gather(self._creation, return_exceptions=True)
        await self._shards.close()
        self.members.sessions.close()
        self.consumers.members.close()
        self.classic_members.close()

    # -- where a group is ------------------------------------------------------------------------------------------

    @property
    def partition_count(self) -> int | None:
        """Partitions of `__consumer_offsets`; None while there is no such topic."""
        topic = self._metadata.topic(GROUP_METADATA_TOPIC)
        return None if topic is None else len(topic.partitions)

    async def find_coordinator(self, group_id: str) -> int:
        """The id of the broker that coordinates a group, creating the topic of groups if need be.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE.
        """
        if self.partition_count is None:
            if self._creation is None or self._creation.done():
                self._creation = self._loop.create_task(self._create_topic())
            await asyncio.shield(self._creation)
        count = self.partition_count
        image = None
        if count is not None:
            image = self._metadata.partition(TopicPartition(GROUP_METADATA_TOPIC, partition_for(group_id, count)))
        if image is None or image.leader not in self._metadata.brokers:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
        return image.leader

    async def _create_topic(self) -> None:
        try:
            error = (await self._controller.auto_create([GROUP_METADATA_TOPIC]))[GROUP_METADATA_TOPIC]
        except KafkaError as caught:
            error = caught
        if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            logger.warning("%s could not be created: %s", GROUP_METADATA_TOPIC, error.message)
            return
        self.start()

    def _index_of(self, group_id: str) -> int:
        return partition_for(group_id, self.partition_count or 1)

    def shard_of(self, group_id: str) -> GroupShard:
        """The loaded shard that a group belongs to. Raises KafkaError as `Shards.loaded`."""
        count = self.partition_count
        return self._shards.loaded(None if count is None else partition_for(group_id, count))

    def find(self, group_id: str) -> AnyGroup | None:
        """A group of this broker, None if it does not exist. Raises KafkaError as `shard_of`."""
        return self.shard_of(group_id).state.get(group_id)

    def find_or_create(self, group_id: str) -> AnyGroup:
        """A group of this broker. Raises KafkaError as `shard_of`, and GROUP_MAX_SIZE_REACHED for one too many."""
        groups = self.shard_of(group_id).state
        group = groups.get(group_id)
        if group is None:
            self.check_room()
            group = groups[group_id] = Group(group_id, self._now_ms())
        return group

    def check_room(self) -> None:
        """Raises KafkaError GROUP_MAX_SIZE_REACHED if there must not be one more group."""
        if sum(len(shard.state) for shard in self._shards) >= MOST_GROUPS:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"this broker coordinates {MOST_GROUPS} groups")

    def put(self, group: AnyGroup) -> None:
        """This is the group of its name from now on. Raises KafkaError as `shard_of`."""
        self.shard_of(group.group_id).state[group.group_id] = group

    @property
    def groups(self) -> Iterator[AnyGroup]:
        """All groups of this broker."""
        for shard in self._shards:
            yield from list(shard.state.values())

    @property
    def is_loading(self) -> bool:
        """Whether some groups are not known yet."""
        return self._shards.is_loading

    # -- shards ----------------------------------------------------------------------------------------------------

    async def _build(self, records: LatestRecords) -> dict[str, AnyGroup]:
        return await groups_of(records, self._now_ms())

    async def _resume_all(self, groups: dict[str, AnyGroup]) -> None:
        for number, group in enumerate(list(groups.values()), start=1):
            self._resume(group)
            if number % GROUPS_A_TURN == 0:
                await asyncio.sleep(0)

    def _unload(self, groups: dict[str, AnyGroup]) -> None:
        for group in groups.values():
            self._unload_group(group, ErrorCode.NOT_COORDINATOR)

    def _resume(self, group: AnyGroup) -> None:
        """A group was loaded: its members have their full session timeouts from now on."""
        if isinstance(group, ConsumerGroup):
            self.consumers.members.resume(group)
        else:
            self.members.resume(group)

    def _unload_group(self, group: AnyGroup, error: ErrorCode) -> None:
        """This broker does not coordinate the group any more, or it is deleted."""
        if isinstance(group, ConsumerGroup):
            self.consumers.members.unload(group)
            self.classic_members.unload(group)
        else:
            self.members.unload(group, error)

    def _forget(self, group: Group) -> None:
        """A group that was nothing but ids given out is not worth its memory."""
        shard = self._shards.known(self._index_of(group.group_id))
        if shard is not None and shard.state.get(group.group_id) is group:
            del shard.state[group.group_id]
            self.members.unload(group, ErrorCode.UNKNOWN_MEMBER_ID)

    # -- members that speak the classic protocol, whatever kind of group they find ----------------------------------

    def later(self, reply: Callable[[T], None]) -> Later[T]:
        """How a member is answered that waits for the others: when it is its turn."""
        return self.members.answers.later(reply)

    def join(self, group: AnyGroup, joining: Joining) -> None:
        """JoinGroup; the request says how to answer it."""
        if isinstance(group, ConsumerGroup):
            self.classic_members.join(group, joining)
        else:
            self.members.join(group, joining)

    def sync(self, group: AnyGroup, syncing: Syncing) -> None:
        """SyncGroup; the request says how to answer it."""
        if isinstance(group, ConsumerGroup):
            self.classic_members.sync(group, syncing)
        else:
            self.members.sync(group, syncing)

    def heartbeat(self, group: AnyGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat; returns whether the member has to join again."""
        if isinstance(group, ConsumerGroup):
            return self.classic_members.heartbeat(group, member_id, instance_id, generation)
        return self.members.heartbeat(group, member_id, instance_id, generation)

    def leave(
        self, group: AnyGroup, member_id: str, instance_id: str | None, reply: Callable[[ErrorCode], None]
    ) -> None:
        """LeaveGroup of one member; `reply` gets the outcome."""
        if isinstance(group, ConsumerGroup):
            self.classic_members.leave(group, member_id, instance_id, reply)
        else:
            reply(self.members.leave(group, member_id, instance_id))

    # -- what ends -------------------------------------------------------------------------------------------------

    def delete(self, group_id: str, reply: Callable[[ErrorCode], None]) -> None:
        """Delete a group without members and its offsets; `reply` gets the outcome when that is durable."""
        try:
            shard = self.shard_of(group_id)
        except KafkaError as error:
            reply(error.code)
            return
        group = shard.state.get(group_id)
        if group is None:
            reply(ErrorCode.GROUP_ID_NOT_FOUND)
        elif not group.is_empty:
            reply(ErrorCode.NON_EMPTY_GROUP)
        elif self.offsets.remove_group(group, _tombstones(group), reply):
            del shard.state[group_id]
            self._unload_group(group, ErrorCode.UNKNOWN_MEMBER_ID)

    async def expire(self) -> None:
        """Remove offsets whose time is over, and groups that have neither members nor offsets."""
        now_ms = self._now_ms()
        for number, group in enumerate(self.groups, start=1):
            if group.is_dead:
                continue
            places = self.offsets.expired(group, now_ms)
            is_last = len(places) == len(group.offsets.committed) and not group.offsets.in_flight
            if is_last and group.can_be_forgotten:
                self.delete(group.group_id, _ignore)
            elif places:
                self.offsets.remove(group, places, _ignore)
            if number % GROUPS_A_TURN == 0:
                await asyncio.sleep(0)

    def _topics_removed(self, names: Iterable[str]) -> None:
        """Offsets of a deleted topic mean nothing to a later one of the same name."""
        gone = set(names)
        if GROUP_METADATA_TOPIC in gone:
            self._shards.clear()
            return
        for group in self.groups:
            places = [place for place in group.offsets.places if place[0] in gone]
            if places and not group.is_dead:
                self.offsets.remove(group, places, _ignore)


def _tombstones(group: AnyGroup) -> list[Entry]:
    """What takes the group out of the log, its offsets aside."""
    if isinstance(group, ConsumerGroup):
        return removal(group)
    return [(group_key(group.group_id), None)] if group.generation > 0 else []


def _ignore(_: ErrorCode) -> None:
    """Nobody waits for the outcome; what could not be removed is removed another time."""
