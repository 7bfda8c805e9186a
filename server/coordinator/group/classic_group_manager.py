"""The classic rebalance protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups.

Kafka: the classic group half of GroupMetadataManager, with static members (KIP-345) and required member ids (KIP-394).
Each request runs on the loop's thread to its end; only the record of a large group is encoded in several turns.
Responses are paced, so that the next request of a client never finds a group in the middle of a change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from ....common.room_logger import room_logger
from ....protocol.errors import ErrorCode
from ...replication.delayed_operation import DelayedOperation, DelayedOperationPurgatory
from ...runtime.log_limit import LimitedLog
from ..coordinator_log import TOO_LARGE, WRITE_ERRORS, CoordinatorRecord, ResponseCallback
from .classic_group import (
    HEARTBEAT_ERRORS,
    NO_MEMBER,
    SYNC_ERRORS,
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
    JoinReply,
    JoinRequest,
    JoinResult,
    LeaveReply,
    LeaveResult,
    LeavingMember,
    SyncReply,
    SyncRequest,
    SyncResult,
)
from .group_metadata_manager import GroupMetadataManager, GroupTypeManager
from .group_records import GroupMetadataEncoder, new_group_metadata_record
from .member_timers import MemberTimers
from .response_pacer import PacedReply, ResponsePacer

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...runtime.loop_sharing import SlicedWork, TurnQueue
    from ...runtime.ports import Ports

logger = room_logger("groups")

T = TypeVar("T")

MAX_ID_BYTES, UUID_CHARACTERS = 2**15 - 1, 36
"""The limit of any string in a message, and the length of the random part of a member id."""
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""The time for which the first JoinGroup of a member may wait for the rebalance (Kafka: NEW_MEMBER_JOIN_TIMEOUT_MS)."""

ENCODED_MEMBERS_PER_TURN = 100
"""Members that are encoded into the record of a group after a rebalance: a quarter of a millisecond."""

