"""The parts of a rebalance protocol with member epochs that do not depend on the type of group."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ....common.room_logger import room_logger
from ....protocol.errors import ErrorCode
from ..coordinator_log import TOO_LARGE, WRITE_ERRORS, CoordinatorRecord, ResponseCallback, ignore
from .classic_group import JoinRequest, LeaveReply, LeaveResult, LeavingMember, SyncRequest, SyncResult
from .group_metadata_manager import GroupMetadataManager, GroupTypeManager
from .member_timers import MemberTimers
from .modern_group import ModernGroup
from .modern_group_change import ModernGroupChange
from .modern_group_member import ModernGroupMember
from .subscription_metadata import SubscriptionMetadata

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...config.dynamic_config import DynamicConfig
    from ...metadata.metadata_cache import MetadataCache
    from ...runtime.ports import Ports

logger = room_logger("groups")

G = TypeVar("G", bound=ModernGroup[Any, Any])

RETRY_MS = 500
"""The delay before another attempt to remove a member whose removal could not be written."""

WRITE_ERRORS_FOR_MEMBERS = {
    **WRITE_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    **dict.fromkeys(TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
}
"""The error code for a member when a change of its group could not be written."""


class ModernGroupManager(GroupTypeManager[G]):
    """The sessions of members, and the writes of changes, of all groups of one type with member epochs.

    A change is in memory as soon as it is in the log; its response is sent once it is durable, in the loop's next turn.
    Requests of the classic protocol are rejected, unless a subclass supports its members. Owned by the group
    coordinator and used on the loop's thread only.
    """

    HEARTBEAT_INTERVAL: ClassVar[str]
    SESSION_TIMEOUT: ClassVar[str]
    ASSIGNMENT_INTERVAL: ClassVar[str]
    """The keys of the settings of these groups."""

    def __init__(
        self,
        config: BrokerConfig,
        dynamic_config: DynamicConfig,
        group_manager: GroupMetadataManager,
        metadata: MetadataCache,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._config = config
        self._dynamic_config = dynamic_config
        self._group_manager = group_manager
        self._metadata = metadata
        self._subscription_metadata = SubscriptionMetadata(metadata)
        self._now_ms = ports.now_ms
        self._loop = loop
        self._sessions: MemberTimers[G] = MemberTimers(loop, self._session_expired)
        self._deadlines: tuple[MemberTimers[G], ...] = (self._sessions,)
        """All timers of members; a subclass with further timers adds them."""

    # -- the classic protocol ------------------------------------------------------------------------------------------

    def join(self, group: G, joining: JoinRequest) -> None:
        joining.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def sync(self, group: G, syncing: SyncRequest) -> None:
        syncing.reply(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(self, group: G, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        return ErrorCode.UNKNOWN_MEMBER_ID

    def leave(self, group: G, leaving: Sequence[LeavingMember], reply: LeaveReply) -> None:
        # As in Kafka, each member has an error of its own.
        reply(LeaveResult(ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)))

    def extend_session(self, group: G, member_id: str) -> None:
        """Do nothing: in these protocols only heartbeats extend a session."""

    # -- removal of members --------------------------------------------------------------------------------------------

    @abstractmethod
    def _remove_members(self, group: G, member_ids: list[str], done: ResponseCallback) -> bool:
        """Remove members and bump the group epoch; return whether the change is in the log."""

    def _session_expired(self, group: G, member_id: str) -> None:
        self._fence_member(group, member_id, "its session expired")

    def _fence_member(self, group: G, member_id: str, reason: str) -> None:
        """Remove a member that missed a deadline."""
        if group.is_dead or member_id not in group.members:
            return
        logger.info("group %r: member %r is removed: %s", group.group_id, member_id, reason)
        if not self._remove_members(group, [member_id], ignore):
            self._sessions.restart(group, member_id, RETRY_MS)

    def _end_deadlines(self, group: G, member_id: str) -> None:
        """Cancel all deadlines of a member."""
        for deadlines in self._deadlines:
            deadlines.end(group, member_id)

    # -- records -------------------------------------------------------------------------------------------------------

    def _write(
        self,
        change: ModernGroupChange[G, Any, Any],
        done: ResponseCallback,
        *,
        before: Iterable[CoordinatorRecord] = (),
    ) -> bool:
        """Append a change, or undo it if the append fails; return whether it is in the log.

        `done` gets the outcome when the change is durable; a failed append also calls it, with its error. A change
        without records waits for the group's last append: no response may report a state that can still be lost.
        """
        group = change.group
        records = [*before, *change.records()]
        if not records:
            if group.writes:
                group.writes[-1].append(done)
            else:
                done(ErrorCode.NONE)
            return True
        if not self._append(group, records, done):
            change.undo()
            return False
        change.is_written = True
        for member_id in change.removed_members:
            self._end_deadlines(group, member_id)
        return True

    def _append(self, group: G, records: list[CoordinatorRecord], done: ResponseCallback) -> bool:
        """Append records of a group; return whether they are in the log. `done` gets the outcome when it is known."""
        waiting = [done]

        def written(outcome: ErrorCode) -> None:
            if waiting in group.writes:
                group.writes.remove(waiting)
            for one in waiting:
                self._loop.call_soon(one, WRITE_ERRORS_FOR_MEMBERS.get(outcome, outcome))

        group.writes.append(waiting)
        return self._group_manager.append(group.group_id, records, written)

    # -- settings: the group's value, or the broker's ------------------------------------------------------------------

    def _setting(self, group: G, name: str) -> int:
        return self._dynamic_config.group_number(group.group_id, name)

    def _heartbeat_interval_ms(self, group: G) -> int:
        return self._setting(group, self.HEARTBEAT_INTERVAL)

    def _session_timeout_ms(self, group: G) -> int:
        return self._setting(group, self.SESSION_TIMEOUT)

    def _assignment_interval_ms(self, group: G) -> int:
        """Return the minimum time between two assignments (KIP-1263)."""
        return self._setting(group, self.ASSIGNMENT_INTERVAL)

    # -- loading and unloading -----------------------------------------------------------------------------------------

    def on_group_loaded(self, group: G) -> None:
        """Start the deadlines of a loaded group: each member has its full timeouts."""
        for member in group.members.values():
            self._resume_member(group, member)

    def _resume_member(self, group: G, member: ModernGroupMember) -> None:
        self._sessions.restart(group, member.member_id, self._session_timeout_ms(group))

    def on_group_unloaded(self, group: G, error: ErrorCode) -> None:
        """Cancel the deadlines of a group that moved away, was deleted or became a group of another type.

        Only the reply functions of appends in flight wait, and those get the outcome of their append.
        """
        for deadlines in self._deadlines:
            deadlines.end_all(group)
        group.is_dead = True

    def close(self) -> None:
        """Cancel all deadlines."""
        for deadlines in self._deadlines:
            deadlines.close()

    def expire_sessions(self, group_id: str) -> None:
        """End the sessions of all members of a group now."""
        self._sessions.expire(group_id)
