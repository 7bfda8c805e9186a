"""What the leader of a generation assigns, and how members of classic groups get it (SyncGroup)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ....protocol.errors import ErrorCode
from ...runtime.turns import MEMBERS, Turns
from .answers import Answers
from .group import Group
from .group_records import GroupEncoder
from .group_writer import GroupWriter
from .heartbeats import ClassicHeartbeats
from .member import Member, SyncReply, SyncResult
from .rebalances import Rebalances
from .requests import Syncing
from .states import SYNC_ANSWERS, GroupState


class NewAssignment:
    """What the leader of a generation has brought, on its way into the log. Loop-thread only.

    Each step has a turn of the loop to itself. If another rebalance has begun before one of them, everybody has been
    answered, and nothing comes of the rest.
    """

    def __init__(
        self,
        group: Group,
        assignments: Mapping[str, bytes],
        writer: GroupWriter,
        turns: Turns,
        on_stored: Callable[[NewAssignment, ErrorCode], None],
    ) -> None:
        """`on_stored` is the last step: it is durable, or could not be written."""
        self.group = group
        self.assignments = assignments
        self._generation = group.generation
        self._encoder = GroupEncoder(group, assignments)
        self._writer = writer
        self._turns = turns
        self._on_stored = on_stored

    def begin(self) -> None:
        """Take one step after the other."""
        self._next(self._encode)

    def _encode(self) -> None:
        """Some members at a time: a group may be large."""
        self._encoder.encode(MEMBERS)
        self._next(self._append if self._encoder.is_done else self._encode)

    def _append(self) -> None:
        """The record of the whole."""
        self._writer.store(self.group, self._encoder.entry(), self._appended)

    def _appended(self, outcome: ErrorCode) -> None:
        self._next(partial(self._on_stored, self, outcome))

    def _next(self, step: Callable[[], None]) -> None:
        self._turns.add(partial(self._take, step))

    def _take(self, step: Callable[[], None]) -> None:
        group = self.group
        if group.generation == self._generation and group.state is GroupState.COMPLETING_REBALANCE:
            step()


class Assignments:
    """Takes the leader's assignment, writes it down, and hands every member its part. Loop-thread only."""

    def __init__(
        self,
        writer: GroupWriter,
        heartbeats: ClassicHeartbeats,
        rebalances: Rebalances,
        answers: Answers,
        turns: Turns,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._writer = writer
        self._heartbeats = heartbeats
        self._rebalances = rebalances
        self._answers = answers
        self._turns = turns
        self._now_ms = now_ms

    def sync(self, group: Group, syncing: Syncing) -> None:
        """Give a member its assignment, once the leader has brought it and it is durable."""
        error = _check_sync(group, syncing) or SYNC_ANSWERS[group.state]
        if error:
            syncing.reply(SyncResult(error))
            return
        member = group.members[syncing.member_id]
        self._rebalances.synced(group, member.member_id)
        self._heartbeats.sessions.restart(group, member.member_id, member.session_timeout_ms)
        if group.state is GroupState.STABLE:
            syncing.reply(_assignment(group, member))
            return
        group.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_reply = syncing.reply
        if member.member_id == group.leader_id:
            given = {member_id: syncing.assignments.get(member_id, b"") for member_id in group.members}
            NewAssignment(group, given, self._writer, self._turns, self._stored).begin()

    def _stored(self, new: NewAssignment, outcome: ErrorCode) -> None:
        """Tell every member its part, or that there is none."""
        group = new.group
        if outcome is not ErrorCode.NONE:
            self._rebalances.fail_syncs(group, outcome)
            self._rebalances.maybe_begin(group, f"the assignment could not be written: {outcome.name}")
            return
        group.assign(new.assignments)
        group.transition_to(GroupState.STABLE, self._now_ms())
        self._answers.extend(
            partial(self._hand_over, group, member, reply, _assignment(group, member))
            for member, reply in group.take_syncs()
        )

    def _hand_over(self, group: Group, member: Member, reply: SyncReply, result: SyncResult) -> None:
        """It is a member's turn to get what it was assigned."""
        self._heartbeats.hand_over(group, member)
        reply.now(result)


def _assignment(group: Group, member: Member) -> SyncResult:
    return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def _check_sync(group: Group, syncing: Syncing) -> ErrorCode:
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