WRITE_ERRORS_FOR_MEMBERS = {
    **WRITE_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    **dict.fromkeys(TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
}
"""The error code for a member when the record of its group could not be written."""


class ClassicGroupManager(GroupTypeManager[ClassicGroup]):
    """The rebalance protocol of all classic groups of this broker.

    Owned by the group coordinator and used on the loop's thread only.
    """

    def __init__(
        self,
        config: BrokerConfig,
        group_manager: GroupMetadataManager,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        turn_queue: TurnQueue,
        sliced_work: SlicedWork,
    ) -> None:
        self._config = config
        self._group_manager = group_manager
        self._now_ms = ports.now_ms
        self._token_bytes = ports.token_bytes
        self._loop = loop
        self._turn_queue = turn_queue
        self._pacer = ResponsePacer(loop, turn_queue)
        self._sessions: MemberTimers[ClassicGroup] = MemberTimers(loop, self._expire_member_heartbeat)
        self._delayed_joins = DelayedOperationPurgatory("Rebalance", loop, sliced_work)
        self._delayed_syncs = DelayedOperationPurgatory("Sync", loop, sliced_work)
        self._changes = LimitedLog(logger, loop.time)

    def pace(self, reply: Callable[[T], None]) -> PacedReply[T]:
        """Return the reply function of a request that may wait for other members."""
        return PacedReply(self._pacer, reply)

    # -- JoinGroup -------------------------------------------------------------------------------------------------

    def join(self, group: ClassicGroup, joining: JoinRequest) -> None:
        """Add a member, or let it join again; `joining.reply` is called soon or when the rebalance completes."""
        if group.state is ClassicGroupState.DEAD:
            joining.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if not self._accepts_joining_member(group, joining.member_id):
            group.pending_members.discard(joining.member_id)
            joining.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
        elif not group.supports(joining.protocol_type, joining.protocols):
            joining.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif joining.member_id == NO_MEMBER:
            self._join_new_member(group, joining)
        elif joining.member_id in group.pending_members and joining.group_instance_id is None:
            self._add_member_and_rebalance(group, joining, joining.member_id)
        else:
            self._join_existing_member(group, joining)
        # This may have been the last member, or pending member id, that the rebalance waited for.
        self._delayed_joins.check_and_complete(group)

    def _accepts_joining_member(self, group: ClassicGroup, member_id: str) -> bool:
        limit = self._config.group_max_size
        member = group.members.get(member_id)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            return (member is not None and member.is_awaiting_join) or group.awaiting_join < limit
        return member is not None or len(group.members) < limit

    def _join_new_member(self, group: ClassicGroup, joining: JoinRequest) -> None:
        """Handle a JoinGroup without a member id: of a static member that starts, or of a new dynamic member."""
        instance_id = joining.group_instance_id
        member_id = self._generate_member_id(joining.client_id if instance_id is None else instance_id)
        if instance_id is not None:
            former = group.static_member_id(instance_id)
            if former is None:
                self._add_member_and_rebalance(group, joining, member_id)
            else:
                self._update_static_member_and_rebalance(group, joining, former, member_id)
        elif joining.needs_known_id and len(group.pending_members) >= self._config.group_max_size:
            joining.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif joining.needs_known_id:
            group.pending_members.add(member_id)
            self._sessions.restart(group, member_id, joining.session_timeout_ms)
            joining.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add_member_and_rebalance(group, joining, member_id)

    def _generate_member_id(self, name: str) -> str:
        # A longer id fits into no response and no record: the group would wait for the group leader without end.
        prefix = name.encode()[: MAX_ID_BYTES - UUID_CHARACTERS - 1].decode(errors="ignore")
        return f"{prefix}-{UUID(bytes=self._token_bytes(16), version=4)}"

    def _join_existing_member(self, group: ClassicGroup, joining: JoinRequest) -> None:
        """Handle another JoinGroup of a member: for a rebalance, or because the last response was lost."""
        error = group.check_member(joining.member_id, joining.group_instance_id)
        if error:
            joining.refuse(error)
            return
        member = group.members[joining.member_id]
        is_leader = group.leader_id == member.member_id
        if group.state is ClassicGroupState.EMPTY:
            joining.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        elif group.state is ClassicGroupState.COMPLETING_REBALANCE and member.protocols == joining.protocols:
            joining.reply(group.join_result(member, with_members=is_leader))
        elif group.state is ClassicGroupState.STABLE and not is_leader and member.protocols == joining.protocols:
            joining.reply(group.join_result(member, with_members=False))
        else:
            self._update_member_and_rebalance(group, member, joining)

    def _add_member_and_rebalance(self, group: ClassicGroup, joining: JoinRequest, member_id: str) -> None:
        member = ClassicGroupMember(
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
        if group.state is ClassicGroupState.PREPARING_REBALANCE and group.generation == 0:
            group.newest_member_at = self._loop.time()
        group.add(member, joining.reply)
        self._sessions.restart(group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._maybe_prepare_rebalance(group, f"{member_id!r} joins")

    def _update_member_and_rebalance(
        self, group: ClassicGroup, member: ClassicGroupMember, joining: JoinRequest
    ) -> None:
        group.update(member, joining.protocols, joining.rebalance_timeout_ms, joining.session_timeout_ms, joining.reply)
        self._maybe_prepare_rebalance(group, f"{member.member_id!r} joins again")

    def _update_static_member_and_rebalance(
        self, group: ClassicGroup, joining: JoinRequest, old_id: str, new_id: str
    ) -> None:
        """Give a restarted static member its former place, without a rebalance if a STABLE group keeps its protocol."""
        leader_before = group.leader_id
        self._sessions.end(group, old_id)
        instance_id = joining.group_instance_id
        assert instance_id is not None
        member = group.replace_static(instance_id, new_id)
        self._sessions.restart(group, new_id, joining.session_timeout_ms)
        former = member.protocols
        timeouts = (joining.rebalance_timeout_ms, joining.session_timeout_ms)
        if group.state is not ClassicGroupState.STABLE:
            group.update(member, joining.protocols, *timeouts, joining.reply)
            self._maybe_prepare_rebalance(group, f"static member {instance_id!r} restarted")
            return
        group.update(member, joining.protocols, *timeouts, None)
        if group.select_protocol() != group.protocol_name:
            group.update(member, joining.protocols, *timeouts, joining.reply)
            self._maybe_prepare_rebalance(group, f"static member {instance_id!r} restarted with other protocols")
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
            elif group.state is ClassicGroupState.PREPARING_REBALANCE:
                group.update(member, joining.protocols, *timeouts, joining.reply)
                self._delayed_joins.check_and_complete(group)
            else:
                _reply_to_static_member(group, member, joining, leader_before)

        assignments = {one.member_id: one.assignment for one in group.members.values()}
        self.store(group, new_group_metadata_record(group, assignments), stored)

    # -- the rebalance ---------------------------------------------------------------------------------------------

    def _maybe_prepare_rebalance(self, group: ClassicGroup, reason: str) -> None:
        """Start a rebalance, unless a rebalance is in progress."""
        if group.can_rebalance:
            self.prepare_rebalance(group, reason)

    def prepare_rebalance(self, group: ClassicGroup, reason: str) -> None:
        """Start a rebalance: wait for all members to join; SyncGroups that wait get REBALANCE_IN_PROGRESS."""
        self._changes.write(logging.INFO, "group %r: generation %d ends: %s", group.group_id, group.generation, reason)
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._delayed_syncs.cancel(group)
        was_empty = group.state is ClassicGroupState.EMPTY
        group.transition_to(ClassicGroupState.PREPARING_REBALANCE, self._now_ms())
        if was_empty:
            now, delay_ms = self._loop.time(), self._config.group_initial_rebalance_delay_ms
            group.newest_member_at = now
            latest = now + max(group.rebalance_timeout_ms, delay_ms) / 1000
            self._delayed_joins.watch(InitialDelayedJoin(self, group, latest), (group,), delay_ms)
            return
        delayed_join = DelayedJoin(self, group)
        if not delayed_join.try_complete():
            self._delayed_joins.watch(delayed_join, (group,), group.rebalance_timeout_ms)

    def extend_initial_delay(self, group: ClassicGroup, latest: float) -> bool:
        """Wait for the initial delay after the newest member, until loop time `latest`; return False if that is over.

        Kafka checks only when a delay ends, and then adds a whole delay if a member joined during it: members that
        all join at the same time wait for two delays there.
        """
        until = min(group.newest_member_at + self._config.group_initial_rebalance_delay_ms / 1000, latest)
        wait_ms = (until - self._loop.time()) * 1000
        if wait_ms < 1:
            return False
        self._delayed_joins.watch(InitialDelayedJoin(self, group, latest), (group,), wait_ms)
        return True

    def schedule_complete_join(self, group: ClassicGroup) -> None:
        """Call `complete_join` in a turn of its own: the delays of groups that began together end together."""
        if group.members:
            self._turn_queue.add(partial(self.complete_join, group))
        else:
            # No response is sent: the group is empty immediately, for the LeaveGroup of its last member.
            self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> None:
        """Remove the dynamic members that have not joined, and begin a new generation."""
        if group.state is not ClassicGroupState.PREPARING_REBALANCE:
            return
        for member in list(group.members.values()):
            if not (member.is_awaiting_join or member.is_static):
                self._sessions.end(group, member.member_id)
                group.remove(member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none has joined. Their sessions continue, and end this wait.
            self._delayed_joins.watch(DelayedJoin(self, group), (group,), group.rebalance_timeout_ms)
            return
        for member in group.members.values():
            if not member.is_awaiting_join:
                self._sessions.restart(group, member.member_id, member.session_timeout_ms)
        group.begin_generation(self._now_ms())
        if not group.members:
            leavers, group.leavers = group.leavers, []
            self.store_empty(group, leavers)
            return
        message = "group %r: generation %d of %d members"
        self._changes.write(logging.INFO, message, group.group_id, group.generation, len(group.members))
        leader_result = group.join_result(group.members[group.leader_id or ""], with_members=True)
        self._pacer.extend(
            partial(self._send_join_result, group, member, member.member_id, leader_result, reply)
            for member, reply in group.take_joins()
        )
        group.pending_syncs.update(group.members)
        self._delayed_syncs.watch(DelayedSync(self, group), (group,), group.rebalance_timeout_ms)

    def _send_join_result(
        self,
        group: ClassicGroup,
        member: ClassicGroupMember,
        member_id: str,
        leader_result: JoinResult,
        reply: JoinReply,
    ) -> None:
        """Send the generation to a member under the id of its JoinGroup; a static member may have another id by now."""
        self._await_next_request(group, member)
        is_leader = member_id == leader_result.member_id
        reply.immediately(leader_result if is_leader else leader_result._replace(member_id=member_id, members=()))

    def remove_pending_syncs(self, group: ClassicGroup, generation: int) -> None:
        """Remove the members of a generation that have sent no SyncGroup in time, and rebalance."""
        if group.generation != generation or not group.is_in(
            ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE
        ):
            return
        late = list(group.pending_syncs)
        for member_id in late:
            self._sessions.end(group, member_id)
            group.remove(member_id)
        if late:
            self.prepare_rebalance(group, f"{len(late)} members did not ask for their assignment")

    def _fail_syncs(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Clear all assignments and complete the SyncGroups that wait with an error."""
        for member in group.members.values():
            member.assignment = b""
            if member.sync_reply is not None:
                self._sessions.restart(group, member.member_id, member.session_timeout_ms)
                group.complete_sync_request(member, SyncResult(error))

    # -- SyncGroup -------------------------------------------------------------------------------------------------

    def sync(self, group: ClassicGroup, syncing: SyncRequest) -> None:
        """Send a member its assignment, after the SyncGroup of the group leader has brought it and it is durable."""
        error = group.check_sync(syncing) or SYNC_ERRORS[group.state]
        if error:
            syncing.reply(SyncResult(error))
            return
        member = group.members[syncing.member_id]
        group.pending_syncs.discard(member.member_id)
        self._delayed_syncs.check_and_complete(group)
        self._sessions.restart(group, member.member_id, member.session_timeout_ms)
        if group.state is ClassicGroupState.STABLE:
            syncing.reply(group.sync_result(member))
            return
        group.complete_sync_request(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_reply = syncing.reply
        if member.member_id == group.leader_id:
            assignments = {member_id: syncing.assignments.get(member_id, b"") for member_id in group.members}
            AssignmentWrite(self, self._turn_queue, group, assignments).begin()

    def complete_sync(self, group: ClassicGroup, assignments: Mapping[str, bytes], outcome: ErrorCode) -> None:
        """Send each waiting member its assignment after the write of a generation, or rebalance if it failed."""
        if outcome is not ErrorCode.NONE:
            self._fail_syncs(group, outcome)
            self._maybe_prepare_rebalance(group, f"the assignment could not be written: {outcome.name}")
            return
        group.assign(assignments)
        group.transition_to(ClassicGroupState.STABLE, self._now_ms())
        self._pacer.extend(
            partial(self._send_sync_result, group, member, reply, group.sync_result(member))
            for member, reply in group.take_syncs()
        )

    def _send_sync_result(
        self, group: ClassicGroup, member: ClassicGroupMember, reply: SyncReply, result: SyncResult
    ) -> None:
        self._await_next_request(group, member)
        reply.immediately(result)

    # -- Heartbeat and sessions ------------------------------------------------------------------------------------

    def heartbeat(
        self, group: ClassicGroup, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Extend a member's session; return REBALANCE_IN_PROGRESS if the member has to join again."""
        if group.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.check_member(member_id, group_instance_id) or group.check_generation(generation)
        if error:
            return error
        self.extend_session(group, member_id)
        return HEARTBEAT_ERRORS[group.state]

    def extend_session(self, group: ClassicGroup, member_id: str) -> None:
        """Restart a member's session: a valid Heartbeat or OffsetCommit arrived."""
        member = group.members.get(member_id)
        if member is not None:
            self._sessions.restart(group, member_id, member.session_timeout_ms)

    def _await_next_request(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Restart the session of a member whose response is sent now: the next step is the member's."""
        member.is_response_queued = False
        if not group.is_dead and group.members.get(member.member_id) is member:
            self._sessions.restart(group, member.member_id, member.session_timeout_ms)

    def _expire_member_heartbeat(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member, or a pending member id, whose session timeout has passed."""
        if group.state is ClassicGroupState.DEAD:
            return
        if member_id in group.pending_members:
            self._remove_pending_member(group, member_id)
            return
        member = group.members.get(member_id)
        if member is None:
            return
        if member.is_waiting:
            # The broker owes the next step, so that no heartbeat can be expected.
            self._sessions.restart(group, member_id, member.session_timeout_ms)
            return
        self._remove_member_and_rebalance(group, member_id, f"the session of {member_id!r} expired")

    def expire_sessions(self, group_id: str) -> None:
        """End the sessions of all members of a group now."""
        self._sessions.expire(group_id)

    # -- LeaveGroup ------------------------------------------------------------------------------------------------

    def leave(self, group: ClassicGroup, leaving: Sequence[LeavingMember], reply: LeaveReply) -> None:
        """Remove members, with one rebalance for all of them.

        `reply` is called after the removal; if no member is left, when it is durable that the group is empty.
        """
        if group.state is ClassicGroupState.DEAD:
            reply(LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        before = len(group.members)
        outcomes = [self._leave(group, one) for one in leaving]
        if len(group.members) == before:
            reply(LeaveResult(ErrorCode.NONE, outcomes))
            return

        def complete(outcome: ErrorCode) -> None:
            reply(LeaveResult(outcome, () if outcome else outcomes))

        group.leavers.append(complete)
        self._rebalance_after_removal(group, f"{before - len(group.members)} members leave")
        if complete in group.leavers:
            group.leavers.remove(complete)
            complete(ErrorCode.NONE)

    def _leave(self, group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
        """Remove the member with this member id, instance id or both, without a rebalance."""
        member_id = leaving.member_id
        if member_id == NO_MEMBER:
            present = group.static_member_id(leaving.group_instance_id)
            if present is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = present
        elif member_id in group.pending_members:
            self._remove_pending_member(group, member_id)
            return ErrorCode.NONE
        else:
            error = group.check_member(member_id, leaving.group_instance_id)
            if error:
                return error
        self._remove_member(group, member_id)
        return ErrorCode.NONE

    def _remove_pending_member(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_members.discard(member_id)
        self._sessions.end(group, member_id)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            self._delayed_joins.check_and_complete(group)
        elif group.is_idle and group.generation == 0:
            self._group_manager.delete_unused_group(group)

    def _remove_member_and_rebalance(self, group: ClassicGroup, member_id: str, reason: str) -> None:
        self._remove_member(group, member_id)
        self._rebalance_after_removal(group, reason)

    def _remove_member(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member and complete its waiting requests with UNKNOWN_MEMBER_ID."""
        member = group.members[member_id]
        group.complete_join_request(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER))
        group.complete_sync_request(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self._sessions.end(group, member_id)
        group.remove(member_id)

    def _rebalance_after_removal(self, group: ClassicGroup, reason: str) -> None:
        """Start a rebalance, or check whether the rebalance in progress waits for no other member."""
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            self._delayed_joins.check_and_complete(group)
        else:
            self._maybe_prepare_rebalance(group, reason)

    # -- the group's record and lifetime ---------------------------------------------------------------------------

    def store(self, group: ClassicGroup, record: CoordinatorRecord, done: ResponseCallback) -> bool:
        """Append the record of a generation; `done` gets the outcome when it is durable or has failed.

        Returns whether the record is in the log, durable or not.
        """
        is_logged = self._group_manager.append(
            group.group_id,
            [record],
            lambda outcome: done(WRITE_ERRORS_FOR_MEMBERS.get(outcome, outcome)),
            may_linger=True,
        )
        group.is_logged = group.is_logged or is_logged
        return is_logged

    def store_empty(self, group: ClassicGroup, leavers: Iterable[ResponseCallback] = ()) -> bool:
        """Append the record of a group without members, then complete the last LeaveGroups; returns as `store`."""

        def stored(outcome: ErrorCode) -> None:
            if outcome is not ErrorCode.NONE:
                # The log keeps the members: the next coordinator keeps them until their sessions expire.
                logger.warning(
                    "group %r: the record of the empty group could not be written: %s", group.group_id, outcome.name
                )
            for leaver in leavers:
                leaver(outcome)

        return self.store(group, new_group_metadata_record(group, {}), stored)

    def on_group_loaded(self, group: ClassicGroup) -> None:
        """Start the sessions of a loaded group: each member has its full session timeout."""
        for member in group.members.values():
            self._sessions.restart(group, member.member_id, member.session_timeout_ms)

    def on_group_unloaded(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Stop all delays and sessions of a group and complete its waiting requests with `error`."""
        self._delayed_joins.cancel(group)
        self._delayed_syncs.cancel(group)
        self._sessions.end_all(group)
        for member in group.members.values():
            group.complete_join_request(member, JoinResult(error, member.member_id))
            group.complete_sync_request(member, SyncResult(error))
        group.transition_to(ClassicGroupState.DEAD, self._now_ms())

    def close(self) -> None:
        """Stop all sessions."""
        self._sessions.close()


def _reply_to_static_member(
    group: ClassicGroup, member: ClassicGroupMember, joining: JoinRequest, leader_before: str | None
) -> None:
    """Send the present generation to a restarted static member, so that a former group leader does not assign again."""
    is_leader = group.leader_id == member.member_id
    if is_leader and joining.can_skip_assignment:
        joining.reply(group.join_result(member, with_members=True, skip_assignment=True))
        return
    result = group.join_result(member, with_members=False)
    # A group leader that cannot skip the assignment (before KIP-814) gets its former id as the leader's, and so
    # acts as a follower.
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


class AssignmentWrite:
    """The write of the assignment of a generation that the group leader has sent, in steps of one turn each.

    The remaining steps are dropped if another rebalance begins: its start has completed all waiting SyncGroups.
    """

    def __init__(
        self, manager: ClassicGroupManager, turn_queue: TurnQueue, group: ClassicGroup, assignments: Mapping[str, bytes]
    ) -> None:
        self._manager = manager
        self._turn_queue = turn_queue
        self._group = group
        self._assignments = assignments
        self._generation = group.generation
        self._encoder = GroupMetadataEncoder(group, assignments)

    def begin(self) -> None:
        """Schedule the first step."""
        self._schedule(self._encode)

    def _encode(self) -> None:
        self._encoder.encode_members(ENCODED_MEMBERS_PER_TURN)
        self._schedule(self._append if self._encoder.is_done else self._encode)

    def _append(self) -> None:
        self._manager.store(self._group, self._encoder.record(), self._stored)

    def _stored(self, outcome: ErrorCode) -> None:
        self._schedule(partial(self._manager.complete_sync, self._group, self._assignments, outcome))

    def _schedule(self, step: Callable[[], None]) -> None:
        self._turn_queue.add(partial(self._run, step))

    def _run(self, step: Callable[[], None]) -> None:
        group = self._group
        if group.generation == self._generation and group.state is ClassicGroupState.COMPLETING_REBALANCE:
            step()


class DelayedJoin(DelayedOperation):
    """The wait until all known members have joined, for the longest rebalance timeout at most (Kafka: DelayedJoin)."""

    __slots__ = ("_group", "_manager")

    def __init__(self, manager: ClassicGroupManager, group: ClassicGroup) -> None:
        super().__init__()
        self._manager = manager
        self._group = group

    def try_complete(self) -> bool:
        return self._group.has_all_joined and self.force_complete()

    def on_complete(self) -> None:
        self._manager.schedule_complete_join(self._group)


class InitialDelayedJoin(DelayedJoin):
    """The wait of an empty group for more members; each one extends it, up to a limit (Kafka: InitialDelayedJoin)."""

    __slots__ = ("_latest",)

    def __init__(self, manager: ClassicGroupManager, group: ClassicGroup, latest: float) -> None:
        super().__init__(manager, group)
        self._latest = latest
        """The limit, in loop time."""

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        if not self._manager.extend_initial_delay(self._group, self._latest):
            self._manager.schedule_complete_join(self._group)


class DelayedSync(DelayedOperation):
    """The wait for the SyncGroups of a generation; members without one in time are removed (Kafka: DelayedSync)."""

    __slots__ = ("_generation", "_group", "_manager")

    def __init__(self, manager: ClassicGroupManager, group: ClassicGroup) -> None:
        super().__init__()
        self._manager = manager
        self._group = group
        self._generation = group.generation

    def try_complete(self) -> bool:
        is_over = self._group.generation != self._generation or not self._group.pending_syncs
        return is_over and self.force_complete()

    def on_expiration(self) -> None:
        self._manager.remove_pending_syncs(self._group, self._generation)

    def on_complete(self) -> None:
        """Send nothing: no response depends on this wait."""
