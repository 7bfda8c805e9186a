"""The records of `__consumer_offsets` (Kafka: GroupCoordinatorRecordHelpers), byte for byte as Kafka.

The first two bytes of a key are its version, which is the type of the record. `GroupLoader` reads the records of
consumer groups; this module reads classic groups and offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

from ....protocol.codec import decode_versioned, encode_versioned, peek_version
from ....protocol.coordinator_records import (
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
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ....protocol.topic_partition import TopicPartitionKey
from ..coordinator_log import CoordinatorRecord
from .assignment import Assignment, to_current_record, to_record
from .classic_group import ClassicGroup, ClassicGroupMember
from .consumer_group import ConsumerGroup, ResolvedRegularExpression
from .consumer_group_member import ConsumerGroupMember
from .group import Group
from .offsets import CommittedOffset
from .share.share_group import ShareGroup
from .share.share_group_records import new_share_group_tombstones
from .streams.streams_group import StreamsGroup
from .streams.streams_group_records import new_streams_group_tombstones


class RecordType(IntEnum):
    """The type of a record, which is the version of its key (Kafka: CoordinatorRecordType)."""

    LEGACY_OFFSET_COMMIT = 0
    OFFSET_COMMIT = 1
    GROUP_METADATA = 2
    CONSUMER_GROUP_METADATA = 3
    CONSUMER_GROUP_PARTITION_METADATA = 4
    CONSUMER_GROUP_MEMBER_METADATA = 5
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = 6
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = 8
    CONSUMER_GROUP_REGULAR_EXPRESSION = 16


OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3
CONSUMER_GROUP_VALUE_VERSION = 0


# -- offsets -----------------------------------------------------------------------------------------------------------


class OffsetId(NamedTuple):
    """The group and the partition of a committed offset."""

    group_id: str
    partition: TopicPartitionKey


def offset_commit_key(group_id: str, topic_partition: TopicPartitionKey) -> bytes:
    """Return the key of a committed offset."""
    key = OffsetCommitKey(group=group_id, topic=topic_partition[0], partition=topic_partition[1])
    return encode_versioned(key, RecordType.OFFSET_COMMIT)


BARRIER_RECORD: CoordinatorRecord = (offset_commit_key("", ("", -1)), None)
"""A record that changes no state when it is loaded: the tombstone of an offset of a topic that cannot exist."""


def new_offset_commit_record(group_id: str, partition: TopicPartitionKey, offset: CommittedOffset) -> CoordinatorRecord:
    """Return the record of a committed offset."""
    value = OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp_ms,
        expire_timestamp=offset.expire_timestamp_ms,
    )
    has_expiry = offset.expire_timestamp_ms >= 0
    version = OFFSET_VALUE_VERSION_WITH_EXPIRY if has_expiry else OFFSET_VALUE_VERSION
    return offset_commit_key(group_id, partition), encode_versioned(value, version)


def new_offset_commit_tombstone(group_id: str, partition: TopicPartitionKey) -> CoordinatorRecord:
    """Return the record that deletes a committed offset."""
    return offset_commit_key(group_id, partition), None


def read_offset(value: bytes) -> CommittedOffset:
    """Return the committed offset in a record. Raises ProtocolError."""
    read = decode_versioned(OffsetCommitValue, value)
    return CommittedOffset(
        read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp, read.topic_id
    )


def read_key(key: bytes) -> OffsetId | str | None:
    """Return the offset that a key identifies, or the id of its classic group; None for other types of records.

    Raises ProtocolError.
    """
    version = peek_version(key)
    if version in (RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT):
        offset = decode_versioned(OffsetCommitKey, key)
        return OffsetId(offset.group, (offset.topic, offset.partition))
    if version == RecordType.GROUP_METADATA:
        return decode_versioned(GroupMetadataKey, key).group
    return None


# -- classic groups ----------------------------------------------------------------------------------------------------


def group_metadata_key(group_id: str) -> bytes:
    """Return the key of a classic group."""
    return encode_versioned(GroupMetadataKey(group=group_id), RecordType.GROUP_METADATA)


def new_group_metadata_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """Return the record of a classic group's present generation with these assignments."""
    encoder = GroupMetadataEncoder(group, assignments)
    encoder.encode_members(len(group.members))
    return encoder.record()


