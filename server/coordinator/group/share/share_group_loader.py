"""The replay of the records of share groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


class ShareGroupLoader:
    """The share groups of one partition while its records, the last of each key, are replayed in any order."""

    def __init__(self, now_ms: int) -> None:
        self.groups: dict[str, ShareGroup] = {}
        self._now_ms = now_ms

    def replay(self, record_type: int, key: bytes, value: bytes) -> None:
        """Apply a record of a share group; ignore other types of records. Raises ProtocolError."""
        replay = _REPLAYS.get(record_type)
        if replay is not None:
            replay(self, key, value)

    def _group(self, group_id: str) -> ShareGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ShareGroup(group_id)
        return group

    def _replay_member(self, key: bytes, value: bytes) -> None:
        owner = decode_versioned(ShareGroupMemberMetadataKey, key)
        read = decode_versioned(ShareGroupMemberMetadataValue, value)
        group = self._group(owner.group_id)
        member = group.members.get(owner.member_id) or ShareGroupMember(owner.member_id)
        group.put_member(
            replace(
                member,
                rack_id=read.rack_id,
                client_id=read.client_id,
                client_host=read.client_host,
                topics=frozenset(read.subscribed_topic_names),
            )
        )

    def _replay_group(self, key: bytes, value: bytes) -> None:
        read = decode_versioned(ShareGroupMetadataValue, value)
        group = self._group(decode_versioned(ShareGroupMetadataKey, key).group_id)
        group.epoch, group.metadata_hash = read.epoch, read.metadata_hash

    def _replay_target_metadata(self, key: bytes, value: bytes) -> None:
        read = decode_versioned(ShareGroupTargetAssignmentMetadataValue, value)
        group = self._group(decode_versioned(ShareGroupTargetAssignmentMetadataKey, key).group_id)
        group.assignment_epoch, group.assignment_timestamp_ms = read.assignment_epoch, read.assignment_timestamp

    def _replay_target(self, key: bytes, value: bytes) -> None:
        owner = decode_versioned(ShareGroupTargetAssignmentMemberKey, key)
        read = decode_versioned(ShareGroupTargetAssignmentMemberValue, value)
        self._group(owner.group_id).targets[owner.member_id] = from_wire(read.topic_partitions)

    def _replay_current(self, key: bytes, value: bytes) -> None:
        owner = decode_versioned(ShareGroupCurrentMemberAssignmentKey, key)
        read = decode_versioned(ShareGroupCurrentMemberAssignmentValue, value)
        group = self._group(owner.group_id)
        member = group.members.get(owner.member_id) or ShareGroupMember(owner.member_id)
        group.put_member(
            replace(
                member,
                epoch=read.member_epoch,
                previous_epoch=read.previous_member_epoch,
                assigned=from_wire(read.assigned_partitions),
            )
        )

    def _replay_state_partitions(self, key: bytes, value: bytes) -> None:
        read = decode_versioned(ShareGroupStatePartitionMetadataValue, value)
        group_id = decode_versioned(ShareGroupStatePartitionMetadataKey, key).group_id
        self._group(group_id).state_partitions = StatePartitionMetadata(
            self._topics(read.initializing_topics),
            self._topics(read.initialized_topics),
            {topic.topic_id: topic.topic_name for topic in read.deleting_topics},
        )

    def _topics(self, topics: list[TopicPartitionsInfo]) -> Topics:
        return {
            topic.topic_id: TopicState(topic.topic_name, frozenset(topic.partitions), self._now_ms) for topic in topics
        }


_REPLAYS: Mapping[int, Callable[[ShareGroupLoader, bytes, bytes], None]] = MappingProxyType(
    {
        MEMBER_METADATA: ShareGroupLoader._replay_member,
        GROUP_METADATA: ShareGroupLoader._replay_group,
        TARGET_ASSIGNMENT_METADATA: ShareGroupLoader._replay_target_metadata,
        TARGET_ASSIGNMENT_MEMBER: ShareGroupLoader._replay_target,
        CURRENT_MEMBER_ASSIGNMENT: ShareGroupLoader._replay_current,
        STATE_PARTITION_METADATA: ShareGroupLoader._replay_state_partitions,
    }
)
