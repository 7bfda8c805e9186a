"""A classic group as one of the consumer protocol and the other way round (KIP-848's migration). No I/O.

Members keep their partitions; those of the classic protocol are told to join again soon, and then the group's new rules
hold for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from .....protocol.codec import decode_versioned, encode_versioned, peek_version
from .....protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartitions
from .....protocol.errors import ErrorCode, KafkaError, ProtocolError
from .....protocol.schema import versions_of
from ..group import CONSUMER_PROTOCOL_TYPE, Group
from ..member import Member, Protocols
from .assignment import NOTHING, Assignment
from .change import Change
from .group import ConsumerGroup
from .member import ClassicSide, ConsumerMember

if TYPE_CHECKING:
    from ....metadata.metadata_cache import MetadataCache


def subscription_of(protocols: Protocols) -> ConsumerProtocolSubscription:
    """What a classic member says of itself; under each of its protocols it says the same.

    Raises KafkaError INCONSISTENT_GROUP_PROTOCOL.
    """
    try:
        return decode_versioned(ConsumerProtocolSubscription, protocols[0][1], later_is_newest=True)
    except (ProtocolError, IndexError):
        reason = "The embedded consumer protocol is malformed."
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reason) from None


def by_id(topics: list[TopicPartitions], metadata: MetadataCache) -> Assignment:
    """Partitions of topics by name as an assignment; topics that do not exist are left out."""
    result: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        topic_id = metadata.topic_id(topic.topic)
        if topic_id is not None and topic.partitions:
            result[topic_id] = frozenset(topic.partitions)
    return result


def classic_assignment(assigned: Assignment, protocols: Protocols, metadata: MetadataCache) -> bytes:
    """An assignment as SyncGroup tells it to a member with these protocols, in the version in which it speaks."""
    topics = [
        TopicPartitions(topic=name, partitions=sorted(partitions))
        for topic_id, partitions in assigned.items()
        for name in (metadata.topic_name(topic_id),)
        if name is not None
    ]
    version = min(peek_version(protocols[0][1]), versions_of(ConsumerProtocolAssignment).last)
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=topics), max(version, 0))


def to_consumer(classic: Group, metadata: MetadataCache) -> Change:
    """A classic group whose members are consumers as a group of the consumer protocol.

    Raises KafkaError GROUP_ID_NOT_FOUND if its members say nothing that can be understood, or if their leader tells
    them something besides their partitions: a custom assignor's data, which nobody would tell them any more.
    """
    group = ConsumerGroup(classic.group_id)
    group.offsets = classic.offsets
    change = Change(group)
    taken: dict[UUID, frozenset[int]] = {}
    group.epoch = group.assignment_epoch = classic.generation
    if any(_has_data_of_its_own(member.assignment) for member in classic.members.values()):
        what = "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default"
        raise _not_upgraded(classic, f"{what} assignor before re-attempting the upgrade.")
    for member in classic.members.values():
        try:
            converted = _to_consumer_member(member, classic, metadata)
        except (KafkaError, ProtocolError):
            raise _not_upgraded(classic, "the embedded consumer protocol is malformed.") from None
        for topic_id, partitions in converted.assigned.items():
            if not taken.get(topic_id, frozenset()).isdisjoint(partitions):
                raise _not_upgraded(classic, "its leader gave a partition to two members.")
            taken[topic_id] = taken.get(topic_id, frozenset()) | partitions
        change.put_member(converted)
        change.set_target(converted.member_id, converted.assigned)
    return change


def _not_upgraded(classic: Group, reason: str) -> KafkaError:
    message = f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _has_data_of_its_own(assignment: bytes) -> bool:
    try:
        given = decode_versioned(ConsumerProtocolAssignment, assignment, later_is_newest=True)
    except ProtocolError:
        return False
    return bool(given.user_data)


def _to_consumer_member(member: Member, classic: Group, metadata: MetadataCache) -> ConsumerMember:
    chosen = [one for one in member.protocols if one[0] == classic.protocol_name]
    subscription = subscription_of(tuple(chosen) or member.protocols)
    assigned = NOTHING
    if member.assignment:
        given = decode_versioned(ConsumerProtocolAssignment, member.assignment, later_is_newest=True)
        assigned = by_id(given.assigned_partitions, metadata)
    return ConsumerMember(
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
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
    )


def to_classic(group: ConsumerGroup, members: list[ConsumerMember], metadata: MetadataCache, now_ms: int) -> Group:
    """A group of which only these classic members are left as a classic group."""
    classic = Group(group.group_id, now_ms)
    classic.offsets = group.offsets
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    converted = []
    for member in members:
        side = member.classic
        assert side is not None
        converted.append(
            Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=max(member.rebalance_timeout_ms, 0),
                session_timeout_ms=side.session_timeout_ms,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocols=side.protocols,
                assignment=classic_assignment(member.assigned, side.protocols, metadata),
            )
        )
    classic.restore(converted, group.epoch, None, None)
    return classic
