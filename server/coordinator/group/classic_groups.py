"""What changes classic groups, put together: each part owns a step of the rebalance protocol.

Kafka's classic protocol with its static members (KIP-345) and given-out member ids (KIP-394). Everything runs on the
loop's thread and to its end, but for writing down a large group; answers are sent when it is their turn later on, so
that a client's next request never finds a group in the middle of a change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ....protocol.errors import ErrorCode
from ..coordinator_log import CoordinatorLog, Entry
from .answers import Answers, Later
from .assignments import Assignments
from .group import Group
from .group_records import group_tombstones
from .group_writer import GroupWriter
from .heartbeats import ClassicHeartbeats
from .joins import Joins
from .leaving import Leaving
from .member import JoinResult, Leaver, LeaveReply, SyncResult
from .rebalances import Rebalances
from .requests import Joining, Syncing
from .states import GroupState
from .static_members import StaticMembers

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...runtime.ports import Ports
    from ...runtime.turns import Turns


T = TypeVar("T")


class ClassicGroups:
    """The classic protocol as a `GroupKind`, and what else becomes of its groups. Loop-thread only."""

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
        """`on_idle` hears of a group that has nothing but ids given out."""
        self._now_ms = now_ms = ports.now_ms
        self._answers = answers = Answers(loop, turns)
        self._writer = writer = GroupWriter(config, log, partition_of)
        self._heartbeats = heartbeats = ClassicHeartbeats(loop, self._session_expired)
        self._rebalances = rebalances = Rebalances(config, writer, heartbeats, answers, turns, now_ms=now_ms, loop=loop)
        static_members = StaticMembers(writer, heartbeats, rebalances)
        self._joins = Joins(config, heartbeats, rebalances, static_members, token_bytes=ports.token_bytes, loop=loop)
        self._assignments = Assignments(writer, heartbeats, rebalances, answers, turns, now_ms=now_ms)
        self._leaving = Leaving(heartbeats, rebalances, on_idle)

    # -- what members ask for --------------------------------------------------------------------------------------

    def later(self, reply: Callable[[T], None]) -> Later[T]:
        """How a member is answered that waits for the others: when it is its turn."""
        return self._answers.later(reply)

    def join(self, group: Group, joining: Joining) -> None:
        """JoinGroup; answered soon or when the rebalance is over."""
        self._joins.join(group, joining)

    def sync(self, group: Group, syncing: Syncing) -> None:
        """SyncGroup; answered once the leader has brought the assignment and it is durable."""
        self._assignments.sync(group, syncing)

    def heartbeat(self, group: Group, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat; returns whether the member has to join again."""
        return self._heartbeats.heartbeat(group, member_id, instance_id, generation)

    def leave(self, group: Group, leaving: Sequence[Leaver], reply: LeaveReply) -> None:
        """LeaveGroup; `reply` gets the outcome when it is durable."""
        self._leaving.leave(group, leaving, reply)

    def heard_of(self, group: Group, member_id: str) -> None:
        """A commit is a sign of life."""
        self._heartbeats.touch(group, member_id)

    def _session_expired(self, group: Group, member_id: str) -> None:
        self._leaving.session_expired(group, member_id)

    def expire_sessions(self, group_id: str) -> None:
        """The members of a group have not been heard of for too long."""
        self._heartbeats.sessions.expire(group_id)

    # -- where a group begins and ends -----------------------------------------------------------------------------

    def begin(self, group: Group) -> bool:
        """Write down a group that is new; returns whether it is in the log, durable or not."""
        return self._writer.store_empty(group)

    def rebalance(self, group: Group, reason: str) -> None:
        """Have everybody join again."""
        self._rebalances.begin(group, reason)

    def resume(self, group: Group) -> None:
        """A group was loaded: its members have their full session timeouts from now on."""
        self._heartbeats.resume(group)

    def unload(self, group: Group, error: ErrorCode) -> None:
        """A group is not coordinated here any more, or it is deleted; whoever waits hears `error`."""
        self._rebalances.cancel(group)
        self._heartbeats.sessions.end_all(group)
        for member in group.members.values():
            group.answer_join(member, JoinResult(error, member.member_id))
            group.answer_sync(member, SyncResult(error))
        group.transition_to(GroupState.DEAD, self._now_ms())

    def tombstones(self, group: Group) -> list[Entry]:
        """What takes a group out of the log, its offsets aside."""
        return group_tombstones(group)

    def close(self) -> None:
        """Expect nothing of anybody."""
        self._heartbeats.sessions.close()