class GroupMetadataEncoder:
    """`new_group_metadata_record` in several steps. The group must not change between them."""

    def __init__(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        self.is_done = False
        """Whether all members are encoded."""
        self._key = group_metadata_key(group.group_id)
        self._protocol_name = group.protocol_name
        self._assignments = assignments
        self._value = GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp=group.state_timestamp_ms,
            members=[],
        )
        # A value ends with its members, and their number (four bytes) is in front of them.
        self._head = encode_versioned(self._value, GROUP_VALUE_VERSION)
        self._pieces = [self._head[:-4], len(group.members).to_bytes(4, "big")]
        self._left = iter(group.members.values())

    def encode_members(self, count: int) -> None:
        """Encode up to `count` more members."""
        name, assignments = self._protocol_name, self._assignments
        self._value.members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in islice(self._left, count)
        ]
        self._pieces.append(encode_versioned(self._value, GROUP_VALUE_VERSION)[len(self._head) :])
        self.is_done = len(self._value.members) < count

    def record(self) -> CoordinatorRecord:
        """Return the record after all members are encoded."""
        return self._key, b"".join(self._pieces)


def read_group(group_id: str, value: bytes, now_ms: int) -> ClassicGroup:
    """Return the classic group in a record, without waiting requests. Raises ProtocolError."""
    read = decode_versioned(GroupMetadataValue, value)
    group = ClassicGroup(group_id, now_ms)
    group.is_logged = True
    group.protocol_type = read.protocol_type or None
    members = {}
    for one in read.members:
        rebalance_timeout = one.session_timeout if one.rebalance_timeout < 0 else one.rebalance_timeout
        members[one.member_id] = ClassicGroupMember(
            member_id=one.member_id,
            group_instance_id=one.group_instance_id,
            client_id=one.client_id,
            client_host=one.client_host,
            rebalance_timeout_ms=rebalance_timeout,
            session_timeout_ms=one.session_timeout,
            protocol_type=read.protocol_type,
            protocols=((read.protocol or "", bytes(one.subscription)),),
            assignment=bytes(one.assignment),
        )
    group.restore(members.values(), read.generation, read.protocol, read.leader)
    if read.current_state_timestamp >= 0:
        group.state_timestamp_ms = read.current_state_timestamp
    return group


# -- consumer groups ---------------------------------------------------------------------------------------------------


def _group_epoch_key(group_id: str) -> bytes:
    return encode_versioned(ConsumerGroupMetadataKey(group_id=group_id), RecordType.CONSUMER_GROUP_METADATA)


def new_consumer_group_epoch_record(group: ConsumerGroup) -> CoordinatorRecord:
    """Return the record of a group's epoch and of the hash of its topics."""
    value = ConsumerGroupMetadataValue(epoch=group.epoch, metadata_hash=group.metadata_hash)
    return _group_epoch_key(group.group_id), encode_versioned(value, CONSUMER_GROUP_VALUE_VERSION)


def new_consumer_group_subscription_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of the record in which Kafka 4.0 and older versions stored a group's topics."""
    key = ConsumerGroupPartitionMetadataKey(group_id=group_id)
    return encode_versioned(key, RecordType.CONSUMER_GROUP_PARTITION_METADATA), None


def _member_subscription_key(group_id: str, member_id: str) -> bytes:
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return encode_versioned(key, RecordType.CONSUMER_GROUP_MEMBER_METADATA)


def new_consumer_group_member_subscription_record(group_id: str, member: ConsumerGroupMember) -> CoordinatorRecord:
    """Return the record of the values that a member's heartbeats set."""
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
    key = _member_subscription_key(group_id, member.member_id)
    return key, encode_versioned(value, CONSUMER_GROUP_VALUE_VERSION)


def new_consumer_group_member_subscription_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the record that deletes a member."""
    return _member_subscription_key(group_id, member_id), None


def _target_assignment_epoch_key(group_id: str) -> bytes:
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    return encode_versioned(key, RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA)


def new_consumer_group_target_assignment_epoch_record(group: ConsumerGroup) -> CoordinatorRecord:
    """Return the record of the epoch of a group's target assignment."""
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=group.assignment_epoch, assignment_timestamp=group.assignment_timestamp_ms
    )
    return _target_assignment_epoch_key(group.group_id), encode_versioned(value, CONSUMER_GROUP_VALUE_VERSION)


