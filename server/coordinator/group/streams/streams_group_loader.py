"""The replay of the records of streams groups (Kafka: the replay methods of GroupMetadataManager)."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from .....protocol.codec import decode_versioned
from .....protocol.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from ..modern_group_loader import ModernGroupLoader
from . import streams_group_records as records
from .streams_group import StreamsGroup
from .streams_group_member import StreamsGroupMember, StreamsMemberState


class StreamsGroupLoader(ModernGroupLoader[StreamsGroup, StreamsGroupMember]):
    """The streams groups of one partition while its records, the last of each key, are replayed in any order."""

    def __init__(self) -> None:
        super().__init__(StreamsGroup, StreamsGroupMember)

    def replay_metadata(self, key: bytes, value: bytes) -> None:
        """Apply the record of a group's epoch. Raises ProtocolError, as the methods below."""
        read = decode_versioned(StreamsGroupMetadataValue, value)
        group = self.set_group_epoch(decode_versioned(StreamsGroupMetadataKey, key).group_id, read)
        group.validated_topology_epoch = read.validated_topology_epoch
        group.last_assignment_configs = {one.key: one.value for one in read.last_assignment_configs or ()}
        group.stored_description_epoch = read.stored_description_topology_epoch
        group.failed_description_epoch = read.failed_description_topology_epoch

    def replay_topology(self, key: bytes, value: bytes) -> None:
        """Apply the record of a topology."""
        read = decode_versioned(StreamsGroupTopologyValue, value)
        group = self.get_or_create_group(decode_versioned(StreamsGroupTopologyKey, key).group_id)
        group.topology = records.topology_from_record(read)

    def replay_member(self, key: bytes, value: bytes) -> None:
        """Apply the record of the values that a member's heartbeats set."""
        read = decode_versioned(StreamsGroupMemberMetadataValue, value)
        group, member = self.get_or_create_member(decode_versioned(StreamsGroupMemberMetadataKey, key))
        group.put_member(
            replace(
                member,
                instance_id=read.instance_id,
                rack_id=read.rack_id,
                client_id=read.client_id,
                client_host=read.client_host,
                rebalance_timeout_ms=read.rebalance_timeout_ms,
                topology_epoch=read.topology_epoch,
                process_id=read.process_id,
                user_endpoint=records.endpoint_from_record(read.user_endpoint),
                client_tags={one.key: one.value for one in read.client_tags},
            )
        )

    def replay_target_assignment_metadata(self, key: bytes, value: bytes) -> None:
        """Apply the record of the epoch of a target assignment."""
        read = decode_versioned(StreamsGroupTargetAssignmentMetadataValue, value)
        group_id = decode_versioned(StreamsGroupTargetAssignmentMetadataKey, key).group_id
        self.set_target_assignment_epoch(group_id, read)

    def replay_target_assignment(self, key: bytes, value: bytes) -> None:
        """Apply the record of a member's target assignment."""
        owner = decode_versioned(StreamsGroupTargetAssignmentMemberKey, key)
        read = decode_versioned(StreamsGroupTargetAssignmentMemberValue, value)
        self.get_or_create_group(owner.group_id).targets[owner.member_id] = records.target_from_record(read)

    def replay_current_assignment(self, key: bytes, value: bytes) -> None:
        """Apply the record of a member's epochs, state and tasks."""
        read = decode_versioned(StreamsGroupCurrentMemberAssignmentValue, value)
        group, member = self.get_or_create_member(decode_versioned(StreamsGroupCurrentMemberAssignmentKey, key))
        group.put_member(
            replace(
                member,
                epoch=read.member_epoch,
                previous_epoch=read.previous_member_epoch,
                state=StreamsMemberState.of(read.state),
                assigned=records.assigned_from_record(read),
                revoking=records.revoking_from_record(read),
            )
        )

    REPLAYS = MappingProxyType(
        {
            records.GROUP_METADATA: replay_metadata,
            records.MEMBER_METADATA: replay_member,
            records.TARGET_ASSIGNMENT_METADATA: replay_target_assignment_metadata,
            records.TARGET_ASSIGNMENT_MEMBER: replay_target_assignment,
            records.CURRENT_MEMBER_ASSIGNMENT: replay_current_assignment,
            records.TOPOLOGY: replay_topology,
        }
    )
