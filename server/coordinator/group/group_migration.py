"""The conversion of a classic group to a consumer group and back (KIP-848's online migration). No I/O, no time.

Members keep their partitions. Kafka: ConsumerGroup.fromClassicGroup and ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ....protocol.codec import decode_versioned, encode_versioned, peek_version
from ....protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartitions
from ....protocol.errors import ErrorCode, KafkaError, ProtocolError
from ....protocol.schema import versions_of
from .assignment import NOTHING, Assignment, epochs_at
from .classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, ClassicGroupMember, Protocols
from .consumer_group import ConsumerGroup
from .consumer_group_change import ConsumerGroupChange
from .consumer_group_member import ClassicProtocolMember, ConsumerGroupMember

if TYPE_CHECKING:
    from ...metadata.metadata_cache import MetadataCache


def subscription_of(protocols: Protocols) -> ConsumerProtocolSubscription:
    """Return the subscription of a classic member, which is the same for each of its protocols.

    Raises KafkaError INCONSISTENT_GROUP_PROTOCOL.
    """
    try:
        return decode_versioned(ConsumerProtocolSubscription, protocols[0][1], later_is_newest=True)
    except (ProtocolError, IndexError):
        reason = "The embedded consumer protocol is malformed."
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reason) from None


def by_id(topics: list[TopicPartitions], metadata: MetadataCache) -> Assignment:
    """Return an assignment by topic id; topics that do not exist are left out."""
    result: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        topic_id = metadata.topic_id(topic.topic)
        if topic_id is not None and topic.partitions:
            result[topic_id] = frozenset(topic.partitions)
    return result


def classic_assignment(assigned: Assignment, protocols: Protocols, metadata: MetadataCache) -> bytes:
    """Encode an assignment for the SyncGroup response of a member, in the version of its subscription."""
    topics = [
        TopicPartitions(topic=name, partitions=sorted(partitions))
        for topic_id, partitions in assigned.items()
        for name in (metadata.topic_name(topic_id),)
        if name is not None
    ]
    version = min(peek_version(protocols[0][1]), versions_of(ConsumerProtocolAssignment).last)
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=topics), max(version, 0))


def to_consumer(classic: ClassicGroup, metadata: MetadataCache) -> ConsumerGroupChange:
    """Convert a classic group of consumers to a consumer group.

    Raises KafkaError GROUP_ID_NOT_FOUND if the subscription of a member is malformed, or if an assignment has the data
    of a custom assignor: the coordinator's assignors send none.
    """
    group = ConsumerGroup(classic.group_id)
    group.offsets = classic.offsets
    change = ConsumerGroupChange(group)
    taken: dict[UUID, frozenset[int]] = {}
    group.epoch = group.assignment_epoch = classic.generation
    if any(_has_user_data(member.assignment) for member in classic.members.values()):
        what = "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default"
        raise _not_upgraded(classic, f"{what} assignor before re-attempting the upgrade.")
    for member in classic.members.values():
        try:
            converted = _to_consumer_member(member, classic, metadata)
        except (KafkaError, ProtocolError):
            raise _not_upgraded(classic, "the embedded consumer protocol is malformed.") from None
        for topic_id, partitions in converted.assigned.items():
            if not taken.get(topic_id, frozenset()).isdisjoint(partitions):
                raise _not_upgraded(classic, "its leader assigned a partition to two members.")
            taken[topic_id] = taken.get(topic_id, frozenset()) | partitions
        change.put_member(converted)
        change.set_target(converted.member_id, converted.assigned)
    return change


def _not_upgraded(classic: ClassicGroup, reason: str) -> KafkaError:
    message = f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _has_user_data(assignment: bytes) -> bool:
    try:
        given = decode_versioned(ConsumerProtocolAssignment, assignment, later_is_newest=True)
    except ProtocolError:
        return False
    return bool(given.user_data)


def _to_consumer_member(
    member: ClassicGroupMember, classic: ClassicGroup, metadata: MetadataCache
) -> ConsumerGroupMember:
    chosen = [one for one in member.protocols if one[0] == classic.protocol_name]
    subscription = subscription_of(tuple(chosen) or member.protocols)
    assigned = NOTHING
    if member.assignment:
        given = decode_versioned(ConsumerProtocolAssignment, member.assignment, later_is_newest=True)
        assigned = by_id(given.assigned_partitions, metadata)
    return ConsumerGroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        assigned=assigned,
        assignment_epochs=epochs_at(assigned, classic.generation),
        classic=ClassicProtocolMember(member.session_timeout_ms, member.protocols),
    )


def to_classic(
    group: ConsumerGroup, members: list[ConsumerGroupMember], metadata: MetadataCache, now_ms: int
) -> ClassicGroup:
    """Convert a consumer group whose remaining members use the classic protocol to a classic group."""
    classic = ClassicGroup(group.group_id, now_ms)
    classic.offsets = group.offsets
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    converted = []
    for member in members:
        metadata_of_member = member.classic
        assert metadata_of_member is not None
        converted.append(
            ClassicGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=max(member.rebalance_timeout_ms, 0),
                session_timeout_ms=metadata_of_member.session_timeout_ms,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocols=metadata_of_member.protocols,
                assignment=classic_assignment(member.assigned, metadata_of_member.protocols, metadata),
            )
        )
    classic.restore(converted, group.epoch, None, None)
    return classic
