"""Members that speak the classic protocol to a group of the consumer protocol: JoinGroup, SyncGroup and the rest.

JoinGroup takes the member over to the group's present target, SyncGroup tells what that gives it, and a heartbeat says
when there is more to come. Whoever joins is a follower: the broker assigns. KIP-848's online migration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .....protocol.errors import ErrorCode, KafkaError
from ...coordinator_log import ignore
from ..classic_groups import ClassicGroups
from ..group import CONSUMER_PROTOCOL_TYPE
from ..member import NO_MEMBER, JoinResult, Leaver, LeaveReply, LeaveResult, SyncResult
from ..requests import Joining, Syncing
from .assignment import NOTHING
from .change import Change
from .conversion import by_id, classic_assignment, subscription_of
from .group import ConsumerGroup
from .member import ClassicSide, ConsumerMember
from .membership import ConsumerMembership
from .migration import Migration
from .states import MemberState

if TYPE_CHECKING:
    from ....metadata.metadata_cache import MetadataCache


class ClassicMembers:
    """The same requests as `ClassicGroups` takes, for the other kind of group. Loop-thread only."""

    def __init__(
        self,
        migration: Migration,
        members: ConsumerMembership,
        classic: ClassicGroups,
        *,
        metadata: MetadataCache,
        now_ms: Callable[[], int],
    ) -> None:
        self._migration = migration
        self._members = members
        self._classic = classic
        self._metadata = metadata
        self._now_ms = now_ms

    # -- JoinGroup -------------------------------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, joining: Joining) -> None:
        """Let somebody in, or in again."""
        if group.is_empty:
            self._classic.join(self._migration.emptied(group), joining)
            return
        change = Change(group)
        try:
            self._join(change, joining)
        except KafkaError as error:
            change.undo()
            joining.refuse(error.code, NO_MEMBER)

    def _join(self, change: Change, joining: Joining) -> None:
        group = change.group
        if len(group.members) >= self._members.most_members and joining.member_id not in group.members:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, "The consumer group is full.")
        if not group.supports(joining.protocol_type, joining.protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The member's protocols are not supported.")
        member_id = joining.member_id or self._members.new_member_id()
        if joining.needs_known_id and not joining.member_id and joining.group_instance_id is None:
            joining.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
            return
        subscription = subscription_of(joining.protocols)
        former = group.static_member(joining.group_instance_id)
        member = replace(
            self._admit(change, joining, member_id),
            instance_id=joining.group_instance_id,
            rack_id=subscription.rack_id,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            topics=frozenset(subscription.topics),
            regex="",
            client_id=joining.client_id,
            client_host=joining.client_host,
            classic=ClassicSide(joining.session_timeout_ms, joining.protocols),
        )
        if former is not None and former.classic is None:
            others = [one for name, one in group.members.items() if name not in (former.member_id, member.member_id)]
            if self._migration.may_downgrade([*others, member]):
                target = group.targets.get(member.member_id, NOTHING)
                change.undo()
                self._downgrade(group, former, others, replace(member, assigned=target), joining)
                return
        owned = by_id(subscription.owned_partitions, self._metadata)
        updated = self._members.progress.advance(change, member, owned, self._members.assignors, self._now_ms())
        self._answer_join(change, updated, joining)

    def _admit(self, change: Change, joining: Joining, member_id: str) -> ConsumerMember:
        group = change.group
        if joining.group_instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        if joining.member_id:
            return group.known_member(member_id, joining.group_instance_id)
        former = group.static_member(joining.group_instance_id)
        if former is None:
            return ConsumerMember(member_id)
        return self._members.progress.replace_member(change, former, member_id)

    def _answer_join(self, change: Change, member: ConsumerMember, joining: Joining) -> None:
        group = change.group
        result = JoinResult(
            ErrorCode.NONE, member.member_id, member.epoch, CONSUMER_PROTOCOL_TYPE, member.protocol_name
        )

        def done(outcome: ErrorCode) -> None:
            joining.reply(result if outcome is ErrorCode.NONE else JoinResult(outcome, NO_MEMBER))

        if self._members.write(change, done):
            self._members.joins.end(group, member.member_id)
            self._members.syncs.restart(group, member.member_id, joining.rebalance_timeout_ms)
            self._members.sessions.restart(group, member.member_id, joining.session_timeout_ms)

    def _downgrade(
        self,
        group: ConsumerGroup,
        former: ConsumerMember,
        others: list[ConsumerMember],
        member: ConsumerMember,
        joining: Joining,
    ) -> None:
        """The last member of the consumer protocol was a static one and is back with the classic one.

        If it reads the same as before and the others have what they shall have, everybody keeps it.
        """
        is_settled = group.epoch == group.assignment_epoch and all(one.has_reached(group.epoch) for one in others)
        keeps = is_settled and former.topics == member.topics and not former.regex

        def done(outcome: ErrorCode) -> None:
            if outcome or classic is None:
                joining.refuse(outcome, NO_MEMBER)
            else:
                name = classic.protocol_name
                joining.reply(JoinResult(outcome, member.member_id, group.epoch, CONSUMER_PROTOCOL_TYPE, name))

        told = done if keeps else ignore
        classic = self._migration.downgrade(group, [*others, member], told, rebalances=not keeps)
        if classic is not None and not keeps:
            self._classic.join(classic, replace(joining, member_id=member.member_id))
        elif not keeps:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group could not be written.")

    # -- SyncGroup, Heartbeat, LeaveGroup --------------------------------------------------------------------------

    def sync(self, group: ConsumerGroup, syncing: Syncing) -> None:
        """Tell a member what it has, once that is durable."""
        try:
            member = self._classic_member(group, syncing.member_id, syncing.group_instance_id, syncing.generation)
        except KafkaError as error:
            syncing.reply(SyncResult(error.code))
            return
        if syncing.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or syncing.protocol_name not in (
            None,
            member.protocol_name,
        ):
            syncing.reply(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._members.joins.begin(group, member.member_id, member.rebalance_timeout_ms)
            syncing.reply(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
            return
        side = member.classic
        assert side is not None
        assignment = classic_assignment(member.assigned, side.protocols, self._metadata)
        result = SyncResult(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, member.protocol_name, assignment)
        self._members.syncs.end(group, member.member_id)
        self._members.sessions.restart(group, member.member_id, side.session_timeout_ms)

        def done(outcome: ErrorCode) -> None:
            syncing.reply(result if outcome is ErrorCode.NONE else SyncResult(outcome))

        self._members.write(Change(group), done)

    def heartbeat(self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """A sign of life; the answer tells the member whether it has to join again."""
        try:
            member = self._classic_member(group, member_id, instance_id, generation)
        except KafkaError as error:
            return error.code
        side = member.classic
        assert side is not None
        self._members.sessions.restart(group, member_id, side.session_timeout_ms)
        if (
            member.epoch < group.epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        ):
            self._members.joins.begin(group, member_id, member.rebalance_timeout_ms)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, group: ConsumerGroup, leaving: Sequence[Leaver], reply: LeaveReply) -> None:
        """Members go. They may be of either protocol: this is how an operator removes members."""
        gone: dict[str, None] = {}
        outcomes = [self._leave(group, one, gone) for one in leaving]

        def done(outcome: ErrorCode) -> None:
            reply(LeaveResult(outcome, () if outcome else outcomes))

        if not gone:
            done(ErrorCode.NONE)
        else:
            self._migration.remove(group, list(gone), done)

    @staticmethod
    def _leave(group: ConsumerGroup, leaver: Leaver, gone: dict[str, None]) -> ErrorCode:
        static = group.static_member(leaver.group_instance_id)
        member_id = static.member_id if static is not None and not leaver.member_id else leaver.member_id
        try:
            gone[group.known_member(member_id, leaver.group_instance_id).member_id] = None
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def _classic_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ConsumerMember:
        """Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
        member = group.known_member(member_id, instance_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "The member does not use the classic protocol.")
        if member.epoch != generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"The member is in generation {member.epoch}.")
        return member
