"""What a group of the consumer protocol looks like as records of `__consumer_offsets`."""

from __future__ import annotations

from .....protocol.codec import encode_versioned
from .....protocol.coordinator_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ...coordinator_log import Entry
from .assignment import Assignment, to_record
from .group import ConsumerGroup, ResolvedRegex
from .member import ConsumerMember

GROUP, PARTITION_METADATA, MEMBER, ASSIGNMENT_EPOCH, TARGET, ASSIGNED, REGEX = 3, 4, 5, 6, 7, 8, 16
"""What a key's number says its record is."""
VALUE_VERSION = 0


def group_key(group_id: str) -> bytes:
    """The key of a group's epoch."""
    return encode_versioned(ConsumerGroupMetadataKey(group_id=group_id), GROUP)


def group_entry(group: ConsumerGroup) -> Entry:
    """A group's epoch and the hash of its topics."""
    value = ConsumerGroupMetadataValue(epoch=group.epoch, metadata_hash=group.metadata_hash)
    return group_key(group.group_id), encode_versioned(value, VALUE_VERSION)


def partition_metadata_key(group_id: str) -> bytes:
    """The key of what Kafka 4.0 and older wrote about a group's topics."""
    return encode_versioned(ConsumerGroupPartitionMetadataKey(group_id=group_id), PARTITION_METADATA)


def member_key(group_id: str, member_id: str) -> bytes:
    """The key of what a member wants."""
    return encode_versioned(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), MEMBER)


def member_entry(group_id: str, member: ConsumerMember) -> Entry:
    """What a member wants."""
    classic = None
    if member.classic is not None:
        classic = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in member.classic.protocols],
        )
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )
    return member_key(group_id, member.member_id), encode_versioned(value, VALUE_VERSION)


def assignment_epoch_key(group_id: str) -> bytes:
    """The key of the epoch of a group's target assignment."""
    return encode_versioned(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), ASSIGNMENT_EPOCH)


def assignment_epoch_entry(group: ConsumerGroup) -> Entry:
    """The epoch of a group's target assignment."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=group.assignment_epoch)
    return assignment_epoch_key(group.group_id), encode_versioned(value, VALUE_VERSION)


def target_key(group_id: str, member_id: str) -> bytes:
    return encode_versioned(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), TARGET)


def target_entry(group_id: str, member_id: str, target: Assignment) -> Entry:
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=to_record(target))
    return target_key(group_id, member_id), encode_versioned(value, VALUE_VERSION)


def assigned_key(group_id: str, member_id: str) -> bytes:
    return encode_versioned(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), ASSIGNED)


def assigned_entry(group_id: str, member: ConsumerMember) -> Entry:
    """What a member has and how far it is."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=to_record(member.assigned),
        partitions_pending_revocation=to_record(member.revoking),
    )
    return assigned_key(group_id, member.member_id), encode_versioned(value, VALUE_VERSION)


def regex_entry(group_id: str, regex: str, resolved: ResolvedRegex | None) -> Entry:
    """What a regular expression means; None if nobody asks any more."""
    key = encode_versioned(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), REGEX)
    if resolved is None:
        return key, None
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return key, encode_versioned(value, VALUE_VERSION)


def says_the_same(left: ConsumerMember, right: ConsumerMember) -> bool:
    """Whether `member_entry` of both is alike."""
    return _wishes(left) == _wishes(right)


def stands_the_same(left: ConsumerMember, right: ConsumerMember) -> bool:
    """Whether `assigned_entry` of both is alike."""
    return _standing(left) == _standing(right)


def _wishes(member: ConsumerMember) -> tuple[object, ...]:
    return (
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topics,
        member.regex,
        member.rebalance_timeout_ms,
        member.assignor,
        member.classic,
    )


def _standing(member: ConsumerMember) -> tuple[object, ...]:
    return member.epoch, member.previous_epoch, member.state, member.assigned, member.revoking


def removal(group: ConsumerGroup) -> list[Entry]:
    """What takes a group out of the log, its offsets aside."""
    name = group.group_id
    keys = [
        *(assigned_key(name, member_id) for member_id in group.members),
        *(target_key(name, member_id) for member_id in group.targets),
        assignment_epoch_key(name),
        *(member_key(name, member_id) for member_id in group.members),
        *(regex_entry(name, regex, None)[0] for regex in group.regexes),
        *([partition_metadata_key(name)] if group.has_partition_metadata else []),
        group_key(name),
    ]
    return [(key, None) for key in keys]
