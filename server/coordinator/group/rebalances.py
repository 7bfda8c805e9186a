"""Rebalances of classic groups: everybody joins again, a generation begins, and everybody fetches its assignment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode
from ....protocol.room_logger import room_logger
from ...replication.delayed_operation import DelayedOperation, Purgatory
from ...runtime.log_limit import LimitedLog
from .answers import Answers
from .group import Group
from .group_writer import GroupWriter
from .heartbeats import ClassicHeartbeats
from .member import JoinReply, JoinResult, Member, SyncResult
from .states import GroupState

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...runtime.turns import Turns

logger = room_logger("groups")


class Rebalances:
    """When they begin and end, and the waits on the way. Loop-thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        writer: GroupWriter,
        heartbeats: ClassicHeartbeats,
        answers: Answers,
        turns: Turns,
        *,
        now_ms: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._config = config
        self._writer = writer
        self._heartbeats = heartbeats
        self._sessions = heartbeats.sessions
        self._answers = answers
        self._turns = turns
        self._now_ms = now_ms
        self._loop = loop
        self._changes = LimitedLog(logger, loop.time)
        self._joins = Purgatory("Rebalance", loop)
        self._syncs = Purgatory("Sync", loop)

    # -- joining ---------------------------------------------------------------------------------------------------

    def maybe_begin(self, group: Group, reason: str) -> None:
        """Begin a rebalance because the group has changed, unless one is on."""
        if group.can_rebalance:
            self.begin(group, reason)

    def begin(self, group: Group, reason: str) -> None:
        """Have everybody join again, and wait for that; members waiting for an assignment are told to join again."""
        self._changes.write(logging.INFO, "group %r: generation %d ends: %s", group.group_id, group.generation, reason)
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._syncs.cancel(group)
        was_empty = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE, self._now_ms())
        if was_empty:
            now, delay_ms = self._loop.time(), self._config.group_initial_rebalance_delay_ms
            group.newest_member_at = now
            latest = now + max(group.rebalance_timeout_ms, delay_ms) / 1000
            self._joins.watch(InitialDelayedJoin(self, group, latest), (group,), delay_ms)
        else:
            self._wait_for_joins(group)

    def _wait_for_joins(self, group: Group) -> None:
        waiting = DelayedJoin(self, group)
        if not waiting.try_complete():
            self._joins.watch(waiting, (group,), group.rebalance_timeout_ms)

    def prolong_initial_wait(self, group: Group, latest: float) -> bool:
        """Wait for the delay's length after the newest member, until `latest` by the loop; False if that is over.

        Kafka looks only when a delay ends, and then adds a whole one if anybody came during it: members who all come
        at once wait for two there.
        """
        until = min(group.newest_member_at + self._config.group_initial_rebalance_delay_ms / 1000, latest)
        wait_ms = (until - self._loop.time()) * 1000
        if wait_ms < 1:
            return False
        self._joins.watch(InitialDelayedJoin(self, group, latest), (group,), wait_ms)
        return True

    def end_wait(self, group: Group) -> None:
        """`complete_join` when it is its turn: the waits of groups that began together end together.

        Without members there is nobody to be answered: the group is empty at once, for whoever left it last.
        """
        if group.members:
            self._turns.add(partial(self.complete_join, group))
        else:
            self.complete_join(group)

    def complete_join(self, group: Group) -> None:
        """The wait is over: whoever has not joined is out, static members aside, and a new generation begins."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        for member in list(group.members.values()):
            if not (member.is_awaiting_join or member.is_static):
                self._sessions.end(group, member.member_id)
                group.remove(member.member_id)
        if group.members and not group.elect_joined_leader():
            # Sessions go on meanwhile: they end the wait for those who are not coming any more.
            self._joins.watch(DelayedJoin(self, group), (group,), group.rebalance_timeout_ms)
            return
        for member in group.members.values():
            if not member.is_awaiting_join:
                self._sessions.restart(group, member.member_id, member.session_timeout_ms)
        group.begin_generation(self._now_ms())
        if not group.members:
            leavers, group.leavers = group.leavers, []
            self._writer.store_empty(group, leavers)
            return
        message = "group %r: generation %d of %d members"
        self._changes.write(logging.INFO, message, group.group_id, group.generation, len(group.members))
        leader = group.join_result(group.members[group.leader_id or ""], with_members=True)
        self._answers.extend(
            partial(self._let_in, group, member, member.member_id, leader, reply)
            for member, reply in group.take_joins()
        )
        group.pending_syncs.update(group.members)
        self._syncs.watch(DelayedSync(self, group), (group,), group.rebalance_timeout_ms)

    def _let_in(self, group: Group, member: Member, member_id: str, leader: JoinResult, reply: JoinReply) -> None:
        """It is a member's turn to hear of the generation, under the id it joined with: it may have another by now."""
        self._heartbeats.hand_over(group, member)
        reply.now(leader if member_id == leader.member_id else leader._replace(member_id=member_id, members=()))

    def check_joins(self, group: Group) -> None:
        """Somebody has joined, or is waited for no longer."""
        self._joins.check(group)

    def members_left(self, group: Group, reason: str) -> None:
        """Members are gone: the rebalance that is on does not wait for them, or one begins."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self._joins.check(group)
        else:
            self.maybe_begin(group, reason)

    # -- fetching assignments --------------------------------------------------------------------------------------

    def synced(self, group: Group, member_id: str) -> None:
        """A member asks for its assignment."""
        group.pending_syncs.discard(member_id)
        self._syncs.check(group)

    def remove_unsynced(self, group: Group, generation: int) -> None:
        """Members of a generation have not asked for their assignment in time: they are out."""
        if group.generation != generation or not group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        late = list(group.pending_syncs)
        for member_id in late:
            self._sessions.end(group, member_id)
            group.remove(member_id)
        if late:
            self.begin(group, f"{len(late)} members did not ask for their assignment")

    def fail_syncs(self, group: Group, error: ErrorCode) -> None:
        """The generation comes to nothing: no assignment, and everybody who waits for one hears why."""
        for member in group.members.values():
            member.assignment = b""
            if member.sync_reply is not None:
                self._sessions.restart(group, member.member_id, member.session_timeout_ms)
                group.answer_sync(member, SyncResult(error))

    def cancel(self, group: Group) -> None:
        """Wait for nobody in the group any more."""
        self._joins.cancel(group)
        self._syncs.cancel(group)


class DelayedJoin(DelayedOperation):
    """Until all known members have joined, or the slowest has had its time."""

    __slots__ = ("_group", "_rebalances")

    def __init__(self, rebalances: Rebalances, group: Group) -> None:
        super().__init__()
        self._rebalances = rebalances
        self._group = group

    def try_complete(self) -> bool:
        return self._group.has_all_joined and self.force_complete()

    def on_complete(self) -> None:
        self._rebalances.end_wait(self._group)


class InitialDelayedJoin(DelayedJoin):
    """The first members of an empty group wait for more to come, and on after each that does, up to a limit."""

    __slots__ = ("_latest",)

    def __init__(self, rebalances: Rebalances, group: Group, latest: float) -> None:
        super().__init__(rebalances, group)
        self._latest = latest
        """Loop time at which nobody more is waited for."""

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        if not self._rebalances.prolong_initial_wait(self._group, self._latest):
            self._rebalances.end_wait(self._group)


class DelayedSync(DelayedOperation):
    """Until every member of a generation has asked for its assignment; whoever has not by the deadline is removed."""

    __slots__ = ("_generation", "_group", "_rebalances")

    def __init__(self, rebalances: Rebalances, group: Group) -> None:
        super().__init__()
        self._rebalances = rebalances
        self._group = group
        self._generation = group.generation

    def try_complete(self) -> bool:
        is_over = self._group.generation != self._generation or not self._group.pending_syncs
        return is_over and self.force_complete()

    def on_expiration(self) -> None:
        self._rebalances.remove_unsynced(self._group, self._generation)

    def on_complete(self) -> None:
        """Nothing is answered."""
