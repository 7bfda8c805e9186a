"""The replay of `__consumer_offsets`: groups of all types with their offsets (Kafka: GroupCoordinatorShard.replay)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter

from ....common.room_logger import room_logger
from ....protocol.codec import decode_versioned, peek_version
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
from ....protocol.errors import ProtocolError
from ...runtime.loop_sharing import CountBudget
from ...runtime.scheduler import IsolatedWork
from ..compacted_records import CompactedRecords
from .assignment import epochs_from_record, from_wire
from .classic_group import ClassicGroup
from .consumer_group import ConsumerGroup, ResolvedRegularExpression
from .consumer_group_member import ClassicProtocolMember, ConsumerGroupMember, MemberState
from .group import Group
from .group_records import OffsetId, RecordType, read_group, read_key, read_offset
from .offsets import GroupOffsets, Place
from .share.share_group_loader import ShareGroupLoader
from .streams.streams_group_loader import REPLAYS as STREAMS_GROUP_REPLAYS
from .streams.streams_group_loader import StreamsGroupLoader

logger = room_logger("groups")

LOADED_OFFSETS_PER_TURN = 10
"""Groups and committed offsets that are built from loaded records in one turn of the loop. They are kept, which costs
the garbage collector time, too.
"""


async def load_groups(records: CompactedRecords, now_ms: int) -> dict[str, Group]:
    """Return the groups in the records of a partition, in slices of the event loop; drains `records`."""
    loader = GroupLoader(now_ms)
    budget = CountBudget(LOADED_OFFSETS_PER_TURN)
    isolated = IsolatedWork("a record of a group is skipped")
    for key, value in records.drain():
        with isolated:
            loader.replay(key, value)
        await budget.step()
    # In the order of the log: of two offsets for a partition, the later one counts.
    for producer_id, key, _, value in sorted(records.pending(), key=itemgetter(2)):
        with isolated:
            loader.replay_pending_offset(producer_id, key, value)
        await budget.step()
    return loader.groups()


class GroupLoader:
    """The groups of one partition while its records, the last of each key, are replayed in any order."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._classic: dict[str, ClassicGroup] = {}
        self._consumer: dict[str, ConsumerGroup] = {}
        self._streams = StreamsGroupLoader()
        self._share = ShareGroupLoader(now_ms)
        self._offsets: dict[str, GroupOffsets] = {}
        self._places: dict[Place, Place] = {}
        # Many groups read the same partitions: they share one tuple for each.

    def replay(self, key: bytes, value: bytes) -> None:
        """Apply a record; skip malformed records and unknown types."""
        try:
            subject = read_key(key)
            if isinstance(subject, OffsetId):
                place = self._places.setdefault(subject.place, subject.place)
                offset = read_offset(value)
                if subject.group_id not in self._offsets:
                    self._offsets[subject.group_id] = GroupOffsets()
                self._offsets[subject.group_id].committed[place] = offset
            elif subject is not None:
                self._classic[subject] = read_group(subject, value, self._now_ms)
            elif (replay := _CONSUMER_GROUP_REPLAYS.get(peek_version(key))) is not None:
                replay(self, key, value)
            elif (replay_streams := STREAMS_GROUP_REPLAYS.get(peek_version(key))) is not None:
                replay_streams(self._streams, key, value)
            else:
                self._share.replay(peek_version(key), key, value)
        except ProtocolError as error:
            logger.warning("a record of a group is skipped: %s", error)

    def replay_pending_offset(self, producer_id: int, key: bytes, value: bytes) -> None:
        """Apply an offset of an open transaction. Requires the order of the log."""
        try:
            subject = read_key(key)
            if isinstance(subject, OffsetId):
                if subject.group_id not in self._offsets:
                    self._offsets[subject.group_id] = GroupOffsets()
                self._offsets[subject.group_id].add_pending(producer_id, {subject.place: read_offset(value)})
        except ProtocolError as error:
            logger.warning("an offset of a transaction is skipped: %s", error)

    def groups(self) -> dict[str, Group]:
        """Return all groups after the last record."""
        classic = self._classic
        others: dict[str, Group] = {**self._share.groups, **self._consumer, **self._streams.groups}
        for group_id, committed in self._offsets.items():
            group = others.get(group_id) or classic.get(group_id)
            if group is None:
                group = classic[group_id] = ClassicGroup(group_id, self._now_ms)
            group.offsets = committed
        return {**classic, **others}

    # -- consumer groups -----------------------------------------------------------------------------------------------

    def _consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self._consumer.get(group_id)
        if group is None:
            group = self._consumer[group_id] = ConsumerGroup(group_id)
        return group

    def _replay_group_epoch(self, key: bytes, value: bytes) -> None:
        read = decode_versioned(ConsumerGroupMetadataValue, value)
        group = self._consumer_group(decode_versioned(ConsumerGroupMetadataKey, key).group_id)
        group.epoch, group.metadata_hash = read.epoch, read.metadata_hash

    def _replay_partition_metadata(self, key: bytes, _value: bytes) -> None:
        group_id = decode_versioned(ConsumerGroupPartitionMetadataKey, key).group_id
        self._consumer_group(group_id).has_partition_metadata = True

    def _replay_target_assignment_epoch(self, key: bytes, value: bytes) -> None:
        read = decode_versioned(ConsumerGroupTargetAssignmentMetadataValue, value)
        group_id = decode_versioned(ConsumerGroupTargetAssignmentMetadataKey, key).group_id
        group = self._consumer_group(group_id)
        group.assignment_epoch, group.assignment_timestamp_ms = read.assignment_epoch, read.assignment_timestamp

    def _replay_target_assignment(self, key: bytes, value: bytes) -> None:
        owner = decode_versioned(ConsumerGroupTargetAssignmentMemberKey, key)
        read = decode_versioned(ConsumerGroupTargetAssignmentMemberValue, value)
        self._consumer_group(owner.group_id).targets[owner.member_id] = from_wire(read.topic_partitions)

    def _replay_regular_expression(self, key: bytes, value: bytes) -> None:
        subject = decode_versioned(ConsumerGroupRegularExpressionKey, key)
        read = decode_versioned(ConsumerGroupRegularExpressionValue, value)
        resolved = ResolvedRegularExpression(frozenset(read.topics), read.version, read.timestamp)
        self._consumer_group(subject.group_id).regexes[subject.regular_expression] = resolved

    def _replay_member_subscription(self, key: bytes, value: bytes) -> None:
        owner = decode_versioned(ConsumerGroupMemberMetadataKey, key)
        read = decode_versioned(ConsumerGroupMemberMetadataValue, value)
        group = self._consumer_group(owner.group_id)
        classic = None
        if read.classic_member_metadata is not None:
            protocols = read.classic_member_metadata.supported_protocols
            classic = ClassicProtocolMember(
                read.classic_member_metadata.session_timeout_ms,
                tuple((one.name, bytes(one.metadata)) for one in protocols),
            )
        member = group.members.get(owner.member_id) or ConsumerGroupMember(owner.member_id)
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

    def _replay_current_assignment(self, key: bytes, value: bytes) -> None:
        owner = decode_versioned(ConsumerGroupCurrentMemberAssignmentKey, key)
        read = decode_versioned(ConsumerGroupCurrentMemberAssignmentValue, value)
        group = self._consumer_group(owner.group_id)
        member = group.members.get(owner.member_id) or ConsumerGroupMember(owner.member_id)
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


_CONSUMER_GROUP_REPLAYS: dict[int, Callable[[GroupLoader, bytes, bytes], None]] = {
    RecordType.CONSUMER_GROUP_METADATA: GroupLoader._replay_group_epoch,
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: GroupLoader._replay_partition_metadata,
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: GroupLoader._replay_member_subscription,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: GroupLoader._replay_target_assignment_epoch,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: GroupLoader._replay_target_assignment,
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: GroupLoader._replay_current_assignment,
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: GroupLoader._replay_regular_expression,
}
