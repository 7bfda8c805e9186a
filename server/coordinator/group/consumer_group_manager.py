"""The consumer rebalance protocol (KIP-848): ConsumerGroupHeartbeat, and classic members of consumer groups.

Kafka: the consumer group half of GroupMetadataManager. Each request runs on the loop's thread to its end. A change is
in memory as soon as it is in the log; its response is sent once it is durable, in the loop's next turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from ....common.room_logger import room_logger
from ....common.uuid_text import uuid_text
from ....protocol.errors import ErrorCode, KafkaError
from ...replication.inter_broker_versions import has_topic_ids
from ..coordinator_log import CoordinatorRecord, ResponseCallback, ignore
from ..creation_limiter import ClientIdentity
from .assignment import NO_EPOCHS, NOTHING, Assignment, is_within
from .assignors import supported_assignors
from .classic_group import (
    CONSUMER_PROTOCOL_TYPE,
    NO_MEMBER,
    ClassicGroup,
    JoinRequest,
    JoinResult,
    LeaveReply,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from .classic_group_manager import ClassicGroupManager
from .consumer_group import ConsumerGroup
from .consumer_group_change import ConsumerGroupChange
from .consumer_group_member import ClassicProtocolMember, ConsumerGroupMember, MemberState
from .consumer_heartbeat import NOT_GIVEN, ConsumerHeartbeat, HeartbeatReply, HeartbeatResult, MaySee
from .current_assignment_builder import build_current_assignment
from .group import Group
from .group_metadata_manager import GroupMetadataManager, not_a_consumer_group
from .group_migration import by_id, classic_assignment, subscription_of, to_classic, to_consumer
from .group_records import new_group_metadata_record, new_group_tombstones
from .group_with_static_members_manager import GroupWithStaticMembersManager
from .member_timers import MemberTimers
from .modern_group_member import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ModernGroupMember
from .subscription_metadata import RegexResolution, check_regex
from .target_assignment_builder import TargetAssignmentBuilder

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...config.dynamic_config import DynamicConfig
    from ...metadata.metadata_cache import MetadataCache
    from ...runtime.loop_sharing import SlicedWork
    from ...runtime.ports import Ports

logger = room_logger("groups")

PROTOCOL = "consumer"
SINCE_CONSUMER_GROUPS = 1
"""The first level of `group.version` with the consumer protocol (KIP-848)."""


class ConsumerGroupManager(GroupWithStaticMembersManager[ConsumerGroup]):
    """The rebalance protocol of all consumer groups of this broker.

    Owned by the group coordinator and used on the loop's thread only.
    """

    HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
    SESSION_TIMEOUT = "consumer.session.timeout.ms"
    ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"

    def __init__(
        self,
        config: BrokerConfig,
        dynamic_config: DynamicConfig,
        group_manager: GroupMetadataManager,
        classic: ClassicGroupManager,
        metadata: MetadataCache,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        sliced_work: SlicedWork,
        group_version: Callable[[], int],
    ) -> None:
        """`group_version` returns the level of the feature `group.version`."""
        super().__init__(config, dynamic_config, group_manager, classic, metadata, ports, loop)
        self._group_version = group_version
        self._sliced_work = sliced_work
        self._token_bytes = ports.token_bytes
        self._target_assignment_builder = TargetAssignmentBuilder(metadata)
        self._delayed_joins: MemberTimers[ConsumerGroup] = MemberTimers(loop, self._join_timed_out)
        """The deadlines by which members of the classic protocol have to join again."""
        self._delayed_syncs: MemberTimers[ConsumerGroup] = MemberTimers(loop, self._sync_timed_out)
        """The deadlines by which members of the classic protocol have to send SyncGroup."""
        self._deadlines = (*self._deadlines, self._delayed_joins, self._delayed_syncs)

    # -- ConsumerGroupHeartbeat ----------------------------------------------------------------------------------------

    @property
    def are_served(self) -> bool:
        """Whether the consumer protocol is in effect, which requires topic ids and a level of `group.version`."""
        config = self._config
        is_configured = has_topic_ids(config) and PROTOCOL in config.group_coordinator_rebalance_protocols
        return is_configured and self._group_version() >= SINCE_CONSUMER_GROUPS

    def get_consumer_group(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group. Raises KafkaError GROUP_ID_NOT_FOUND, also for a group of another type."""
        group = self._group_manager.get_group(group_id)
        if not isinstance(group, ConsumerGroup):
            raise not_a_consumer_group(group_id)
        return group

    def consumer_group_heartbeat(self, beat: ConsumerHeartbeat, reply: HeartbeatReply) -> None:
        """Handle a ConsumerGroupHeartbeat; `reply` gets the response when it is durable. Raises KafkaError."""
        self._check(beat)
        found = self._group_manager.find_group(beat.group_id)
        group = found if isinstance(found, ConsumerGroup) else None
        if group is None:
            self._create_or_upgrade(found, beat, reply)
        elif beat.is_leaving:
            self._leave_consumer_group(group, beat, reply)
        else:
            self._apply_heartbeat(ConsumerGroupChange(group), beat, reply)

    def _create_or_upgrade(self, found: Group | None, beat: ConsumerHeartbeat, reply: HeartbeatReply) -> None:
        """Create a consumer group for the first member, or upgrade the classic group of this id."""
        if not beat.is_joining:
            raise not_a_consumer_group(beat.group_id)
        if found is None:
            client = ClientIdentity(beat.client_host, beat.client_id)
            self._group_manager.check_creation_limit(client)
            change = ConsumerGroupChange(ConsumerGroup(beat.group_id))
            if self._apply_heartbeat(change, beat, reply):
                self._group_manager.add_group(change.group, client)
            return
        if not isinstance(found, ClassicGroup):
            raise not_a_consumer_group(beat.group_id)
        classic = found
        change, tombstones = self._upgrade(classic)
        if self._apply_heartbeat(change, beat, reply, before=tombstones):
            self._replace_classic_group(classic, change.group)

    def _apply_heartbeat(
        self,
        change: ConsumerGroupChange,
        beat: ConsumerHeartbeat,
        reply: HeartbeatReply,
        *,
        before: Iterable[CoordinatorRecord] = (),
    ) -> bool:
        with change.undo_on_error():
            return self._heartbeat_member(change, beat, reply, before=before)

    def _check(self, beat: ConsumerHeartbeat) -> None:
        """Check a heartbeat apart from its group.

        Raises KafkaError INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION.
        """
        beat.check()
        names = self.assignors
        if beat.assignor is not None and beat.assignor not in names:
            reason = f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {', '.join(names)}."
            raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, reason)
        if beat.regex:
            check_regex(beat.regex)

    def _heartbeat_member(
        self,
        change: ConsumerGroupChange,
        beat: ConsumerHeartbeat,
        reply: HeartbeatReply,
        *,
        before: Iterable[CoordinatorRecord] = (),
    ) -> bool:
        """Let a member join or advance; return whether the change is in the log.

        The records `before` are written before the change's records. Raises KafkaError.
        """
        group = change.group
        if not beat.is_joining:
            member = group.get_valid_member(beat.member_id, beat.instance_id)
            self._check_epoch(member, beat)
            if beat.is_keepalive and self._is_settled(group, member):
                self._sessions.restart(group, member.member_id, self._session_timeout_ms(group))
                return self._write_and_reply(change, beat, reply, member=member, updated=member)
        else:
            member = self._find_or_create_member(change, beat)
        updated = self._reconcile(change, _with_heartbeat(member, beat), beat.owned)
        return self._write_and_reply(change, beat, reply, member=member, updated=updated, before=before)

    def _is_settled(self, group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
        return member.has_reached(group.epoch) and self._subscription_metadata.is_up_to_date(group)

    def _reconcile(
        self, change: ConsumerGroupChange, member: ConsumerGroupMember, owned: Assignment | None
    ) -> ConsumerGroupMember:
        """Store the new state of a member and move it towards its target assignment; return the resulting state.

        As Kafka's `consumerGroupHeartbeat`: raise the group epoch if a subscription, the preferred assignor or the
        metadata of a topic has changed, compute the target assignment of a new epoch unless the assignment interval has
        not passed (KIP-1263), and reconcile the member. A regular expression that was not resolved raises the epoch
        when it is: see `_maybe_resolve_regexes`. Raises KafkaError FENCED_MEMBER_EPOCH.
        """
        group, metadata = change.group, self._subscription_metadata
        former = group.members.get(member.member_id)
        former_topics, former_regex = (frozenset[str](), "") if former is None else (former.topics, former.regex)
        former_assignor = self._preferred_assignor(group)
        change.put_member(member)
        has_new_assignor = self._preferred_assignor(group) != former_assignor
        has_resolved_regex = not member.regex or member.regex in group.regexes
        has_new_subscription = member.topics != former_topics
        if member.regex != former_regex:
            metadata.drop_unused_regexes(change)
            has_new_subscription = has_new_subscription or has_resolved_regex
        must_bump = has_new_subscription or has_new_assignor or not group.epoch
        metadata.maybe_bump_epoch(change, must_bump=must_bump)
        subscribed: frozenset[UUID] | None = None
        if group.epoch > group.assignment_epoch:
            now_ms, interval_ms = self._now_ms(), self._assignment_interval_ms(group)
            if group.can_compute_target_assignment(interval_ms, now_ms):
                self._target_assignment_builder.build(change, self.assignors, now_ms)
            else:
                # The last target assignment applies to the topics to which the member still subscribes.
                subscribed = self._target_assignment_builder.subscribed_topic_ids(group, member)
        if not has_resolved_regex:
            # The topics of the member's former expression are not assigned to it again.
            subscribed = self._target_assignment_builder.subscribed_topic_ids(group, member)
        target = group.targets.get(member.member_id, NOTHING)
        member = build_current_assignment(
            member, group.assignment_epoch, target, owned, group.is_free, subscribed=subscribed
        )
        change.put_member(member)
        return member

    def _find_or_create_member(self, change: ConsumerGroupChange, beat: ConsumerHeartbeat) -> ConsumerGroupMember:
        """Return the joining member: a new member, or the existing member in its present state.

        A member joins again after it was fenced, or because the response to its join was lost; a static member with a
        new id gets its former place. Kafka's throwIfConsumerGroupMemberEpochIsInvalid accepts epoch 0, too.
        """
        group = change.group
        if len(group.members) >= self._most_members and beat.member_id not in group.members:
            reason = f"The consumer group has reached its maximum capacity of {self._most_members} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)
        member_id = beat.member_id or self._generate_member_id()
        present = group.static_member(beat.instance_id)
        if present is not None:
            return self._replace_static_member(change, present, member_id)
        return group.members.get(member_id) or ConsumerGroupMember(member_id)

    def _replace_static_member(
        self, change: ConsumerGroupChange, present: ConsumerGroupMember, member_id: str
    ) -> ConsumerGroupMember:
        if present.classic is None and not present.has_left_for_now:
            if present.member_id == member_id:
                return present  # the response to its join was lost, or it joins again after it was fenced
            reason = f"Instance id {present.instance_id} is owned by member {present.member_id}."
            raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, reason)
        return _replace_member(change, present, member_id)

    def _generate_member_id(self) -> str:
        """Return an id for a member whose request has none."""
        return uuid_text(UUID(bytes=self._token_bytes(16), version=4))

    def _check_epoch(self, member: ConsumerGroupMember, beat: ConsumerHeartbeat) -> None:
        """Raise KafkaError FENCED_MEMBER_EPOCH for a heartbeat with another epoch than the member's.

        The previous epoch is accepted while the member owns only its own partitions: a response may have been lost.
        """
        if beat.epoch == member.epoch:
            return
        is_late = beat.epoch == member.previous_epoch and beat.owned is not None
        if beat.epoch < member.epoch and is_late and is_within(beat.owned or NOTHING, member.assigned):
            return
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member epoch {beat.epoch} is not {member.epoch}, the one known by the group coordinator. "
            "The member must abandon all its partitions and rejoin.",
        )

    def _write_and_reply(
        self,
        change: ConsumerGroupChange,
        beat: ConsumerHeartbeat,
        reply: HeartbeatReply,
        *,
        member: ConsumerGroupMember,
        updated: ConsumerGroupMember,
        before: Iterable[CoordinatorRecord] = (),
    ) -> bool:
        group = change.group
        has_new_assignment = beat.is_full or updated.assigned != member.assigned
        result = HeartbeatResult(
            member_id=updated.member_id,
            epoch=updated.epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms(group),
            assignment=updated.assigned if has_new_assignment else None,
        )

        def done(outcome: ErrorCode) -> None:
            reply(result if outcome is ErrorCode.NONE else HeartbeatResult(outcome))

        if not self._write(change, done, before=before):
            return False
        self._sessions.restart(group, updated.member_id, self._session_timeout_ms(group))
        self._delayed_joins.end(group, updated.member_id)
        self._delayed_syncs.end(group, updated.member_id)
        self._watch_revocation(group, member, updated)
        if updated.regex:
            self._maybe_resolve_regexes(group, beat.may_see)
        return True

    def _maybe_resolve_regexes(self, group: ConsumerGroup, may_see: MaySee) -> None:
        """Begin to resolve the regular expressions of a group in a later turn of the loop, if that is necessary.

        As in Kafka the response to the heartbeat does not wait: a member gets the topics that it names in the first
        assignment, and the topics that match its expression in a later one.
        """
        now_ms = self._now_ms()
        if not self._subscription_metadata.must_resolve_regexes(group, now_ms):
            return
        group.is_resolving_regexes = True
        steps = self._subscription_metadata.resolve_regexes(group, now_ms, may_see)
        done = partial(self._on_regexes_resolved, group)
        self._sliced_work.run_later(partial(self._sliced_work.run, steps, done))

    def _on_regexes_resolved(
        self, group: ConsumerGroup, resolution: RegexResolution | None, error: Exception | None
    ) -> None:
        group.is_resolving_regexes = False
        if error is not None:
            raise error
        assert resolution is not None
        if group.is_dead:
            return
        change = ConsumerGroupChange(group)
        with change.undo_on_error():
            self._subscription_metadata.apply_resolution(change, resolution)
            self._write(change, ignore)

    # -- leaving and deadlines -----------------------------------------------------------------------------------------

    def _leave_consumer_group(self, group: ConsumerGroup, beat: ConsumerHeartbeat, reply: HeartbeatReply) -> None:
        """Remove a member, or mark a static one as absent. Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        member = group.get_valid_member(beat.member_id, beat.instance_id)
        result = HeartbeatResult(member_id=member.member_id, epoch=beat.epoch)

        def done(outcome: ErrorCode) -> None:
            reply(result if outcome is ErrorCode.NONE else HeartbeatResult(outcome))

        if beat.epoch == STATIC_LEAVE_EPOCH:
            absent = replace(member, epoch=STATIC_LEAVE_EPOCH, revoking=NOTHING)
            self._leave_for_now(ConsumerGroupChange(group), absent, done)
            return
        logger.info("group %r: member %r leaves", group.group_id, member.member_id)
        self._remove_members(group, [member.member_id], done)

    def _write_removal(self, group: ConsumerGroup, member_ids: list[str], done: ResponseCallback) -> bool:
        """Append the removal of members; return whether it is in the log."""
        change = ConsumerGroupChange(group)
        for member_id in member_ids:
            change.remove_member(member_id)
        self._subscription_metadata.drop_unused_regexes(change)
        # The next heartbeat of another member computes the target assignment.
        change.bump_epoch(self._subscription_metadata.compute_group_hash(group))
        if group.is_empty:
            # The assignment of the next member does not wait for the assignment interval.
            change.set_assignment_epoch()
        return self._write(change, done)

    def _join_timed_out(self, group: ConsumerGroup, member_id: str) -> None:
        self._fence_member(group, member_id, "it did not join again in time")

    def _sync_timed_out(self, group: ConsumerGroup, member_id: str) -> None:
        self._fence_member(group, member_id, "it did not ask for its assignment in time")

    # -- classic members: JoinGroup ------------------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, joining: JoinRequest) -> None:
        """Handle the JoinGroup of a classic member; an empty group becomes a classic group."""
        if group.is_empty:
            self._classic.join(self._downgrade_empty(group), joining)
            return
        change = ConsumerGroupChange(group)
        try:
            with change.undo_on_error():
                self._join_classic_member(change, joining)
        except KafkaError as error:
            joining.refuse(error.code, NO_MEMBER)

    def _join_classic_member(self, change: ConsumerGroupChange, joining: JoinRequest) -> None:
        group = change.group
        if len(group.members) >= self._most_members and joining.member_id not in group.members:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, "The consumer group is full.")
        if not group.supports(joining.protocol_type, joining.protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The member's protocols are not supported.")
        member_id = joining.member_id or self._generate_member_id()
        if joining.needs_known_id and not joining.member_id and joining.group_instance_id is None:
            joining.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
            return
        subscription = subscription_of(joining.protocols)
        former = group.static_member(joining.group_instance_id)
        member = replace(
            self._find_or_create_classic_member(change, joining, member_id),
            instance_id=joining.group_instance_id,
            rack_id=subscription.rack_id,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            topics=frozenset(subscription.topics),
            regex="",
            client_id=joining.client_id,
            client_host=joining.client_host,
            classic=ClassicProtocolMember(joining.session_timeout_ms, joining.protocols),
        )
        if former is not None and former.classic is None:
            others = [one for name, one in group.members.items() if name not in (former.member_id, member.member_id)]
            if self._can_downgrade([*others, member]):
                target = group.targets.get(member.member_id, NOTHING)
                change.undo()
                self._downgrade_static_member(group, former, others, replace(member, assigned=target), joining)
                return
        owned = by_id(subscription.owned_partitions, self._metadata)
        updated = self._reconcile(change, member, owned)
        self._reply_to_join(change, updated, joining)

    def _find_or_create_classic_member(
        self, change: ConsumerGroupChange, joining: JoinRequest, member_id: str
    ) -> ConsumerGroupMember:
        group = change.group
        if joining.group_instance_id is None:
            return group.members.get(member_id) or ConsumerGroupMember(member_id)
        if joining.member_id:
            return group.get_valid_member(member_id, joining.group_instance_id)
        former = group.static_member(joining.group_instance_id)
        if former is None:
            return ConsumerGroupMember(member_id)
        return _replace_member(change, former, member_id)

    def _reply_to_join(self, change: ConsumerGroupChange, member: ConsumerGroupMember, joining: JoinRequest) -> None:
        group = change.group
        result = JoinResult(
            ErrorCode.NONE, member.member_id, member.epoch, CONSUMER_PROTOCOL_TYPE, member.protocol_name
        )

        def done(outcome: ErrorCode) -> None:
            joining.reply(result if outcome is ErrorCode.NONE else JoinResult(outcome, NO_MEMBER))

        if self._write(change, done):
            self._delayed_joins.end(group, member.member_id)
            self._delayed_syncs.restart(group, member.member_id, joining.rebalance_timeout_ms)
            self._sessions.restart(group, member.member_id, joining.session_timeout_ms)

    def _downgrade_static_member(
        self,
        group: ConsumerGroup,
        former: ConsumerGroupMember,
        others: list[ConsumerGroupMember],
        member: ConsumerGroupMember,
        joining: JoinRequest,
    ) -> None:
        """Downgrade the group: its last member of the consumer protocol, a static one, is back as a classic member.

        If its subscription is the same and the other members have reached their targets, all keep their partitions.
        """
        is_settled = group.epoch == group.assignment_epoch and all(one.has_reached(group.epoch) for one in others)
        keeps = is_settled and former.topics == member.topics and not former.regex

        def done(outcome: ErrorCode) -> None:
            if outcome or classic is None:
                joining.refuse(outcome, NO_MEMBER)
            else:
                name = classic.protocol_name
                joining.reply(JoinResult(outcome, member.member_id, group.epoch, CONSUMER_PROTOCOL_TYPE, name))

        on_written = done if keeps else ignore
        classic = self._downgrade(group, [*others, member], on_written, rebalances=not keeps)
        if classic is not None and not keeps:
            self._classic.join(classic, replace(joining, member_id=member.member_id))
        elif not keeps:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group could not be written.")

    # -- classic members: SyncGroup, Heartbeat, LeaveGroup -------------------------------------------------------------

    def sync(self, group: ConsumerGroup, syncing: SyncRequest) -> None:
        """Send a classic member its assignment, once that is durable."""
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
        if self._must_rejoin(group, member) and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._delayed_joins.begin(group, member.member_id, member.rebalance_timeout_ms)
            syncing.reply(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
            return
        side = member.classic
        assert side is not None
        assignment = classic_assignment(member.assigned, side.protocols, self._metadata)
        result = SyncResult(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, member.protocol_name, assignment)
        self._delayed_syncs.end(group, member.member_id)
        self._sessions.restart(group, member.member_id, side.session_timeout_ms)

        def done(outcome: ErrorCode) -> None:
            syncing.reply(result if outcome is ErrorCode.NONE else SyncResult(outcome))

        self._write(ConsumerGroupChange(group), done)

    def heartbeat(
        self, group: ConsumerGroup, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Extend a classic member's session; return REBALANCE_IN_PROGRESS if it has to join again."""
        try:
            member = self._classic_member(group, member_id, group_instance_id, generation)
        except KafkaError as error:
            return error.code
        side = member.classic
        assert side is not None
        self._sessions.restart(group, member_id, side.session_timeout_ms)
        if (
            self._must_rejoin(group, member)
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        ):
            self._delayed_joins.begin(group, member_id, member.rebalance_timeout_ms)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _must_rejoin(self, group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
        """Return whether the JoinGroup of a classic member changes its epoch.

        As in Kafka a member does not join again for a group epoch whose assignment has to wait for the assignment
        interval: it would get its present generation, and would have to join again immediately. After the interval it
        joins again, since a group can have classic members only, and their heartbeats compute no assignment.
        """
        if member.epoch < group.assignment_epoch:
            return True
        return group.assignment_epoch < group.epoch and group.can_compute_target_assignment(
            self._assignment_interval_ms(group), self._now_ms()
        )

    def leave(self, group: ConsumerGroup, leaving: Sequence[LeavingMember], reply: LeaveReply) -> None:
        """Remove members of either protocol: operators remove members by LeaveGroup."""
        gone: dict[str, None] = {}
        outcomes = [self._find_leaving(group, one, gone) for one in leaving]

        def done(outcome: ErrorCode) -> None:
            reply(LeaveResult(outcome, () if outcome else outcomes))

        if not gone:
            done(ErrorCode.NONE)
        else:
            self._remove_members(group, list(gone), done)

    @staticmethod
    def _find_leaving(group: ConsumerGroup, leaver: LeavingMember, gone: dict[str, None]) -> ErrorCode:
        static = group.static_member(leaver.group_instance_id)
        member_id = static.member_id if static is not None and not leaver.member_id else leaver.member_id
        try:
            gone[group.get_valid_member(member_id, leaver.group_instance_id).member_id] = None
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def _classic_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ConsumerGroupMember:
        """Return a classic member. Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
        member = group.get_valid_member(member_id, instance_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "The member does not use the classic protocol.")
        if member.epoch != generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"The member is in generation {member.epoch}.")
        return member

    # -- online migration: upgrade -------------------------------------------------------------------------------------

    def _upgrade(self, found: ClassicGroup) -> tuple[ConsumerGroupChange, list[CoordinatorRecord]]:
        """Return a classic group as a consumer group, and the tombstones of the classic group.

        Raises KafkaError GROUP_ID_NOT_FOUND if the group cannot be upgraded.
        """
        tombstones = new_group_tombstones(found)
        if found.is_empty:
            group = ConsumerGroup(found.group_id)
            group.offsets = found.offsets
            return ConsumerGroupChange(group), tombstones
        self._check_upgrade(found)
        return to_consumer(found, self._metadata), tombstones

    def _check_upgrade(self, group: ClassicGroup) -> None:
        policy = self._config.group_consumer_migration_policy.lower()
        if policy not in ("upgrade", "bidirectional"):
            reason = "the online upgrade is disabled"
        elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            reason = "its protocol type is not consumer"
        elif len(group.members) > self._most_members:
            reason = "it has too many members"
        else:
            return
        logger.info("group %r cannot be upgraded: %s", group.group_id, reason)
        raise not_a_consumer_group(group.group_id)

    def _replace_classic_group(self, found: ClassicGroup, group: ConsumerGroup) -> None:
        """Put the consumer group in the classic group's place; its waiting members get REBALANCE_IN_PROGRESS."""
        if found.members:
            logger.info(
                "group %r: upgraded to the consumer protocol with %d members", group.group_id, len(found.members)
            )
        self._classic.on_group_unloaded(found, ErrorCode.REBALANCE_IN_PROGRESS)
        self._group_manager.replace_group(group)
        self.on_group_loaded(group)

    # -- online migration: downgrade -----------------------------------------------------------------------------------

    def _remove_members(self, group: ConsumerGroup, member_ids: list[str], done: ResponseCallback) -> bool:
        """Remove members, and downgrade the group if only classic members are left."""
        left = [member for member in group.members.values() if member.member_id not in member_ids]
        if left and self._can_downgrade(left):
            return self._downgrade(group, left, done) is not None
        return self._write_removal(group, member_ids, done)

    def _can_downgrade(self, left: list[ConsumerGroupMember]) -> bool:
        """Return whether a group with these remaining members becomes a classic group."""
        policy = self._config.group_consumer_migration_policy.lower()
        return (
            policy in ("downgrade", "bidirectional")
            and len(left) <= self._config.group_max_size
            and all(member.classic is not None for member in left)
        )

    def _downgrade(
        self, group: ConsumerGroup, left: list[ConsumerGroupMember], done: ResponseCallback, *, rebalances: bool = True
    ) -> ClassicGroup | None:
        """Replace the group by a classic group of these members; return None if it could not be written.

        If it `rebalances`, the members have to join again; otherwise they keep their partitions.
        """
        classic = to_classic(group, left, self._metadata, self._now_ms())
        assignments = {member.member_id: member.assignment for member in classic.members.values()}
        if not self._append(
            group, [*new_group_tombstones(group), new_group_metadata_record(classic, assignments)], done
        ):
            return None
        logger.info("group %r: downgraded to the classic protocol with %d members", group.group_id, len(left))
        self._make_classic(group, classic)
        if rebalances:
            self._classic.prepare_rebalance(classic, "it was downgraded")
        return classic

    # -- settings ------------------------------------------------------------------------------------------------------

    @property
    def assignors(self) -> list[str]:
        """The names of the supported assignors, the default first."""
        return supported_assignors(self._config.group_consumer_assignors)

    def _preferred_assignor(self, group: ConsumerGroup) -> str:
        return group.preferred_assignor or self.assignors[0]

    @property
    def _most_members(self) -> int:
        return self._config.group_consumer_max_size

    # -- loading -------------------------------------------------------------------------------------------------------

    def _resume_member(self, group: ConsumerGroup, member: ModernGroupMember) -> None:
        super()._resume_member(group, member)
        if isinstance(member, ConsumerGroupMember) and member.classic is not None:
            self._sessions.restart(group, member.member_id, member.classic.session_timeout_ms)


def _replace_member(change: ConsumerGroupChange, former: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
    """Give a static member that restarted its new member id and the target assignment of its former one."""
    member = replace(
        former,
        member_id=member_id,
        epoch=JOIN_EPOCH,
        previous_epoch=JOIN_EPOCH,
        assignment_epochs=NO_EPOCHS,
    )
    change.replace_member(former, member)
    return member


def _with_heartbeat(member: ConsumerGroupMember, beat: ConsumerHeartbeat) -> ConsumerGroupMember:
    """Return the member with the values that its heartbeat sets."""
    values = (
        member.instance_id if beat.instance_id is None else beat.instance_id,
        member.rack_id if beat.rack_id is None else beat.rack_id,
        member.rebalance_timeout_ms if beat.rebalance_timeout_ms == NOT_GIVEN else beat.rebalance_timeout_ms,
        member.assignor if beat.assignor is None else beat.assignor,
        member.topics if beat.topics is None else beat.topics,
        member.regex if beat.regex is None else beat.regex,
    )
    instance_id, rack_id, rebalance_timeout_ms, assignor, topics, regex = values
    wanted = replace(
        member,
        instance_id=instance_id,
        rack_id=rack_id,
        rebalance_timeout_ms=rebalance_timeout_ms,
        assignor=assignor,
        topics=topics,
        regex=regex,
        client_id=beat.client_id,
        client_host=beat.client_host,
        classic=None,
    )
    return member if wanted == member else wanted
