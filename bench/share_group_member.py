"""A member of a share group: its heartbeats, and the partitions that they assign (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from bench.modern_group_member import JOIN_EPOCH, ModernGroupMember

from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


class ShareGroupMember(ModernGroupMember):
    """A member that subscribes to one topic."""

    assigned: frozenset[tuple[UUID, int]] = frozenset()
    """Topic ids and partition indexes."""

    def _request(self) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.generation,
            subscribed_topic_names=[self.topic] if self.generation == JOIN_EPOCH else None,
        )

    def _take_assignment(self, response: ShareGroupHeartbeatResponse) -> bool:
        if response.assignment is None:
            return False
        topics = response.assignment.topic_partitions
        self.assigned = frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)
        return bool(self.assigned)
