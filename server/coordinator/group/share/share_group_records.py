"""The records of share groups in `__consumer_offsets`, types 10 to 15 (Kafka: GroupCoordinatorRecordHelpers)."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from .....protocol.codec import encode_versioned
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
    TopicInfo,
    TopicPartitionsInfo,
)
from ...coordinator_log import CoordinatorRecord
from ..assignment import Assignment, to_record
from .share_group import ShareGroup
from .share_group_member import ShareGroupMember
from .state_partition_metadata import StatePartitionMetadata, TopicState

MEMBER_METADATA = 10
GROUP_METADATA = 11
TARGET_ASSIGNMENT_METADATA = 12
TARGET_ASSIGNMENT_MEMBER = 13
CURRENT_MEMBER_ASSIGNMENT = 14
STATE_PARTITION_METADATA = 15
VALUE_VERSION = 0
STABLE = 0
"""The state of a member in its record: share groups have no other."""


def _member_key(group_id: str, member_id: str) -> bytes:
    return encode_versioned(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), MEMBER_METADATA)


def new_share_group_member_subscription_record(group_id: str, member: ShareGroupMember) -> CoordinatorRecord:
    """Return the record of the values that a member's heartbeats set."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )
    return _member_key(group_id, member.member_id), encode_versioned(value, VALUE_VERSION)


def new_share_group_member_subscription_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the record that deletes a member."""
    return _member_key(group_id, member_id), None


def _group_key(group_id: str) -> bytes:
    return encode_versioned(ShareGroupMetadataKey(group_id=group_id), GROUP_METADATA)


def new_share_group_epoch_record(group: ShareGroup) -> CoordinatorRecord:
    """Return the record of a group's epoch and of the hash of its topics."""
    value = ShareGroupMetadataValue(epoch=group.epoch, metadata_hash=group.metadata_hash)
    return _group_key(group.group_id), encode_versioned(value, VALUE_VERSION)


def _target_metadata_key(group_id: str) -> bytes:
    return encode_versioned(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), TARGET_ASSIGNMENT_METADATA)


def new_share_group_target_assignment_metadata_record(group: ShareGroup) -> CoordinatorRecord:
    """Return the record of the epoch and the time of a group's target assignment."""
    value = ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=group.assignment_epoch, assignment_timestamp=group.assignment_timestamp_ms
    )
    return _target_metadata_key(group.group_id), encode_versioned(value, VALUE_VERSION)


def _target_key(group_id: str, member_id: str) -> bytes:
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return encode_versioned(key, TARGET_ASSIGNMENT_MEMBER)


def new_share_group_target_assignment_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    """Return the record of a member's target assignment."""
    value = ShareGroupTargetAssignmentMemberValue(topic_partitions=to_record(target))
    return _target_key(group_id, member_id), encode_versioned(value, VALUE_VERSION)


def new_share_group_target_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the record that deletes a member's target assignment."""
    return _target_key(group_id, member_id), None


def _current_key(group_id: str, member_id: str) -> bytes:
    key = ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return encode_versioned(key, CURRENT_MEMBER_ASSIGNMENT)


def new_share_group_current_assignment_record(group_id: str, member: ShareGroupMember) -> CoordinatorRecord:
    """Return the record of a member's epochs and partitions."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=STABLE,
        assigned_partitions=to_record(member.assigned),
    )
    return _current_key(group_id, member.member_id), encode_versioned(value, VALUE_VERSION)


def new_share_group_current_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the record that deletes a member's epochs and partitions."""
    return _current_key(group_id, member_id), None


def new_share_group_state_partition_metadata_record(
    group_id: str, metadata: StatePartitionMetadata | None
) -> CoordinatorRecord:
    """Return the record of the partitions with share state, or its tombstone."""
    key = encode_versioned(ShareGroupStatePartitionMetadataKey(group_id=group_id), STATE_PARTITION_METADATA)
    if metadata is None:
        return key, None
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_to_record(metadata.initializing),
        initialized_topics=_to_record(metadata.initialized),
        deleting_topics=[TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in metadata.deleting.items()],
    )
    return key, encode_versioned(value, VALUE_VERSION)


def _to_record(topics: Mapping[UUID, TopicState]) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=state.name, partitions=sorted(state.partitions))
        for topic_id, state in topics.items()
    ]


def new_share_group_tombstones(group: ShareGroup) -> list[CoordinatorRecord]:
    """Return the records that delete a group (Kafka: ShareGroup.createGroupTombstoneRecords).

    In Kafka's order: its replay requires that a member has no assignment when the member is deleted.
    """
    group_id = group.group_id
    return [
        *(new_share_group_current_assignment_tombstone(group_id, member_id) for member_id in group.members),
        *(new_share_group_target_assignment_tombstone(group_id, member_id) for member_id in group.targets),
        (_target_metadata_key(group_id), None),
        *(new_share_group_member_subscription_tombstone(group_id, member_id) for member_id in group.members),
        new_share_group_state_partition_metadata_record(group_id, None),
        (_group_key(group_id), None),
    ]


def is_same_subscription(left: ShareGroupMember, right: ShareGroupMember) -> bool:
    """Return whether the subscription records of two states of a member are equal."""
    return (left.rack_id, left.client_id, left.client_host, left.topics) == (
        right.rack_id,
        right.client_id,
        right.client_host,
        right.topics,
    )


def is_same_current_assignment(left: ShareGroupMember, right: ShareGroupMember) -> bool:
    """Return whether the current assignment records of two states of a member are equal."""
    return (left.epoch, left.previous_epoch, left.assigned) == (right.epoch, right.previous_epoch, right.assigned)