def _target_assignment_key(group_id: str, member_id: str) -> bytes:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return encode_versioned(key, RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER)


def new_consumer_group_target_assignment_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    """Return the record of a member's target assignment."""
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=to_record(target))
    return _target_assignment_key(group_id, member_id), encode_versioned(value, CONSUMER_GROUP_VALUE_VERSION)


def new_consumer_group_target_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the record that deletes a member's target assignment."""
    return _target_assignment_key(group_id, member_id), None


def _current_assignment_key(group_id: str, member_id: str) -> bytes:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return encode_versioned(key, RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT)


def new_consumer_group_current_assignment_record(group_id: str, member: ConsumerGroupMember) -> CoordinatorRecord:
    """Return the record of a member's epochs, state and partitions."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=to_current_record(member.assigned, member.assignment_epochs),
        partitions_pending_revocation=to_current_record(member.revoking, member.assignment_epochs),
    )
    key = _current_assignment_key(group_id, member.member_id)
    return key, encode_versioned(value, CONSUMER_GROUP_VALUE_VERSION)


def new_consumer_group_current_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the record that deletes a member's epochs, state and partitions."""
    return _current_assignment_key(group_id, member_id), None


def new_consumer_group_regular_expression_record(
    group_id: str, regex: str, resolved: ResolvedRegularExpression | None
) -> CoordinatorRecord:
    """Return the record of the topics that match a regular expression, or its tombstone."""
    key = encode_versioned(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
    )
    if resolved is None:
        return key, None
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return key, encode_versioned(value, CONSUMER_GROUP_VALUE_VERSION)


def is_same_subscription(left: ConsumerGroupMember, right: ConsumerGroupMember) -> bool:
    """Return whether the subscription records of two states of a member are equal."""
    return _subscription_values(left) == _subscription_values(right)


def _subscription_values(member: ConsumerGroupMember) -> tuple[object, ...]:
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


def is_same_current_assignment(left: ConsumerGroupMember, right: ConsumerGroupMember) -> bool:
    """Return whether the current assignment records of two states of a member are equal."""
    return _current_assignment_values(left) == _current_assignment_values(right)


def _current_assignment_values(member: ConsumerGroupMember) -> tuple[object, ...]:
    return (
        member.epoch,
        member.previous_epoch,
        member.state,
        member.assigned,
        member.revoking,
        member.assignment_epochs,
    )


# -- deletion ----------------------------------------------------------------------------------------------------------


def new_group_tombstones(group: Group) -> list[CoordinatorRecord]:
    """Return the records that delete a group of any type, except its offsets (Kafka: createGroupTombstoneRecords)."""
    if isinstance(group, ConsumerGroup):
        return _consumer_group_tombstones(group)
    if isinstance(group, StreamsGroup):
        return list(new_streams_group_tombstones(group))
    if isinstance(group, ShareGroup):
        return new_share_group_tombstones(group)
    assert isinstance(group, ClassicGroup)
    return [(group_metadata_key(group.group_id), None)] if group.is_logged else []


def _consumer_group_tombstones(group: ConsumerGroup) -> list[CoordinatorRecord]:
    group_id = group.group_id
    # In Kafka's order: its replay requires that a member has no assignment when the member is deleted.
    return [
        *(new_consumer_group_current_assignment_tombstone(group_id, member_id) for member_id in group.members),
        *(new_consumer_group_target_assignment_tombstone(group_id, member_id) for member_id in group.targets),
        (_target_assignment_epoch_key(group_id), None),
        *(new_consumer_group_member_subscription_tombstone(group_id, member_id) for member_id in group.members),
        *(new_consumer_group_regular_expression_record(group_id, regex, None) for regex in group.regexes),
        *([new_consumer_group_subscription_metadata_tombstone(group_id)] if group.has_partition_metadata else []),
        (_group_epoch_key(group_id), None),
    ]
