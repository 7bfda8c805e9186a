"""Signs of life of members of classic groups, and the sessions that they prolong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ....protocol.errors import ErrorCode
from .group import Group
from .member import Member
from .sessions import Sessions
from .states import HEARTBEAT_ANSWERS, GroupState


class ClassicHeartbeats:
    """Knows of each member until when it has to be heard of. Loop-thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_expired: Callable[[Group, str], None]) -> None:
        self.sessions: Sessions[Group] = Sessions(loop, on_expired)

    def heartbeat(self, group: Group, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """A sign of life; the answer tells the member whether it has to join again."""
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.check_member(member_id, group_instance_id) or group.check_generation(generation)
        if error:
            return error
        self.touch(group, member_id)
        return HEARTBEAT_ANSWERS[group.state]

    def touch(self, group: Group, member_id: str) -> None:
        """A member in order was heard of."""
        member = group.members.get(member_id)
        if member is not None:
            self.sessions.restart(group, member_id, member.session_timeout_ms)

    def hand_over(self, group: Group, member: Member) -> None:
        """The next step is the member's now, for which it has its session timeout."""
        member.is_answer_due = False
        if not group.is_dead and group.members.get(member.member_id) is member:
            self.sessions.restart(group, member.member_id, member.session_timeout_ms)

    def resume(self, group: Group) -> None:
        """A group was loaded: its members have their full session timeouts from now on."""
        for member in group.members.values():
            self.sessions.restart(group, member.member_id, member.session_timeout_ms)
