"""Groups of the consumer protocol out of the records of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .....protocol.codec import decode_versioned, peek_version
from .....protocol.coordinator_records import (
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
from . import records
from .assignment import from_wire
from .group import ConsumerGroup, ResolvedRegex
from .member import ClassicSide, ConsumerMember
from .states import MemberState


class LoadedConsumerGroups:
    """Takes the last record of each key, in any order."""

    def __init__(self) -> None:
        self.groups: dict[str, ConsumerGroup] = {}

    @staticmethod
    def knows(key: bytes) -> bool:
        """Whether a record belongs to such a group. Raises ProtocolError."""
        return peek_version(key) in _READERS

    def take(self, key: bytes, value: bytes) -> None:
        """Let the record count. Raises ProtocolError."""
        _READERS[peek_version(key)](self, key, value)

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ConsumerGroup(group_id)
        return group

    def _epoch(self, key: bytes, value: bytes) -> None:
        read = decode_versioned(ConsumerGroupMetadataValue, value)
        group = self._group(decode_versioned(ConsumerGroupMetadataKey, key).group_id)
        group.epoch, group.metadata_hash = read.epoch, read.metadata_hash

    def _partition_metadata(self, key: bytes, _value: bytes) -> None:
        group_id = decode_versioned(ConsumerGroupPartitionMetadataKey, key).group_id
        self._group(group_id).has_partition_metadata = True

    def _assignment_epoch(self, key: bytes, value: bytes) -> None:
        read = decode_versioned(ConsumerGroupTargetAssignmentMetadataValue, value)
        group_id = decode_versioned(ConsumerGroupTargetAssignmentMetadataKey, key).group_id
        self._group(group_id).assignment_epoch = read.assignment_epoch

    def _target(self, key: bytes, value: bytes) -> None:
        whose = decode_versioned(ConsumerGroupTargetAssignmentMemberKey, key)
        read = decode_versioned(ConsumerGroupTargetAssignmentMemberValue, value)
        self._group(whose.group_id).targets[whose.member_id] = from_wire(read.topic_partitions)

    def _regex(self, key: bytes, value: bytes) -> None:
        which = decode_versioned(ConsumerGroupRegularExpressionKey, key)
        read = decode_versioned(ConsumerGroupRegularExpressionValue, value)
        resolved = ResolvedRegex(frozenset(read.topics), read.version, read.timestamp)
        self._group(which.group_id).regexes[which.regular_expression] = resolved

    def _wishes(self, key: bytes, value: bytes) -> None:
        whose = decode_versioned(ConsumerGroupMemberMetadataKey, key)
        read = decode_versioned(ConsumerGroupMemberMetadataValue, value)
        group = self._group(whose.group_id)
        classic = read.classic_member_metadata
        side = None
        if classic is not None:
            protocols = tuple((one.name, bytes(one.metadata)) for one in classic.supported_protocols)
            side = ClassicSide(classic.session_timeout_ms, protocols)
        member = group.members.get(whose.member_id) or ConsumerMember(whose.member_id)
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
                classic=side,
            )
        )

    def _standing(self, key: bytes, value: bytes) -> None:
        whose = decode_versioned(ConsumerGroupCurrentMemberAssignmentKey, key)
        read = decode_versioned(ConsumerGroupCurrentMemberAssignmentValue, value)
        group = self._group(whose.group_id)
        member = group.members.get(whose.member_id) or ConsumerMember(whose.member_id)
        group.put_member(
            replace(
                member,
                epoch=read.member_epoch,
                previous_epoch=read.previous_member_epoch,
                state=MemberState.of(read.state),
                assigned=from_wire(read.assigned_partitions),
                revoking=from_wire(read.partitions_pending_revocation),
            )
        )


_READERS: dict[int, Callable[[LoadedConsumerGroups, bytes, bytes], None]] = {
    records.GROUP: LoadedConsumerGroups._epoch,
    records.PARTITION_METADATA: LoadedConsumerGroups._partition_metadata,
    records.MEMBER: LoadedConsumerGroups._wishes,
    records.ASSIGNMENT_EPOCH: LoadedConsumerGroups._assignment_epoch,
    records.TARGET: LoadedConsumerGroups._target,
    records.ASSIGNED: LoadedConsumerGroups._standing,
    records.REGEX: LoadedConsumerGroups._regex,
}
"""By the number that a key begins with."""
