"""Members of classic groups going: by LeaveGroup, or because nothing was heard of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....protocol.errors import ErrorCode
from .group import Group
from .heartbeats import ClassicHeartbeats
from .member import NO_MEMBER, JoinResult, Leaver, LeaveReply, LeaveResult, SyncResult
from .rebalances import Rebalances
from .states import GroupState


class Leaving:
    """Lets members go, and has the others rebalance. Loop-thread only."""

    def __init__(self, heartbeats: ClassicHeartbeats, rebalances: Rebalances, on_idle: Callable[[Group], None]) -> None:
        self._sessions = heartbeats.sessions
        self._rebalances = rebalances
        self._on_idle = on_idle

    def leave(self, group: Group, leaving: Sequence[Leaver], reply: LeaveReply) -> None:
        """Members go, and the others rebalance once for all of them.

        `reply` is called when they are gone; if they were the last ones, when it is durable that the group is empty.
        """
        if group.state is GroupState.DEAD:
            reply(LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        before = len(group.members)
        outcomes = [self._let_go(group, one) for one in leaving]
        if len(group.members) == before:
            reply(LeaveResult(ErrorCode.NONE, outcomes))
            return

        def gone(outcome: ErrorCode) -> None:
            reply(LeaveResult(outcome, () if outcome else outcomes))

        group.leavers.append(gone)
        self._rebalances.members_left(group, f"{before - len(group.members)} members leave")
        if gone in group.leavers:
            group.leavers.remove(gone)
            gone(ErrorCode.NONE)

    def _let_go(self, group: Group, leaver: Leaver) -> ErrorCode:
        """Remove who is named by its id, its instance id or both; for now the others hear nothing of it."""
        member_id = leaver.member_id
        if member_id == NO_MEMBER:
            present = group.static_member_id(leaver.group_instance_id)
            if present is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = present
        elif member_id in group.pending_members:
            self._forget_pending(group, member_id)
            return ErrorCode.NONE
        else:
            error = group.check_member(member_id, leaver.group_instance_id)
            if error:
                return error
        self._take_out(group, member_id)
        return ErrorCode.NONE

    def session_expired(self, group: Group, member_id: str) -> None:
        """Nothing was heard of a member, or of an id that was given out, for its session timeout."""
        if group.state is GroupState.DEAD:
            return
        if member_id in group.pending_members:
            self._forget_pending(group, member_id)
            return
        member = group.members.get(member_id)
        if member is None:
            return
        if member.is_waiting:
            self._sessions.restart(group, member_id, member.session_timeout_ms)
            return
        self._remove(group, member_id, f"the session of {member_id!r} expired")

    def _forget_pending(self, group: Group, member_id: str) -> None:
        group.pending_members.discard(member_id)
        self._sessions.end(group, member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            self._rebalances.check_joins(group)
        elif group.is_idle and group.generation == 0:
            self._on_idle(group)

    def _remove(self, group: Group, member_id: str, reason: str) -> None:
        """Let a member go and see what that means for the others."""
        self._take_out(group, member_id)
        self._rebalances.members_left(group, reason)

    def _take_out(self, group: Group, member_id: str) -> None:
        """A member is gone, and what waits of it is answered."""
        member = group.members[member_id]
        group.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER))
        group.answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self._sessions.end(group, member_id)
        group.remove(member_id)
