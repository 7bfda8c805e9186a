"""Groups of the consumer protocol at the coordinator: finding, making and converting them, and letting them go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from .....protocol.errors import ErrorCode, KafkaError
from .....protocol.room_logger import room_logger
from ....replication.inter_broker_versions import is_at_least
from ...allowance import Maker
from ...coordinator_log import Entry, ignore
from ..any_group import AnyGroup
from ..group import CONSUMER_PROTOCOL_TYPE, Group
from ..group_records import group_entry, group_tombstones
from ..membership import ClassicMembership
from .beat import Beat, BeatReply
from .change import Change
from .conversion import to_classic, to_consumer
from .group import ConsumerGroup
from .member import ConsumerMember
from .membership import ConsumerMembership, Done
from .records import removal

if TYPE_CHECKING:
    from ....config.broker_config import BrokerConfig
    from ....metadata.metadata_cache import MetadataCache

logger = room_logger("groups")

PROTOCOL = "consumer"
SINCE_TOPIC_IDS = "2.8-IV1"
"""Of `inter.broker.protocol.version`: brokers of a cluster tell each other the ids of topics."""


class GroupTable(Protocol):
    """Where groups of both kinds are kept (GroupCoordinator)."""

    def find(self, group_id: str) -> AnyGroup | None: ...

    def put(self, group: AnyGroup) -> None: ...

    def check_room(self, maker: Maker) -> None: ...

    def add(self, group: AnyGroup, maker: Maker) -> None: ...


class ConsumerGroups:
    """What happens to whole groups. Loop-thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        table: GroupTable,
        members: ConsumerMembership,
        classic: ClassicMembership,
        *,
        metadata: MetadataCache,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._table = table
        self.members = members
        self._classic = classic
        self._metadata = metadata
        self._now_ms = now_ms
        members.let_go = self.remove

    @property
    def are_served(self) -> bool:
        """Whether the protocol is spoken here, which names topics by ids that have to be known."""
        config = self._config
        knows_ids = not config.zookeeper_connect or is_at_least(config.inter_broker_protocol_version, SINCE_TOPIC_IDS)
        return knows_ids and PROTOCOL in config.group_coordinator_rebalance_protocols

    # -- heartbeats ------------------------------------------------------------------------------------------------

    def heartbeat(self, beat: Beat, reply: BeatReply) -> None:
        """One heartbeat, whatever kind of group it finds. Raises KafkaError."""
        self.members.check(beat)
        found = self._table.find(beat.group_id)
        if beat.is_leaving:
            self.members.leave(self._existing(found, beat.group_id), beat, reply)
            return
        if isinstance(found, ConsumerGroup):
            self._beat(Change(found), beat, reply, ())
            return
        if not beat.is_joining:
            raise _not_found(beat.group_id)
        change, before = self._made_for(found, beat)
        if not self._beat(change, beat, reply, before):
            return
        if found is None:
            self._table.add(change.group, Maker(beat.client_host, beat.client_id))
        else:
            self._take_over(found, change.group)

    def _beat(self, change: Change, beat: Beat, reply: BeatReply, before: Iterable[Entry]) -> bool:
        try:
            return self.members.heartbeat(change.group, beat, reply, change=change, before=before)
        except KafkaError:
            change.undo()
            raise

    def _existing(self, found: AnyGroup | None, group_id: str) -> ConsumerGroup:
        if not isinstance(found, ConsumerGroup):
            raise _not_found(group_id)
        return found

    def _made_for(self, found: Group | None, beat: Beat) -> tuple[Change, list[Entry]]:
        """The group that somebody joins where there is none of this kind, and what takes the other one away."""
        if found is None:
            self._table.check_room(Maker(beat.client_host, beat.client_id))
            return Change(ConsumerGroup(beat.group_id)), []
        if found.is_empty:
            group = ConsumerGroup(beat.group_id)
            group.offsets = found.offsets
            return Change(group), group_tombstones(found)
        self._check_upgrade(found)
        return to_consumer(found, self._metadata), group_tombstones(found)

    def _check_upgrade(self, group: Group) -> None:
        """Raises KafkaError GROUP_ID_NOT_FOUND unless a classic group may become one of the consumer protocol."""
        policy = self._config.group_consumer_migration_policy.lower()
        if policy not in ("upgrade", "bidirectional"):
            reason = "the online upgrade is disabled"
        elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            reason = "its members are no consumers"
        elif len(group.members) > self.members.most_members:
            reason = "it has too many members"
        else:
            return
        logger.info("group %r cannot be upgraded: %s", group.group_id, reason)
        raise _not_found(group.group_id)

    def _take_over(self, found: Group, group: ConsumerGroup) -> None:
        """The group is another one from now on: members waiting for the old one's rebalance join again."""
        if found.members:
            logger.info("group %r: %d members go over to the consumer protocol", group.group_id, len(found.members))
        self._classic.unload(found, ErrorCode.REBALANCE_IN_PROGRESS)
        self._table.put(group)
        self.members.resume(group)

    # -- back to the classic protocol ------------------------------------------------------------------------------

    def remove(self, group: ConsumerGroup, member_ids: list[str], done: Done) -> bool:
        """Members are gone; if only classic ones are left, the group is a classic one from now on."""
        left = [member for member in group.members.values() if member.member_id not in member_ids]
        if left and self.may_downgrade(left):
            return self.downgrade(group, left, done) is not None
        return self.members.remove(group, member_ids, done)

    def may_downgrade(self, left: list[ConsumerMember]) -> bool:
        """Whether a group of which only these members are left becomes a classic one."""
        policy = self._config.group_consumer_migration_policy.lower()
        return (
            policy in ("downgrade", "bidirectional")
            and len(left) <= self._config.group_max_size
            and all(member.classic is not None for member in left)
        )

    def downgrade(
        self, group: ConsumerGroup, left: list[ConsumerMember], done: Done, *, rebalances: bool = True
    ) -> Group | None:
        """Make a classic group of these members; None if that could not be written.

        They are to join again if it `rebalances`, and else keep the partitions that they are said to have.
        """
        classic = to_classic(group, left, self._metadata, self._now_ms())
        assignments = {member.member_id: member.assignment for member in classic.members.values()}
        if not self.members.append(group, [*removal(group), group_entry(classic, assignments)], done):
            return None
        logger.info("group %r: %d members go back to the classic protocol", group.group_id, len(left))
        self._make_classic(group, classic)
        if rebalances:
            self._classic.rebalances.begin(classic, "it is a classic group again")
        return classic

    def emptied(self, group: ConsumerGroup) -> Group:
        """A group without members that a classic member wants to join. Raises KafkaError COORDINATOR_NOT_AVAILABLE."""
        classic = Group(group.group_id, self._now_ms())
        classic.offsets = group.offsets
        if not self.members.append(group, [*removal(group), group_entry(classic, {})], ignore):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group could not be written.")
        self._make_classic(group, classic)
        return classic

    def _make_classic(self, group: ConsumerGroup, classic: Group) -> None:
        classic.is_logged = True
        self.members.unload(group)
        self._table.put(classic)
        self._classic.heartbeats.resume(classic)


def _not_found(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
