"""The group coordinator: which groups are this broker's, loading them, and finding the one a request is about.

A group belongs to the leader of one partition of `__consumer_offsets`, its *shard* here. Everything a group must not
forget is a record there, so whoever leads the partition next knows what this broker knew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.producer_identity import ProducerIdentity
from ....protocol.room_logger import room_logger
from ...metadata.topic_names import GROUP_METADATA_TOPIC
from ...runtime.turns import GROUPS, LOOKED_FOR_IDLE, Pace, steps_of
from ..allowance import Allowance, Maker
from ..confirmations import Confirmations
from ..coordinator_log import CoordinatorLog, ignore
from ..coordinator_topic import CoordinatorTopic, TopicCreator
from ..latest_records import LatestRecords
from ..shards import Shard, Shards
from .answers import Later
from .classic_groups import ClassicGroups
from .consumer.groups import ConsumerGroups
from .group import Group
from .group_log import groups_of
from .group_port import GroupPort
from .group_records import NO_OFFSET_KEY
from .kinds import GroupKinds, classic_group
from .member import Leaver, LeaveReply
from .offset_commits import Commits, Committer, OffsetCommits, Reply
from .offsets import Place
from .removed_topics import RemovedTopics
from .requests import Joining, Syncing
from .transactional_offsets import TransactionalOffsets

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...config.dynamic_config import DynamicConfig
    from ...metadata.metadata_cache import MetadataCache
    from ...replication.replica_manager import ReplicaManager
    from ...runtime.ports import Ports
    from ...runtime.turns import LongWork, Turns

logger = room_logger("groups")

T = TypeVar("T")


GroupShard = Shard[dict[str, GroupPort]]
"""The groups of one partition of `__consumer_offsets`, by name."""


class GroupCoordinator:
    """Kafka's GroupCoordinator, for groups of all kinds and plain offsets. Loop-thread only."""

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
        turns: Turns,
        long_work: LongWork,
    ) -> None:
        self._now_ms = ports.now_ms
        self._allowance = Allowance()
        self._topic = CoordinatorTopic(
            GROUP_METADATA_TOPIC, metadata=metadata, controller=controller, loop=loop, on_created=self.start
        )
        log = CoordinatorLog(GROUP_METADATA_TOPIC, replica_manager, ports.now_ms, loop)
        self._shards: Shards[dict[str, GroupPort]] = Shards(
            log, loop, empty=dict, build=self._build, resume=self._resume_all, unload=self._unload
        )
        self._confirmations = Confirmations(log, loop, (NO_OFFSET_KEY, None), lambda: config.offsets_commit_timeout_ms)
        self._classic = ClassicGroups(
            config, log, ports, loop, turns, partition_of=self._index_of, on_idle=self._forget
        )
        self.consumer_groups = ConsumerGroups(
            config,
            dynamic_config,
            log,
            ports,
            loop,
            table=self,
            classic=self._classic,
            metadata=metadata,
            partition_of=self._index_of,
        )
        self._kinds = GroupKinds(self._classic, self.consumer_groups)
        self._offsets = OffsetCommits(config, log, self._index_of, on_sign_of_life=self._heard_of)
        self._transactional = TransactionalOffsets(config, log, self._index_of, self.find)
        self._removed_topics = RemovedTopics(self._offsets, long_work, self._served)
        metadata.on_topics_removed.append(self._topics_removed)

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to load the groups of all partitions that this broker leads."""
        self._shards.start(self.partition_count or 0)

    def move_away_and_back(self) -> None:
        """Give all groups up and load them anew, as if another broker had led their partitions for a moment."""
        self._shards.clear()
        self.start()

    def expire_sessions(self, group_id: str) -> None:
        """The members of a group have not been heard of for too long."""
        for kind in self._kinds:
            kind.expire_sessions(group_id)

    async def close(self) -> None:
        """Give all groups up: members that wait are told to look for another coordinator."""
        await self._topic.close()
        await self._shards.close()
        for kind in self._kinds:
            kind.close()

    # -- where a group is ------------------------------------------------------------------------------------------

    async def find_coordinator(self, group_id: str) -> int:
        """The id of the broker that coordinates a group; the topic for what it commits is made if need be.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE.
        """
        return await self._topic.find_coordinator(group_id)

    def place_of(self, group_id: str) -> Place:
        """The partition that has what a group commits."""
        return GROUP_METADATA_TOPIC, self._index_of(group_id)

    @property
    def partition_count(self) -> int | None:
        """Partitions of `__consumer_offsets`; None while there is no such topic."""
        return self._topic.partition_count

    def _index_of(self, group_id: str) -> int:
        return self._topic.partition_of(group_id) or 0

    def shard_of(self, group_id: str) -> GroupShard:
        """The loaded shard that a group belongs to. Raises KafkaError as `Shards.loaded`."""
        return self._shards.loaded(self._topic.partition_of(group_id))

    def check_served(self, group_id: str) -> None:
        """Raises KafkaError as `shard_of` unless the group, which need not exist, is served here."""
        self.shard_of(group_id)

    def find(self, group_id: str) -> GroupPort | None:
        """A group of this broker, None if it does not exist. Raises KafkaError as `shard_of`."""
        return self.shard_of(group_id).state.get(group_id)

    def existing(self, group_id: str) -> GroupPort:
        """A group of this broker. Raises KafkaError GROUP_ID_NOT_FOUND, and as `shard_of`."""
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def classic_group(self, group_id: str) -> Group:
        """A classic group. Raises KafkaError as `existing`, also for a group of another kind."""
        return classic_group(self.existing(group_id))

    def _served(self, group_id: str) -> GroupPort | None:
        """A group that is served here now."""
        try:
            return self.find(group_id)
        except KafkaError:
            return None

    async def not_confirmed(self, group_ids: Iterable[str]) -> frozenset[str]:
        """Those of these groups of which nobody can say that this broker still coordinates them.

        Who has followed it may have taken offsets that are not known here. Costs what `Confirmations.is_led` says.
        """
        indexes: dict[str, int] = {}
        pace = Pace()
        for group_id in group_ids:
            indexes[group_id] = self._index_of(group_id)
            await pace.step(steps_of(group_id))
        asked = list(set(indexes.values()))
        led = await asyncio.gather(*map(self._confirmations.is_led, asked))
        lost = {index for index, is_led in zip(asked, led, strict=True) if not is_led}
        return frozenset(group_id for group_id, index in indexes.items() if index in lost) if lost else frozenset()

    def check_room(self, maker: Maker) -> None:
        """Raises KafkaError GROUP_MAX_SIZE_REACHED if the client must not make one more group.

        Groups that it made and that hold nothing go before their time if that makes room.
        """
        if self._allowance.has_room(maker):
            return
        for group_id in self._allowance.next_of(maker, LOOKED_FOR_IDLE):
            group = self.find(group_id)
            if group is not None and group.is_idle:
                self.delete(group_id, ignore)
        if not self._allowance.has_room(maker):
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, "This client has made as many groups as it may.")

    def add(self, group: GroupPort, maker: Maker) -> None:
        """Add a group. Raises KafkaError as `shard_of`."""
        self.put(group)
        self._allowance.made(group.group_id, maker)

    def put(self, group: GroupPort) -> None:
        """Put a group in the place of the one of its name. Raises KafkaError as `shard_of`."""
        self.shard_of(group.group_id).state[group.group_id] = group

    def _drop(self, group: GroupPort) -> None:
        """Remove a group."""
        del self.shard_of(group.group_id).state[group.group_id]
        self._allowance.gone(group.group_id)
        self._unload_group(group, ErrorCode.UNKNOWN_MEMBER_ID)

    @property
    def groups(self) -> Iterator[GroupPort]:
        """All groups of this broker."""
        for shard in self._shards:
            yield from list(shard.state.values())

    @property
    def is_loading(self) -> bool:
        """Whether some groups are not known yet."""
        return self._shards.is_loading

    # -- shards ----------------------------------------------------------------------------------------------------

    async def _build(self, records: LatestRecords) -> dict[str, GroupPort]:
        return await groups_of(records, self._now_ms())

    async def _resume_all(self, groups: dict[str, GroupPort]) -> None:
        pace = Pace(GROUPS)
        for group in list(groups.values()):
            self._resume(group)
            await pace.step()

    def _unload(self, groups: dict[str, GroupPort]) -> None:
        for group in groups.values():
            self._allowance.gone(group.group_id)
            self._unload_group(group, ErrorCode.NOT_COORDINATOR)

    def _resume(self, group: GroupPort) -> None:
        """A group was loaded: its members have their full session timeouts from now on."""
        self._transactional.resume(group)
        self._kinds.of(group).resume(group)

    def _unload_group(self, group: GroupPort, error: ErrorCode) -> None:
        """This broker does not coordinate the group any more, or it is deleted."""
        self._transactional.unload(group)
        self._kinds.of(group).unload(group, error)

    def _forget(self, group: Group) -> None:
        """Remove a group that has nothing but ids given out."""
        shard = self._shards.known(self._index_of(group.group_id))
        if shard is not None and shard.state.get(group.group_id) is group:
            self.delete(group.group_id, ignore)

    # -- members that speak the classic protocol, whatever kind of group they find ----------------------------------

    def later(self, reply: Callable[[T], None]) -> Later[T]:
        """How a member is answered that waits for the others: when it is its turn."""
        return self._classic.later(reply)

    def join(self, group_id: str, joining: Joining) -> None:
        """JoinGroup; the request says how to answer it. Who brings no member id makes the group if there is none.

        Raises KafkaError as `shard_of` and `check_room`.
        """
        group = self.find(group_id)
        if group is not None:
            self._kinds.of(group).join(group, joining)
        elif joining.member_id:
            joining.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            self._join_new(Group(group_id, self._now_ms()), joining)

    def _join_new(self, group: Group, joining: Joining) -> None:
        """Somebody is the first to join a group; as in Kafka 4 it is there and in the log even if he is refused."""
        maker = Maker(joining.client_host, joining.client_id)
        self.check_room(maker)
        if not self._classic.begin(group):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group could not be written.")
        self.add(group, maker)
        self._classic.join(group, joining)

    def commit(self, group_id: str, committer: Committer, offsets: Commits, reply: Reply) -> None:
        """OffsetCommit; `reply` gets the outcome when it is durable. A consumer without a group makes one by it.

        Raises KafkaError as `shard_of` and `check_room`, and ILLEGAL_GENERATION or GROUP_ID_NOT_FOUND.
        """
        self._removed_topics.settle(group_id)
        group = self.find(group_id)
        if group is None and committer.generation >= 0:
            raise KafkaError(committer.no_group_error, "there is no such group")
        if group is None and offsets:
            self.check_room(committer.maker)
            group = Group(group_id, self._now_ms())
            self.add(group, committer.maker)
        if group is None:
            reply(ErrorCode.NONE)
            return
        self._offsets.commit(group, committer, offsets, reply)
        if group.is_idle and not group.is_logged:
            self._drop(group)

    def commit_in_transaction(
        self, group_id: str, committer: Committer, producer: ProducerIdentity, offsets: Commits, reply: Reply
    ) -> None:
        """TxnOffsetCommit; as `commit`, but they count when the producer's transaction is committed."""
        self._removed_topics.settle(group_id)
        group = self.find(group_id)
        if group is None and committer.generation >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, "there is no such group")
        if group is None:
            self.check_room(committer.maker)
            group = Group(group_id, self._now_ms())
            self.add(group, committer.maker)
        error = group.check_commit_in_transaction(
            committer.member_id, committer.group_instance_id, committer.generation
        )
        if error is ErrorCode.NONE:
            self._transactional.commit(group, producer, offsets, reply)
        else:
            reply(error)

    def remove_offsets(self, group: GroupPort, places: Iterable[Place], reply: Reply) -> None:
        """OffsetDelete; `reply` gets the outcome when it is durable."""
        self._offsets.remove(group, places, reply)

    def check_loaded(self, index: int) -> None:
        """Raises KafkaError as `Shards.loaded` unless groups of that partition are served here."""
        self._shards.loaded(index)

    def end_transaction(self, index: int, producer_id: int, *, is_commit: bool) -> None:
        """The marker of a transaction is durable in that partition."""
        self._transactional.end(index, producer_id, is_commit=is_commit)

    def _heard_of(self, group: GroupPort, member_id: str) -> None:
        self._kinds.of(group).heard_of(group, member_id)

    def sync(self, group: GroupPort, syncing: Syncing) -> None:
        """SyncGroup; the request says how to answer it."""
        self._kinds.of(group).sync(group, syncing)

    def heartbeat(self, group: GroupPort, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat; returns whether the member has to join again."""
        return self._kinds.of(group).heartbeat(group, member_id, instance_id, generation)

    def leave(self, group: GroupPort, leaving: Sequence[Leaver], reply: LeaveReply) -> None:
        """LeaveGroup; `reply` gets the outcome when it is durable."""
        self._kinds.of(group).leave(group, leaving, reply)

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
        elif self._offsets.remove_group(group, self._kinds.of(group).tombstones(group), reply):
            self._drop(group)

    async def expire(self) -> None:
        """Remove offsets whose time is over, and groups that have neither members nor offsets."""
        now_ms = self._now_ms()
        pace = Pace(GROUPS)
        for group in self.groups:
            if group.is_dead:
                continue
            places = self._offsets.expired(group, now_ms)
            offsets = group.offsets
            is_last = len(places) == len(offsets.committed) and not offsets.in_flight and not offsets.pending
            if is_last and group.can_be_forgotten:
                self.delete(group.group_id, ignore)
            elif places:
                self._offsets.remove(group, places, ignore)
            await pace.step()

    def _topics_removed(self, names: Iterable[str]) -> None:
        """Offsets of a deleted topic mean nothing to a later one of the same name."""
        gone = set(names)
        if GROUP_METADATA_TOPIC in gone:
            self._shards.clear()
            return
        self._removed_topics.begin(gone, chain.from_iterable(shard.state for shard in self._shards))
