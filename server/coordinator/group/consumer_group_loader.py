"""The replay of the records of consumer groups (Kafka: the replay methods of GroupMetadataManager)."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from ....protocol.codec import decode_versioned
from ....protocol.coordinator_records import (
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
from .assignment import epochs_from_record, from_wire
from .consumer_group import ConsumerGroup, ResolvedRegularExpression
from .consumer_group_member import ClassicProtocolMember, ConsumerGroupMember, MemberState
from .group_records import RecordType
from .modern_group_loader import ModernGroupLoader


class ConsumerGroupLoader(ModernGroupLoader[ConsumerGroup, ConsumerGroupMember]):
    """The consumer groups of one partition while its records, the last of each key, are replayed in any order."""

    def __init__(self) -> None:
        super().__init__(ConsumerGroup, ConsumerGroupMember)

    def replay_metadata(self, key: bytes, value: bytes) -> None:
        """Apply the record of a group's epoch. Raises ProtocolError, as the methods below."""
        read = decode_versioned(ConsumerGroupMetadataValue, value)
        self.set_group_epoch(decode_versioned(ConsumerGroupMetadataKey, key).group_id, read)

    def replay_partition_metadata(self, key: bytes, _value: bytes) -> None:
        """Apply the record about a group's topics, which Kafka 4.0 and older versions wrote."""
        group_id = decode_versioned(ConsumerGroupPartitionMetadataKey, key).group_id
        self.get_or_create_group(group_id).has_partition_metadata = True

    def replay_target_assignment_metadata(self, key: bytes, value: bytes) -> None:
        """Apply the record of the epoch of a target assignment."""
        read = decode_versioned(ConsumerGroupTargetAssignmentMetadataValue, value)
        group_id = decode_versioned(ConsumerGroupTargetAssignmentMetadataKey, key).group_id
        self.set_target_assignment_epoch(group_id, read)

    def replay_target_assignment(self, key: bytes, value: bytes) -> None:
        """Apply the record of a member's target assignment."""
        owner = decode_versioned(ConsumerGroupTargetAssignmentMemberKey, key)
        read = decode_versioned(ConsumerGroupTargetAssignmentMemberValue, value)
        self.get_or_create_group(owner.group_id).targets[owner.member_id] = from_wire(read.topic_partitions)

    def replay_regular_expression(self, key: bytes, value: bytes) -> None:
        """Apply the record of the topics that match a regular expression."""
        subject = decode_versioned(ConsumerGroupRegularExpressionKey, key)
        read = decode_versioned(ConsumerGroupRegularExpressionValue, value)
        resolved = ResolvedRegularExpression(frozenset(read.topics), read.version, read.timestamp)
        self.get_or_create_group(subject.group_id).regexes[subject.regular_expression] = resolved

    def replay_member(self, key: bytes, value: bytes) -> None:
        """Apply the record of the values that a member's heartbeats set."""
        read = decode_versioned(ConsumerGroupMemberMetadataValue, value)
        group, member = self.get_or_create_member(decode_versioned(ConsumerGroupMemberMetadataKey, key))
        classic = None
        if read.classic_member_metadata is not None:
            protocols = read.classic_member_metadata.supported_protocols
            classic = ClassicProtocolMember(
                read.classic_member_metadata.session_timeout_ms,
                tuple((one.name, bytes(one.metadata)) for one in protocols),
            )
        group.put_member(
            replace(
                member,
                instance_id=read.instance_id,
                rack_id=read.rack_id,
                client_id=read.client_id,
                client_host=read.client_host,
                rebalance_timeout_ms=read.rebalance_timeout_ms,
                topics=frozenset(read.subscribed_topic_names),
                regex=read.subscribed_topic_regex or "",
                assignor=read.server_assignor,
                classic=classic,
            )
        )

    def replay_current_assignment(self, key: bytes, value: bytes) -> None:
        """Apply the record of a member's epochs, state and partitions."""
        read = decode_versioned(ConsumerGroupCurrentMemberAssignmentValue, value)
        group, member = self.get_or_create_member(decode_versioned(ConsumerGroupCurrentMemberAssignmentKey, key))
        group.put_member(
            replace(
                member,
                epoch=read.member_epoch,
                previous_epoch=read.previous_member_epoch,
                state=MemberState.of(read.state),
                assigned=from_wire(read.assigned_partitions),
                revoking=from_wire(read.partitions_pending_revocation),
                assignment_epochs=epochs_from_record(
                    (*read.partitions_pending_revocation, *read.assigned_partitions), read.member_epoch
                ),
            )
        )

    REPLAYS = MappingProxyType(
        {
            RecordType.CONSUMER_GROUP_METADATA: replay_metadata,
            RecordType.CONSUMER_GROUP_PARTITION_METADATA: replay_partition_metadata,
            RecordType.CONSUMER_GROUP_MEMBER_METADATA: replay_member,
            RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: replay_target_assignment_metadata,
            RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: replay_target_assignment,
            RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: replay_current_assignment,
            RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: replay_regular_expression,
        }
    )
