"""Members coming, going and staying: JoinGroup, SyncGroup, Heartbeat and LeaveGroup on one group.

Kafka's classic rebalance protocol with its static members (KIP-345) and given-out member ids (KIP-394). Everything runs
on the loop's thread and to its end, but for writing down a large group; answers are sent when it is their turn later
on, so that a client's next request never finds a group in the middle of a change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from ....protocol.errors import ErrorCode, KafkaError
from ...replication.delayed_operation import Purgatory
from ...runtime.log_limit import LimitedLog
from ...runtime.room_logger import room_logger
from ...runtime.turns import MEMBERS
from ..coordinator_log import CoordinatorLog, Entry
from .answers import Answers
from .group import Group
from .group_records import GroupEncoder, group_entry
from .member import (
    NO_MEMBER,
    JoinReply,
    JoinResult,
    Leaver,
    LeaveReply,
    LeaveResult,
    Member,
    SyncReply,
    SyncResult,
)
from .rebalances import DelayedJoin, DelayedSync, InitialDelayedJoin
from .requests import Joining, Syncing
from .sessions import Sessions
from .states import HEARTBEAT_ANSWERS, SYNC_ANSWERS, GroupState

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...runtime.ports import Ports
    from ...runtime.turns import Turns

logger = room_logger("groups")

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a JoinGroup of somebody new may wait for the rebalance to end before its client is taken for gone."""


@dataclass(frozen=True, slots=True)
class NewAssignment:
    """What the leader of a generation has brought, on its way into the log."""

    group: Group
    generation: int
    assignments: Mapping[str, bytes]
    encoder: GroupEncoder

    @property
    def is_over(self) -> bool:
        """Whether another rebalance has begun and has answered everybody."""
        group = self.group
        return group.generation != self.generation or group.state is not GroupState.COMPLETING_REBALANCE


