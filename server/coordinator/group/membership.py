"""What changes classic groups, put together: each part owns a step of the rebalance protocol.

Kafka's classic protocol with its static members (KIP-345) and given-out member ids (KIP-394). Everything runs on the
loop's thread and to its end, but for writing down a large group; answers are sent when it is their turn later on, so
that a client's next request never finds a group in the middle of a change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode
from ..coordinator_log import CoordinatorLog
from .answers import Answers
from .assignments import Assignments
from .group import Group
from .group_writer import GroupWriter
from .heartbeats import ClassicHeartbeats
from .joins import Joins
from .leaving import Leaving
from .member import JoinResult, SyncResult
from .rebalances import Rebalances
from .states import GroupState
from .static_members import StaticMembers

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...runtime.ports import Ports
    from ...runtime.turns import Turns


class ClassicMembership:
    """The parts by which classic groups change. Loop-thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        log: CoordinatorLog,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        turns: Turns,
        *,
        partition_of: Callable[[str], int],
        on_idle: Callable[[Group], None],
    ) -> None:
        self._now_ms = now_ms = ports.now_ms
        self.answers = answers = Answers(loop, turns)
        self.writer = writer = GroupWriter(config, log, partition_of)
        self.heartbeats = heartbeats = ClassicHeartbeats(loop, self._session_expired)
        self.rebalances = rebalances = Rebalances(config, writer, heartbeats, answers, turns, now_ms=now_ms, loop=loop)
        static_members = StaticMembers(writer, heartbeats, rebalances)
        self.joins = Joins(config, heartbeats, rebalances, static_members, token_bytes=ports.token_bytes, loop=loop)
        self.assignments = Assignments(writer, heartbeats, rebalances, answers, turns, now_ms=now_ms)
        self.leaving = Leaving(heartbeats, rebalances, on_idle)

    def _session_expired(self, group: Group, member_id: str) -> None:
        self.leaving.session_expired(group, member_id)

    def unload(self, group: Group, error: ErrorCode) -> None:
        """This broker does not coordinate the group any more, or it is deleted."""
        self.rebalances.cancel(group)
        sessions = self.heartbeats.sessions
        for member_id in group.pending_members:
            sessions.end(group, member_id)
        for member in group.members.values():
            sessions.end(group, member.member_id)
            group.answer_join(member, JoinResult(error, member.member_id))
            group.answer_sync(member, SyncResult(error))
        group.transition_to(GroupState.DEAD, self._now_ms())
