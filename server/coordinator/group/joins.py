"""Members of classic groups coming, and coming back for each rebalance (JoinGroup)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from ....protocol.errors import ErrorCode
from .group import Group
from .heartbeats import ClassicHeartbeats
from .member import NO_MEMBER, Member
from .rebalances import Rebalances
from .requests import Joining
from .states import GroupState
from .static_members import StaticMembers

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a JoinGroup of somebody new may wait for the rebalance to end before its client is taken for gone."""


class Joins:
    """Lets members in, under ids that it gives them (KIP-394). Loop-thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        heartbeats: ClassicHeartbeats,
        rebalances: Rebalances,
        static_members: StaticMembers,
        *,
        token_bytes: Callable[[int], bytes],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._config = config
        self._sessions = heartbeats.sessions
        self._rebalances = rebalances
        self._static_members = static_members
        self._token_bytes = token_bytes
        self._loop = loop

    def join(self, group: Group, joining: Joining) -> None:
        """Let somebody in, or in again; `joining.reply` is called soon or when the rebalance is over."""
        if group.state is GroupState.DEAD:
            joining.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if not self._has_room(group, joining.member_id):
            group.pending_members.discard(joining.member_id)
            joining.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
        elif not group.supports(joining.protocol_type, joining.protocols):
            joining.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif joining.member_id == NO_MEMBER:
            self._join_unknown(group, joining)
        elif joining.member_id in group.pending_members and joining.group_instance_id is None:
            self._add(group, joining, joining.member_id)
        else:
            self._join_known(group, joining)
        self._rebalances.check_joins(group)

    def _has_room(self, group: Group, member_id: str) -> bool:
        limit = self._config.group_max_size
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.is_awaiting_join) or group.awaiting_join < limit
        return member is not None or len(group.members) < limit

    def _join_unknown(self, group: Group, joining: Joining) -> None:
        """Somebody without an id: a static member that starts or restarts, or a dynamic one that is new."""
        instance_id = joining.group_instance_id
        member_id = f"{joining.client_id if instance_id is None else instance_id}-{self._random_uuid()}"
        if instance_id is not None:
            former = group.static_member_id(instance_id)
            if former is None:
                self._add(group, joining, member_id)
            else:
                self._static_members.replace(group, joining, former, member_id)
        elif joining.needs_known_id and len(group.pending_members) >= self._config.group_max_size:
            joining.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif joining.needs_known_id:
            group.pending_members.add(member_id)
            self._sessions.restart(group, member_id, joining.session_timeout_ms)
            joining.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(group, joining, member_id)

    def _random_uuid(self) -> UUID:
        return UUID(bytes=self._token_bytes(16), version=4)

    def _join_known(self, group: Group, joining: Joining) -> None:
        """A member joins again: because there is a rebalance, because it wants one, or because an answer got lost."""
        error = group.check_member(joining.member_id, joining.group_instance_id)
        if error:
            joining.refuse(error)
            return
        member = group.members[joining.member_id]
        is_leader = group.leader_id == member.member_id
        if group.state is GroupState.EMPTY:
            joining.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        elif group.state is GroupState.COMPLETING_REBALANCE and member.protocols == joining.protocols:
            joining.reply(group.join_result(member, with_members=is_leader))
        elif group.state is GroupState.STABLE and not is_leader and member.protocols == joining.protocols:
            joining.reply(group.join_result(member, with_members=False))
        else:
            self._update(group, member, joining)

    def _add(self, group: Group, joining: Joining, member_id: str) -> None:
        member = Member(
            member_id=member_id,
            group_instance_id=joining.group_instance_id,
            client_id=joining.client_id,
            client_host=joining.client_host,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            session_timeout_ms=joining.session_timeout_ms,
            protocol_type=joining.protocol_type,
            protocols=joining.protocols,
            is_new=True,
        )
        if group.state is GroupState.PREPARING_REBALANCE and group.generation == 0:
            group.newest_member_at = self._loop.time()
        group.add(member, joining.reply)
        self._sessions.restart(group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalances.maybe_begin(group, f"{member_id!r} joins")

    def _update(self, group: Group, member: Member, joining: Joining) -> None:
        group.update(member, joining.protocols, joining.rebalance_timeout_ms, joining.session_timeout_ms, joining.reply)
        self._rebalances.maybe_begin(group, f"{member.member_id!r} joins again")