class Membership:
    """The rules by which groups change. Loop-thread only."""

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
        self._config = config
        self._log = log
        self._now_ms = ports.now_ms
        self._token_bytes = ports.token_bytes
        self._partition_of = partition_of
        self._on_idle = on_idle
        self._loop = loop
        self._turns = turns
        self.answers = Answers(loop, turns)
        self._changes = LimitedLog(logger, loop.time)
        self._joins = Purgatory("Rebalance", loop)
        self._syncs = Purgatory("Sync", loop)
        self.sessions: Sessions[Group] = Sessions(loop, self._session_expired)

    # -- JoinGroup -------------------------------------------------------------------------------------------------

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
        self._joins.check(group)

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
                self._replace_static(group, joining, former, member_id)
        elif joining.needs_known_id and len(group.pending_members) >= self._config.group_max_size:
            joining.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif joining.needs_known_id:
            group.pending_members.add(member_id)
            self.sessions.restart(group, member_id, joining.session_timeout_ms)
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
        self.sessions.restart(group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._maybe_rebalance(group, f"{member_id!r} joins")

    def _update(self, group: Group, member: Member, joining: Joining) -> None:
        group.update(member, joining.protocols, joining.rebalance_timeout_ms, joining.session_timeout_ms, joining.reply)
        self._maybe_rebalance(group, f"{member.member_id!r} joins again")

    def _replace_static(self, group: Group, joining: Joining, old_id: str, new_id: str) -> None:
        """A static member has restarted: it gets its place, in a STABLE group without a rebalance where possible."""
        leader_before = group.leader_id
        self.sessions.end(group, old_id)
        instance_id = joining.group_instance_id
        assert instance_id is not None
        member = group.replace_static(instance_id, new_id)
        self.sessions.restart(group, new_id, joining.session_timeout_ms)
        topics_before, former = group.topics_of(member), member.protocols
        timeouts = (joining.rebalance_timeout_ms, joining.session_timeout_ms)
        if group.state is not GroupState.STABLE:
            group.update(member, joining.protocols, *timeouts, joining.reply)
            self._maybe_rebalance(group, f"static member {instance_id!r} restarted")
            return
        group.update(member, joining.protocols, *timeouts, None)
        if group.select_protocol() != group.protocol_name or group.topics_of(member) != topics_before:
            group.update(member, joining.protocols, *timeouts, joining.reply)
            self._maybe_rebalance(group, f"static member {instance_id!r} restarted with other wishes")
            return
        generation = group.generation

        def stored(outcome: ErrorCode) -> None:
            if outcome is not ErrorCode.NONE:
                if group.members.get(new_id) is member and group.generation == generation:
                    self.sessions.end(group, new_id)
                    group.rename(member, old_id)
                    group.update(member, former, *timeouts, None)
                    self.sessions.restart(group, old_id, member.session_timeout_ms)
                joining.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
            elif group.members.get(new_id) is not member:
                joining.refuse(group.check_member(new_id, instance_id) or ErrorCode.UNKNOWN_MEMBER_ID)
            elif group.state is GroupState.PREPARING_REBALANCE:
                group.update(member, joining.protocols, *timeouts, joining.reply)
                self._joins.check(group)
            else:
                self._answer_replaced(group, member, joining, leader_before)

        assignments = {one.member_id: one.assignment for one in group.members.values()}
        self._store(group, group_entry(group, assignments), stored)

    def _answer_replaced(self, group: Group, member: Member, joining: Joining, leader_before: str | None) -> None:
        """The present generation for a static member that is back; who led it before shall not assign anew."""
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

    # -- the rebalance ---------------------------------------------------------------------------------------------

    def _maybe_rebalance(self, group: Group, reason: str) -> None:
        if group.can_rebalance:
            self._prepare_rebalance(group, reason)

    def _prepare_rebalance(self, group: Group, reason: str) -> None:
        """Start to wait for everybody; who waits for an assignment is told to join again."""
        self._changes.write(logging.INFO, "group %r: generation %d ends: %s", group.group_id, group.generation, reason)
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
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
        """The wait is over: who has not joined is out, static members aside, and a new generation begins."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        for member in list(group.members.values()):
            if member.is_awaiting_join:
                continue
            if member.is_static:
                self.sessions.restart(group, member.member_id, member.session_timeout_ms)
                continue
            self.sessions.end(group, member.member_id)
            group.remove(member.member_id)
        if group.members and not group.elect_joined_leader():
            self._joins.watch(DelayedJoin(self, group), (group,), group.rebalance_timeout_ms)
            return
        group.begin_generation(self._now_ms())
        if not group.members:
            leavers, group.leavers = group.leavers, []
            self._store(group, group_entry(group, {}), partial(self._emptied, group, leavers))
            return
        message = "group %r: generation %d of %d members"
        self._changes.write(logging.INFO, message, group.group_id, group.generation, len(group.members))
        leader = group.join_result(group.members[group.leader_id or ""], with_members=True)
        self.answers.extend(
            partial(self._let_in, group, member, member.member_id, leader, reply)
            for member, reply in group.take_joins()
        )
        group.pending_syncs.update(group.members)
        self._syncs.watch(DelayedSync(self, group), (group,), group.rebalance_timeout_ms)

    def _let_in(self, group: Group, member: Member, member_id: str, leader: JoinResult, reply: JoinReply) -> None:
        """It is a member's turn to hear of the generation, under the id it joined with: it may have another by now."""
        self._hand_over(group, member)
        reply.now(leader if member_id == leader.member_id else leader._replace(member_id=member_id, members=()))

    def _hand_over(self, group: Group, member: Member) -> None:
        """The next step is the member's now, for which it has its session timeout."""
        member.is_answer_due = False
        if not group.is_dead and group.members.get(member.member_id) is member:
            self.sessions.restart(group, member.member_id, member.session_timeout_ms)

    @staticmethod
    def _emptied(group: Group, leavers: list[Callable[[ErrorCode], None]], outcome: ErrorCode) -> None:
        if outcome is not ErrorCode.NONE:
            # The members stay in the log: the next coordinator takes them for alive until their sessions end.
            logger.warning("group %r: that it is empty could not be written: %s", group.group_id, outcome.name)
        for leaver in leavers:
            leaver(outcome)

    def remove_unsynced(self, group: Group, generation: int) -> None:
        """Members of a generation have not asked for their assignment in time: they are out."""
        if group.generation != generation or not group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        late = list(group.pending_syncs)
        for member_id in late:
            self.sessions.end(group, member_id)
            group.remove(member_id)
        if late:
            self._prepare_rebalance(group, f"{len(late)} members did not ask for their assignment")

    def rebalance(self, group: Group, reason: str) -> None:
        """Have everybody join again."""
        self._prepare_rebalance(group, reason)

    # -- SyncGroup -------------------------------------------------------------------------------------------------

    def sync(self, group: Group, syncing: Syncing) -> None:
        """Give a member its assignment, once the leader has brought it and it is durable."""
        error = self._check_sync(group, syncing) or SYNC_ANSWERS[group.state]
        if error:
            syncing.reply(SyncResult(error))
            return
        member = group.members[syncing.member_id]
        group.pending_syncs.discard(member.member_id)
        self._syncs.check(group)
        self.sessions.restart(group, member.member_id, member.session_timeout_ms)
        if group.state is GroupState.STABLE:
            syncing.reply(self._assignment(group, member))
            return
        group.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_reply = syncing.reply
        if member.member_id == group.leader_id:
            self._store_assignment(group, syncing.assignments)

    def _check_sync(self, group: Group, syncing: Syncing) -> ErrorCode:
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.check_member(syncing.member_id, syncing.group_instance_id)
        error = error or group.check_generation(syncing.generation)
        if error:
            return error
        if syncing.protocol_type is not None and syncing.protocol_type != group.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if syncing.protocol_name is not None and syncing.protocol_name != (group.protocol_name or ""):
            # While a group prepares a rebalance its protocol is still that of the generation asked about.
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _store_assignment(self, group: Group, given: Mapping[str, bytes]) -> None:
        """Write the assignment down, a part of a large group in each turn, and tell everybody his."""
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        new = NewAssignment(group, group.generation, assignments, GroupEncoder(group, assignments))
        self._turns.add(partial(self._encode, new))

    def _encode(self, new: NewAssignment) -> None:
        if new.is_over:
            return
        is_done = not new.encoder.encode(MEMBERS)
        self._turns.add(partial(self._write_down if is_done else self._encode, new))

    def _write_down(self, new: NewAssignment) -> None:
        if new.is_over:
            return
        stored = partial(self._stored, new)
        self._store(new.group, new.encoder.entry(), lambda outcome: self._turns.add(partial(stored, outcome)))

    def _stored(self, new: NewAssignment, outcome: ErrorCode) -> None:
        if new.is_over:
            return
        group = new.group
        if outcome is not ErrorCode.NONE:
            self._fail_syncs(group, outcome)
            self._maybe_rebalance(group, f"the assignment could not be written: {outcome.name}")
            return
        group.assign(new.assignments)
        group.transition_to(GroupState.STABLE, self._now_ms())
        self.answers.extend(
            partial(self._hand_assignment, group, member, reply, self._assignment(group, member))
            for member, reply in group.take_syncs()
        )

    def _hand_assignment(self, group: Group, member: Member, reply: SyncReply, result: SyncResult) -> None:
        """It is a member's turn to get what it was assigned."""
        self._hand_over(group, member)
        reply.now(result)

    def write_empty(self, group: Group) -> None:
        """Write down that there is such a group, without members. Raises KafkaError COORDINATOR_NOT_AVAILABLE."""
        if not self._store(group, group_entry(group, {}), partial(self._emptied, group, [])):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group could not be written.")

    def _store(self, group: Group, entry: Entry, done: Callable[[ErrorCode], None]) -> bool:
        """Write the generation down; `done` gets the outcome as a member is to be told it.

        Returns whether it is in the log, durable or not.
        """
        is_logged = self._log.append(
            self._partition_of(group.group_id),
            [entry],
            lambda outcome: done(_GROUP_ERRORS.get(outcome, outcome)),
            timeout_ms=self._config.offsets_commit_timeout_ms,
            may_linger=True,
        )
        group.is_logged = group.is_logged or is_logged
        return is_logged

    def _assignment(self, group: Group, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)

    def _fail_syncs(self, group: Group, error: ErrorCode) -> None:
        """The generation comes to nothing: no assignment, and everybody who waits for one hears why."""
        for member in group.members.values():
            member.assignment = b""
            if member.sync_reply is not None:
                self.sessions.restart(group, member.member_id, member.session_timeout_ms)
                group.answer_sync(member, SyncResult(error))

    # -- Heartbeat and LeaveGroup ----------------------------------------------------------------------------------

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
        self._after_removal(group, f"{before - len(group.members)} members leave")
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

    def _session_expired(self, group: Group, member_id: str) -> None:
        if group.state is GroupState.DEAD:
            return
        if member_id in group.pending_members:
            self._forget_pending(group, member_id)
            return
        member = group.members.get(member_id)
        if member is None:
            return
        if member.is_waiting:
            self.sessions.restart(group, member_id, member.session_timeout_ms)
            return
        self._remove(group, member_id, f"the session of {member_id!r} expired")

    def _forget_pending(self, group: Group, member_id: str) -> None:
        group.pending_members.discard(member_id)
        self.sessions.end(group, member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            self._joins.check(group)
        elif group.is_idle and group.generation == 0:
            self._on_idle(group)

    def _remove(self, group: Group, member_id: str, reason: str) -> None:
        """Let a member go and see what that means for the others."""
        self._take_out(group, member_id)
        self._after_removal(group, reason)

    def _take_out(self, group: Group, member_id: str) -> None:
        """A member is gone, and what waits of it is answered."""
        member = group.members[member_id]
        group.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER))
        group.answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self.sessions.end(group, member_id)
        group.remove(member_id)

    def _after_removal(self, group: Group, reason: str) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            self._joins.check(group)
        else:
            self._maybe_rebalance(group, reason)

    # -- the coordinator's own comings and goings ------------------------------------------------------------------

    def resume(self, group: Group) -> None:
        """A group was loaded: its members have their full session timeouts from now on."""
        for member in group.members.values():
            self.sessions.restart(group, member.member_id, member.session_timeout_ms)

    def unload(self, group: Group, error: ErrorCode) -> None:
        """This broker does not coordinate the group any more, or it is deleted."""
        self._joins.cancel(group)
        self._syncs.cancel(group)
        for member_id in group.pending_members:
            self.sessions.end(group, member_id)
        for member in group.members.values():
            self.sessions.end(group, member.member_id)
            group.answer_join(member, JoinResult(error, member.member_id))
            group.answer_sync(member, SyncResult(error))
        group.transition_to(GroupState.DEAD, self._now_ms())


_GROUP_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a member is told when its group's state could not be written."""
