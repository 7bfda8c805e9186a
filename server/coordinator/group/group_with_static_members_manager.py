"""The parts of a rebalance protocol that consumer groups and streams groups have in common."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from ....common.room_logger import room_logger
from ....protocol.errors import ErrorCode, KafkaError
from ..coordinator_log import ResponseCallback, ignore
from .classic_group import ClassicGroup
from .classic_group_manager import ClassicGroupManager
from .group_metadata_manager import GroupMetadataManager
from .group_records import new_group_metadata_record, new_group_tombstones
from .group_with_static_members import GroupWithStaticMembers
from .member_timers import MemberTimers
from .modern_group_change import ModernGroupChange
from .modern_group_manager import ModernGroupManager
from .modern_group_member import ModernGroupMember, StaticGroupMember

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...config.dynamic_config import DynamicConfig
    from ...metadata.metadata_cache import MetadataCache
    from ...runtime.ports import Ports

logger = room_logger("groups")

G = TypeVar("G", bound=GroupWithStaticMembers[Any, Any])


class GroupWithStaticMembersManager(ModernGroupManager[G]):
    """The rebalance protocol of groups with static members.

    A member has a deadline to revoke partitions that are assigned to other members. An empty group becomes a classic
    group when a classic member joins. Owned by the group coordinator and used on the loop's thread only.
    """

    def __init__(
        self,
        config: BrokerConfig,
        dynamic_config: DynamicConfig,
        group_manager: GroupMetadataManager,
        classic: ClassicGroupManager,
        metadata: MetadataCache,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(config, dynamic_config, group_manager, metadata, ports, loop)
        self._classic = classic
        self._revocations: MemberTimers[G] = MemberTimers(loop, self._revocation_timed_out)
        self._deadlines = (self._sessions, self._revocations)

    # -- members -------------------------------------------------------------------------------------------------------

    def _watch_revocation(self, group: G, former: StaticGroupMember, member: StaticGroupMember) -> None:
        """Begin the deadline of a revocation that `member`, the new state of `former`, has to confirm; or end it."""
        if not member.is_revoking:
            self._revocations.end(group, member.member_id)
        elif member.revoking is not former.revoking:
            self._revocations.restart(group, member.member_id, member.rebalance_timeout_ms)

    def _revocation_timed_out(self, group: G, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None and member.is_revoking:
            self._fence_member(group, member_id, "it did not confirm a revocation in time")

    def _leave_for_now(
        self, change: ModernGroupChange[G, Any, Any], member: StaticGroupMember, done: ResponseCallback
    ) -> None:
        """Write the state of a static member that leaves and will return: the session continues."""
        change.put_member(member)
        if self._write(change, done):
            self._revocations.end(change.group, member.member_id)

    def _resume_member(self, group: G, member: ModernGroupMember) -> None:
        super()._resume_member(group, member)
        assert isinstance(member, StaticGroupMember)
        if member.is_revoking and not member.is_classic:
            self._revocations.restart(group, member.member_id, member.rebalance_timeout_ms)

    # -- classic groups ------------------------------------------------------------------------------------------------

    def _downgrade_empty(self, group: G) -> ClassicGroup:
        """Replace an empty group by a classic group. Raises KafkaError COORDINATOR_NOT_AVAILABLE."""
        classic = ClassicGroup(group.group_id, self._now_ms())
        classic.offsets = group.offsets
        if not self._append(group, [*new_group_tombstones(group), new_group_metadata_record(classic, {})], ignore):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group could not be written.")
        self._make_classic(group, classic)
        return classic

    def _make_classic(self, group: G, classic: ClassicGroup) -> None:
        """Replace a group with a classic group whose record is in the log."""
        classic.is_logged = True
        self.on_group_unloaded(group, ErrorCode.NONE)
        self._group_manager.replace_group(classic)
        self._classic.on_group_loaded(classic)
