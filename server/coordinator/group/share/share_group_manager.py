"""The rebalance protocol of share groups (KIP-932): ShareGroupHeartbeat.

Kafka: the share group part of GroupMetadataManager. Each request runs on the loop's thread to its end. A change is in
memory as soon as it is in the log; its response is sent once it is durable, in the loop's next turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from .....common.room_logger import room_logger
from .....protocol.errors import ErrorCode, KafkaError
from ...coordinator_log import ResponseCallback
from ...creation_limiter import ClientIdentity
from ..assignment import NOTHING, Assignment
from ..assignors import MemberSpec
from ..consumer_heartbeat import HeartbeatReply, HeartbeatResult
from ..group_metadata_manager import GroupMetadataManager
from ..modern_group_manager import ModernGroupManager
from .share_group import ShareGroup, check_share_group
from .share_group_change import ShareGroupChange
from .share_group_heartbeat import ShareHeartbeat
from .share_group_member import ShareGroupMember
from .share_group_state_manager import ShareGroupStateManager
from .share_state_store import ShareStateStore
from .simple_assignor import assign_simply

if TYPE_CHECKING:
    from ....config.broker_config import BrokerConfig
    from ....config.dynamic_config import DynamicConfig
    from ....metadata.metadata_cache import MetadataCache
    from ....runtime.loop_sharing import SlicedWork
    from ....runtime.ports import Ports

logger = room_logger("groups")


class ShareGroupManager(ModernGroupManager[ShareGroup]):
    """The rebalance protocol of all share groups of this broker.

    Owned by the group coordinator and used on the loop's thread only.
    """

    HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"
    SESSION_TIMEOUT = "share.session.timeout.ms"
    ASSIGNMENT_INTERVAL = "share.assignment.interval.ms"

    def __init__(
        self,
        config: BrokerConfig,
        dynamic_config: DynamicConfig,
        group_manager: GroupMetadataManager,
        metadata: MetadataCache,
        persister: ShareStateStore,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        sliced_work: SlicedWork,
        is_served: Callable[[], bool],
    ) -> None:
        """`is_served` returns whether the level of `share.version` permits share groups."""
        super().__init__(config, dynamic_config, group_manager, metadata, ports, loop)
        self._is_served = is_served
        self.state_manager = ShareGroupStateManager(
            config, group_manager, metadata, persister, ports.now_ms, loop, sliced_work, self._write
        )
        self.rebalances = 0
        """Number of changes of group epochs by heartbeats since the start (Kafka: share-group-rebalance-count)."""

    @property
    def are_served(self) -> bool:
        """Whether the cluster supports share groups."""
        return self._is_served()

    def get_share_group(self, group_id: str) -> ShareGroup:
        """Return a share group. Raises KafkaError GROUP_ID_NOT_FOUND, also for a group of another type."""
        return check_share_group(self._group_manager.get_group(group_id))

    # -- ShareGroupHeartbeat -------------------------------------------------------------------------------------------

    def share_group_heartbeat(self, beat: ShareHeartbeat, reply: HeartbeatReply) -> None:
        """Handle a ShareGroupHeartbeat; `reply` receives the response when it is durable.

        Raises KafkaError INVALID_REQUEST, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
        GROUP_MAX_SIZE_REACHED.
        """
        beat.check()
        if beat.is_leaving:
            self._leave_share_group(self.get_share_group(beat.group_id), beat, reply)
            return
        found = self._group_manager.find_group(beat.group_id)
        if found is not None:
            self._apply_heartbeat(ShareGroupChange(check_share_group(found)), beat, reply)
            return
        if not beat.is_joining:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {beat.group_id} not found.")
        client = ClientIdentity(beat.client_host, beat.client_id)
        self._group_manager.check_creation_limit(client)
        change = ShareGroupChange(ShareGroup(beat.group_id))
        if self._apply_heartbeat(change, beat, reply):
            self._group_manager.add_group(change.group, client)

    def _apply_heartbeat(self, change: ShareGroupChange, beat: ShareHeartbeat, reply: HeartbeatReply) -> bool:
        """Let a member join or advance; return whether the change is in the log. Raises KafkaError."""
        with change.undo_on_error():
            return self._heartbeat_member(change, beat, reply)

    def _heartbeat_member(self, change: ShareGroupChange, beat: ShareHeartbeat, reply: HeartbeatReply) -> bool:
        group = change.group
        former = self._find_or_create_member(group, beat)
        member = _with_heartbeat(former, beat)
        former_epoch, has_new_topics = group.epoch, member.topics != former.topics
        must_bump = has_new_topics or (
            group.assignment_epoch >= group.epoch and group.has_unassigned_partitions(self._metadata.topic_name)
        )
        change.put_member(member)
        self._subscription_metadata.maybe_bump_epoch(change, must_bump=must_bump)
        has_new_epoch = group.epoch != former_epoch
        self._maybe_update_target_assignment(change)
        updated = self._reconcile(group, member, has_new_epoch=has_new_epoch)
        change.put_member(updated)
        initialization = self.state_manager.begin_initialization(change)
        has_new_assignment = beat.is_full or updated.assigned != former.assigned
        result = HeartbeatResult(
            member_id=updated.member_id,
            epoch=updated.epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms(group),
            assignment=updated.assigned if has_new_assignment else None,
        )

        def done(outcome: ErrorCode) -> None:
            reply(result if outcome is ErrorCode.NONE else HeartbeatResult(outcome))
            if outcome is ErrorCode.NONE and initialization is not None:
                self.state_manager.initialize(group, initialization)

        if not self._write(change, done):
            return False
        self.rebalances += has_new_epoch
        self._sessions.restart(group, updated.member_id, self._session_timeout_ms(group))
        return True

    def _find_or_create_member(self, group: ShareGroup, beat: ShareHeartbeat) -> ShareGroupMember:
        """Return the member of a heartbeat, in its present state.

        Raises KafkaError GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH.
        """
        member = group.members.get(beat.member_id)
        most_members = self._config.group_share_max_size
        if member is None and len(group.members) >= most_members:
            reason = f"The share group has reached its maximum capacity of {most_members} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)
        if member is None and beat.is_joining:
            logger.info("group %r: member %r joins", group.group_id, beat.member_id)
            return ShareGroupMember(beat.member_id)
        member = group.get_member(beat.member_id)
        _check_epoch(member, beat.epoch)
        return member

    def _maybe_update_target_assignment(self, change: ShareGroupChange) -> None:
        """Compute the target assignment of a new group epoch, if the assignment interval has passed."""
        group, now_ms = change.group, self._now_ms()
        if group.assignment_epoch >= group.epoch:
            return
        if not group.can_compute_target_assignment(self._assignment_interval_ms(group), now_ms):
            return
        ids: dict[frozenset[str], frozenset[UUID]] = {}
        for topics in group.subscriptions:
            found = (self._metadata.topic_id(name) for name in topics)
            ids[topics] = frozenset(topic_id for topic_id in found if topic_id is not None)
        members = [
            MemberSpec(member.member_id, None, ids[member.topics], group.targets.get(member.member_id, NOTHING))
            for member in group.members.values()
        ]
        assignable = {} if group.state_partitions is None else group.state_partitions.initialized_partitions()
        for member_id, target in assign_simply(members, assignable).items():
            change.set_target(member_id, target)
        change.set_assignment_epoch(now_ms)

    def _reconcile(self, group: ShareGroup, member: ShareGroupMember, *, has_new_epoch: bool) -> ShareGroupMember:
        """Return the member with its target assignment (Kafka: ShareGroupAssignmentBuilder)."""
        if member.epoch == group.assignment_epoch and not has_new_epoch:
            return member
        target = group.targets.get(member.member_id, NOTHING)
        # The target assignment may be older than the member's subscription.
        subscribed = {topic_id: parts for topic_id, parts in target.items() if self._is_subscribed(member, topic_id)}
        assigned: Assignment = target if len(subscribed) == len(target) else subscribed
        if member.epoch == group.assignment_epoch:
            return member if assigned == member.assigned else replace(member, assigned=assigned)
        return replace(member, assigned=assigned, epoch=group.assignment_epoch, previous_epoch=member.epoch)

    def _is_subscribed(self, member: ShareGroupMember, topic_id: UUID) -> bool:
        return self._metadata.topic_name(topic_id) in member.topics

    # -- leaving -------------------------------------------------------------------------------------------------------

    def _leave_share_group(self, group: ShareGroup, beat: ShareHeartbeat, reply: HeartbeatReply) -> None:
        """Remove a member. Raises KafkaError UNKNOWN_MEMBER_ID."""
        member = group.get_member(beat.member_id)
        logger.info("group %r: member %r leaves", group.group_id, member.member_id)
        result = HeartbeatResult(member_id=member.member_id, epoch=beat.epoch)
        self._remove_members(
            group,
            [member.member_id],
            lambda outcome: reply(result if outcome is ErrorCode.NONE else HeartbeatResult(outcome)),
        )

    def _remove_members(self, group: ShareGroup, member_ids: list[str], done: ResponseCallback) -> bool:
        """Remove members; the next heartbeat of another member computes the target assignment."""
        change = ShareGroupChange(group)
        for member_id in member_ids:
            change.remove_member(member_id)
        change.bump_epoch(self._subscription_metadata.compute_group_hash(group))
        if group.is_empty:
            # The assignment of the next member does not wait for the assignment interval.
            change.set_assignment_epoch()
        return self._write(change, done)

    def close(self) -> None:
        """Cancel all deadlines and the requests to the share coordinator."""
        super().close()
        self.state_manager.close()


def _check_epoch(member: ShareGroupMember, epoch: int) -> None:
    """Raise KafkaError FENCED_MEMBER_EPOCH for a heartbeat that neither joins nor has the member's epoch.

    The previous epoch is accepted: the response with the present epoch may have been lost.
    """
    if epoch in (0, member.epoch, member.previous_epoch):
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member epoch {epoch} is not {member.epoch}, the one known by the group coordinator, "
        f"nor the previous one, {member.previous_epoch}. The member must abandon all its partitions and rejoin.",
    )


def _with_heartbeat(member: ShareGroupMember, beat: ShareHeartbeat) -> ShareGroupMember:
    """Return the member with the values that its heartbeat sets."""
    wanted = replace(
        member,
        rack_id=member.rack_id if beat.rack_id is None else beat.rack_id,
        topics=member.topics if beat.topics is None else beat.topics,
        client_id=beat.client_id,
        client_host=beat.client_host,
    )
    return member if wanted == member else wanted
