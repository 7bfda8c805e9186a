"""What changes groups of the consumer protocol, put together, and ConsumerGroupHeartbeat, by which there are any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from .....protocol.errors import ErrorCode, KafkaError
from ....replication.inter_broker_versions import is_at_least
from ...allowance import Maker
from ...coordinator_log import CoordinatorLog, Entry
from ..classic_groups import ClassicGroups
from ..group_port import GroupPort, GroupTable
from ..kinds import as_consumer_group, classic_group, consumer_group, not_a_consumer_group
from ..member import Leaver, LeaveReply
from ..requests import Joining, Syncing
from .beat import Beat, BeatReply
from .change import Change
from .classic_members import ClassicMembers
from .group import ConsumerGroup
from .membership import ConsumerMembership
from .migration import Migration
from .records import removal

if TYPE_CHECKING:
    from ....config.broker_config import BrokerConfig
    from ....config.dynamic_config import DynamicConfig
    from ....metadata.metadata_cache import MetadataCache
    from ....runtime.ports import Ports

PROTOCOL = "consumer"
SINCE_TOPIC_IDS = "2.8-IV1"
"""Of `inter.broker.protocol.version`: brokers of a cluster tell each other the ids of topics."""


class ConsumerGroups:
    """The consumer protocol as a `GroupKind`, and what only its own members ask for. Loop-thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        dynamic_config: DynamicConfig,
        log: CoordinatorLog,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        *,
        table: GroupTable,
        classic: ClassicGroups,
        metadata: MetadataCache,
        partition_of: Callable[[str], int],
    ) -> None:
        self._config = config
        self._table = table
        self._members = members = ConsumerMembership(
            config, dynamic_config, log, ports, loop, metadata=metadata, partition_of=partition_of
        )
        self._migration = Migration(config, table, members, classic, metadata=metadata, now_ms=ports.now_ms)
        self._classic_members = ClassicMembers(
            self._migration, members, classic, metadata=metadata, now_ms=ports.now_ms
        )

    # -- members of the consumer protocol --------------------------------------------------------------------------

    @property
    def are_served(self) -> bool:
        """Whether the protocol is spoken here, which names topics by ids that have to be known."""
        config = self._config
        knows_ids = not config.zookeeper_connect or is_at_least(config.inter_broker_protocol_version, SINCE_TOPIC_IDS)
        return knows_ids and PROTOCOL in config.group_coordinator_rebalance_protocols

    @property
    def assignors(self) -> list[str]:
        """The assignors that members may ask for, the default first."""
        return self._members.assignors

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        """A group of this kind. Raises KafkaError GROUP_ID_NOT_FOUND, and as the table."""
        return consumer_group(self._table.existing(group_id))

    def consumer_group_heartbeat(self, beat: Beat, reply: BeatReply) -> None:
        """One heartbeat, whatever kind of group it finds. Raises KafkaError."""
        self._members.check(beat)
        found = self._table.find(beat.group_id)
        group = as_consumer_group(found)
        if group is None:
            self._begin(found, beat, reply)
        elif beat.is_leaving:
            self._members.leave(group, beat, reply)
        else:
            self._beat(Change(group), beat, reply)

    def _begin(self, found: GroupPort | None, beat: Beat, reply: BeatReply) -> None:
        """There is no group of this kind yet: who joins makes one, or has the classic one become it."""
        if not beat.is_joining:
            raise not_a_consumer_group(beat.group_id)
        if found is None:
            maker = Maker(beat.client_host, beat.client_id)
            self._table.check_room(maker)
            change = Change(ConsumerGroup(beat.group_id))
            if self._beat(change, beat, reply):
                self._table.add(change.group, maker)
            return
        classic = classic_group(found)
        change, tombstones = self._migration.upgraded(classic)
        if self._beat(change, beat, reply, before=tombstones):
            self._migration.take_over(classic, change.group)

    def _beat(self, change: Change, beat: Beat, reply: BeatReply, *, before: Iterable[Entry] = ()) -> bool:
        try:
            return self._members.heartbeat(change.group, beat, reply, change=change, before=before)
        except KafkaError:
            change.undo()
            raise

    # -- members of the classic protocol ---------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, joining: Joining) -> None:
        """JoinGroup; it becomes a classic group if it has no members."""
        self._classic_members.join(group, joining)

    def sync(self, group: ConsumerGroup, syncing: Syncing) -> None:
        """SyncGroup; answered once what the member has is durable."""
        self._classic_members.sync(group, syncing)

    def heartbeat(self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat; returns whether the member has to join again."""
        return self._classic_members.heartbeat(group, member_id, instance_id, generation)

    def leave(self, group: ConsumerGroup, leaving: Sequence[Leaver], reply: LeaveReply) -> None:
        """LeaveGroup; members may be of either protocol, and `reply` gets the outcome when it is durable."""
        self._classic_members.leave(group, leaving, reply)

    def heard_of(self, group: ConsumerGroup, member_id: str) -> None:
        """A commit is no sign of life: members have to send heartbeats nevertheless."""

    # -- where a group begins and ends -----------------------------------------------------------------------------

    def resume(self, group: ConsumerGroup) -> None:
        """A group was loaded: its members have their full timeouts from now on."""
        self._members.resume(group)

    def unload(self, group: ConsumerGroup, error: ErrorCode) -> None:
        """A group is not coordinated here any more, or it is deleted. Nobody waits but for what is being written."""
        self._members.unload(group)

    def tombstones(self, group: ConsumerGroup) -> list[Entry]:
        """What takes a group out of the log, its offsets aside."""
        return removal(group)

    def expire_sessions(self, group_id: str) -> None:
        """The members of a group have not been heard of for too long."""
        self._members.sessions.expire(group_id)

    def close(self) -> None:
        """Expect nothing of anybody."""
        self._members.close()
