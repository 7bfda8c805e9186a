"""The replay of the records of share groups (Kafka: the replay methods of GroupMetadataManager)."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from .....protocol.codec import decode_versioned
from .....protocol.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartitionsInfo,
)
from ..assignment import from_wire
from ..modern_group_loader import ModernGroupLoader
from .share_group import ShareGroup
from .share_group_member import ShareGroupMember
from .share_group_records import (
    CURRENT_MEMBER_ASSIGNMENT,
    GROUP_METADATA,
    MEMBER_METADATA,
    STATE_PARTITION_METADATA,
    TARGET_ASSIGNMENT_MEMBER,
    TARGET_ASSIGNMENT_METADATA,
)
from .state_partition_metadata import StatePartitionMetadata, Topics, TopicState


class ShareGroupLoader(ModernGroupLoader[ShareGroup, ShareGroupMember]):
    """The share groups of one partition while its records, the last of each key, are replayed in any order."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(ShareGroup, ShareGroupMember)
        self._now_ms = now_ms

    def replay_member(self, key: bytes, value: bytes) -> None:
        """Apply the record of the values that a member's heartbeats set. Raises ProtocolError, as the methods below."""
        read = decode_versioned(ShareGroupMemberMetadataValue, value)
        group, member = self.get_or_create_member(decode_versioned(ShareGroupMemberMetadataKey, key))
        group.put_member(
            replace(
                member,
                rack_id=read.rack_id,
                client_id=read.client_id,
                client_host=read.client_host,
                topics=frozenset(read.subscribed_topic_names),
            )
        )

    def replay_metadata(self, key: bytes, value: bytes) -> None:
        """Apply the record of a group's epoch."""
        read = decode_versioned(ShareGroupMetadataValue, value)
        self.set_group_epoch(decode_versioned(ShareGroupMetadataKey, key).group_id, read)

    def replay_target_assignment_metadata(self, key: bytes, value: bytes) -> None:
        """Apply the record of the epoch of a target assignment."""
        read = decode_versioned(ShareGroupTargetAssignmentMetadataValue, value)
        group_id = decode_versioned(ShareGroupTargetAssignmentMetadataKey, key).group_id
        self.set_target_assignment_epoch(group_id, read)

    def replay_target_assignment(self, key: bytes, value: bytes) -> None:
        """Apply the record of a member's target assignment."""
        owner = decode_versioned(ShareGroupTargetAssignmentMemberKey, key)
        read = decode_versioned(ShareGroupTargetAssignmentMemberValue, value)
        self.get_or_create_group(owner.group_id).targets[owner.member_id] = from_wire(read.topic_partitions)

    def replay_current_assignment(self, key: bytes, value: bytes) -> None:
        """Apply the record of a member's epochs and partitions."""
        read = decode_versioned(ShareGroupCurrentMemberAssignmentValue, value)
        group, member = self.get_or_create_member(decode_versioned(ShareGroupCurrentMemberAssignmentKey, key))
        group.put_member(
            replace(
                member,
                epoch=read.member_epoch,
                previous_epoch=read.previous_member_epoch,
                assigned=from_wire(read.assigned_partitions),
            )
        )

    def replay_state_partition_metadata(self, key: bytes, value: bytes) -> None:
        """Apply the record of the partitions with share state."""
        read = decode_versioned(ShareGroupStatePartitionMetadataValue, value)
        group_id = decode_versioned(ShareGroupStatePartitionMetadataKey, key).group_id
        self.get_or_create_group(group_id).state_partitions = StatePartitionMetadata(
            self._topics(read.initializing_topics),
            self._topics(read.initialized_topics),
            {topic.topic_id: topic.topic_name for topic in read.deleting_topics},
        )

    def _topics(self, topics: list[TopicPartitionsInfo]) -> Topics:
        return {
            topic.topic_id: TopicState(topic.topic_name, frozenset(topic.partitions), self._now_ms) for topic in topics
        }

    REPLAYS = MappingProxyType(
        {
            MEMBER_METADATA: replay_member,
            GROUP_METADATA: replay_metadata,
            TARGET_ASSIGNMENT_METADATA: replay_target_assignment_metadata,
            TARGET_ASSIGNMENT_MEMBER: replay_target_assignment,
            CURRENT_MEMBER_ASSIGNMENT: replay_current_assignment,
            STATE_PARTITION_METADATA: replay_state_partition_metadata,
        }
    )
