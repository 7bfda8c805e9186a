"""Groups that go over from one protocol to the other while their members are at work (KIP-848's online migration).

`conversion.py` says what becomes of a group; here is whether it may, and the taking over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .....protocol.errors import ErrorCode, KafkaError
from .....protocol.room_logger import room_logger
from ...coordinator_log import Entry, ignore
from ..classic_groups import ClassicGroups
from ..group import CONSUMER_PROTOCOL_TYPE, Group
from ..group_port import GroupTable
from ..group_records import group_entry
from ..kinds import not_a_consumer_group
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


class Migration:
    """Upgrades groups to the consumer protocol, and takes them back to the classic one. Loop-thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        table: GroupTable,
        members: ConsumerMembership,
        classic: ClassicGroups,
        *,
        metadata: MetadataCache,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._table = table
        self._members = members
        self._classic = classic
        self._metadata = metadata
        self._now_ms = now_ms
        members.let_go = self.remove

    # -- to the consumer protocol ----------------------------------------------------------------------------------

    def upgraded(self, found: Group) -> tuple[Change, list[Entry]]:
        """A classic group as one of the consumer protocol, and what takes the classic one out of the log.

        Raises KafkaError GROUP_ID_NOT_FOUND if it may not become one.
        """
        tombstones = self._classic.tombstones(found)
        if found.is_empty:
            group = ConsumerGroup(found.group_id)
            group.offsets = found.offsets
            return Change(group), tombstones
        self._check_upgrade(found)
        return to_consumer(found, self._metadata), tombstones

    def _check_upgrade(self, group: Group) -> None:
        policy = self._config.group_consumer_migration_policy.lower()
        if policy not in ("upgrade", "bidirectional"):
            reason = "the online upgrade is disabled"
        elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            reason = "its members are no consumers"
        elif len(group.members) > self._members.most_members:
            reason = "it has too many members"
        else:
            return
        logger.info("group %r cannot be upgraded: %s", group.group_id, reason)
        raise not_a_consumer_group(group.group_id)

    def take_over(self, found: Group, group: ConsumerGroup) -> None:
        """The group is another one from now on: members waiting for the old one's rebalance join again."""
        if found.members:
            logger.info("group %r: %d members go over to the consumer protocol", group.group_id, len(found.members))
        self._classic.unload(found, ErrorCode.REBALANCE_IN_PROGRESS)
        self._table.put(group)
        self._members.resume(group)

    # -- back to the classic protocol ------------------------------------------------------------------------------

    def remove(self, group: ConsumerGroup, member_ids: list[str], done: Done) -> bool:
        """Members are gone; if only classic ones are left, the group is a classic one from now on."""
        left = [member for member in group.members.values() if member.member_id not in member_ids]
        if left and self.may_downgrade(left):
            return self.downgrade(group, left, done) is not None
        return self._members.remove(group, member_ids, done)

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
        if not self._members.append(group, [*removal(group), group_entry(classic, assignments)], done):
            return None
        logger.info("group %r: %d members go back to the classic protocol", group.group_id, len(left))
        self._make_classic(group, classic)
        if rebalances:
            self._classic.rebalance(classic, "it is a classic group again")
        return classic

    def emptied(self, group: ConsumerGroup) -> Group:
        """A group without members that a classic member wants to join. Raises KafkaError COORDINATOR_NOT_AVAILABLE."""
        classic = Group(group.group_id, self._now_ms())
        classic.offsets = group.offsets
        if not self._members.append(group, [*removal(group), group_entry(classic, {})], ignore):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group could not be written.")
        self._make_classic(group, classic)
        return classic

    def _make_classic(self, group: ConsumerGroup, classic: Group) -> None:
        classic.is_logged = True
        self._members.unload(group)
        self._table.put(classic)
        self._classic.resume(classic)
