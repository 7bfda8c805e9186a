"""Static members (KIP-345) that come back after a restart of their client."""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from .group import Group
from .group_records import group_entry
from .group_writer import GroupWriter
from .heartbeats import ClassicHeartbeats
from .member import JoinResult, Member
from .rebalances import Rebalances
from .requests import Joining
from .states import GroupState


class StaticMembers:
    """Gives them their places again, under new ids. Loop-thread only."""

    def __init__(self, writer: GroupWriter, heartbeats: ClassicHeartbeats, rebalances: Rebalances) -> None:
        self._writer = writer
        self._sessions = heartbeats.sessions
        self._rebalances = rebalances

    def replace(self, group: Group, joining: Joining, old_id: str, new_id: str) -> None:
        """A static member has restarted: it gets its place, in a STABLE group without a rebalance where possible."""
        leader_before = group.leader_id
        self._sessions.end(group, old_id)
        instance_id = joining.group_instance_id
        assert instance_id is not None
        member = group.replace_static(instance_id, new_id)
        self._sessions.restart(group, new_id, joining.session_timeout_ms)
        former = member.protocols
        timeouts = (joining.rebalance_timeout_ms, joining.session_timeout_ms)
        if group.state is not GroupState.STABLE:
            group.update(member, joining.protocols, *timeouts, joining.reply)
            self._rebalances.maybe_begin(group, f"static member {instance_id!r} restarted")
            return
        group.update(member, joining.protocols, *timeouts, None)
        if group.select_protocol() != group.protocol_name:
            group.update(member, joining.protocols, *timeouts, joining.reply)
            self._rebalances.maybe_begin(group, f"static member {instance_id!r} restarted with other protocols")
            return
        generation = group.generation

        def stored(outcome: ErrorCode) -> None:
            if outcome is not ErrorCode.NONE:
                if group.members.get(new_id) is member and group.generation == generation:
                    self._sessions.end(group, new_id)
                    group.rename(member, old_id)
                    group.update(member, former, *timeouts, None)
                    self._sessions.restart(group, old_id, member.session_timeout_ms)
                joining.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
            elif group.members.get(new_id) is not member:
                joining.refuse(group.check_member(new_id, instance_id) or ErrorCode.UNKNOWN_MEMBER_ID)
            elif group.state is GroupState.PREPARING_REBALANCE:
                group.update(member, joining.protocols, *timeouts, joining.reply)
                self._rebalances.check_joins(group)
            else:
                _answer_replaced(group, member, joining, leader_before)

        assignments = {one.member_id: one.assignment for one in group.members.values()}
        self._writer.store(group, group_entry(group, assignments), stored)


def _answer_replaced(group: Group, member: Member, joining: Joining, leader_before: str | None) -> None:
    """The present generation for a static member that is back; a former leader shall not assign anew."""
    is_leader = group.leader_id == member.member_id
    if is_leader and joining.can_skip_assignment:
        joining.reply(group.join_result(member, with_members=True, skip_assignment=True))
        return
    result = group.join_result(member, with_members=False)
    joining.reply(
        JoinResult(
            result.error,
            member.member_id,
            result.generation,
            result.protocol_type,
            result.protocol_name,
            leader_before or "",
        )
    )
