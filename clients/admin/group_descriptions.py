"""Descriptions of groups: DescribeGroups for classic groups, ConsumerGroupDescribe for consumer groups (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ...protocol.apis import ApiKey
from ...protocol.codec import decode_versioned
from ...protocol.consumer_protocol import ConsumerProtocolAssignment
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ...protocol.messages.describe_groups import DescribeGroupsRequest
from ...protocol.topic_partition import TopicPartition
from ..connection import BrokerConnection
from ..errors import code_of
from ..group.joining import PROTOCOL_TYPE, read_subscription
from ..group.sticky_user_data import partitions_in

CLASSIC = "classic"
CONSUMER = "consumer"
DEAD = "Dead"
_FIRST_VERSION = b"\0\0"


class GroupMember(NamedTuple):
    """One member; `topics` and `assigned` are empty where they cannot be read."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    topics: frozenset[str]
    assigned: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """One group; `type` is classic or consumer, `assignor` the strategy in use, `coordinator` an address."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: str
    members: tuple[GroupMember, ...]


async def describe_on(connection: BrokerConnection, group_ids: list[str]) -> dict[str, GroupDescription | KafkaError]:
    """Describe groups of this coordinator; the type of a group is unknown here, so both requests are sent."""
    found: dict[str, GroupDescription | KafkaError] = {}
    if connection.supports(ApiKey.CONSUMER_GROUP_DESCRIBE):
        response = await connection.send(ConsumerGroupDescribeRequest(group_ids=group_ids))
        found = {group.group_id: _consumer_group(group, connection) for group in response.groups}
    classic = [group_id for group_id in group_ids if _is_unknown(found.get(group_id))]
    if classic:
        response = await connection.send(DescribeGroupsRequest(groups=classic))
        found |= {group.group_id: _classic_group(group, connection) for group in response.groups}
    return found


def _is_unknown(answer: GroupDescription | KafkaError | None) -> bool:
    return answer is None or (
        isinstance(answer, KafkaError) and answer.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    )


def _consumer_group(group: Any, connection: BrokerConnection) -> GroupDescription | KafkaError:
    if group.error_code != ErrorCode.NONE:
        return KafkaError(code_of(group.error_code), group.error_message or f"group {group.group_id!r}")
    members = tuple(
        GroupMember(
            m.member_id,
            m.instance_id,
            m.client_id,
            m.client_host,
            frozenset(m.subscribed_topic_names),
            _sorted(TopicPartition(t.topic_name, p) for t in m.assignment.topic_partitions for p in t.partitions),
        )
        for m in group.members
    )
    return GroupDescription(
        group.group_id, CONSUMER, group.group_state, PROTOCOL_TYPE, group.assignor_name, connection.address, members
    )


def _classic_group(group: Any, connection: BrokerConnection) -> GroupDescription | KafkaError:
    error = code_of(group.error_code)
    if error is ErrorCode.NONE and group.group_state == DEAD:
        error = ErrorCode.GROUP_ID_NOT_FOUND  # the form of that error before KIP-1043
    if error is not ErrorCode.NONE:
        return KafkaError(error, group.error_message or f"group {group.group_id!r} does not exist")
    members = tuple(_classic_member(m, group.protocol_type) for m in group.members)
    return GroupDescription(
        group.group_id,
        CLASSIC,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        connection.address,
        members,
    )


def _classic_member(member: Any, protocol_type: str) -> GroupMember:
    """Groups of other protocol types, such as Kafka Connect's, have payloads of other forms."""
    is_consumer = protocol_type == PROTOCOL_TYPE
    topics = _subscribed(member.member_metadata) if is_consumer else frozenset[str]()
    assigned = _assigned(member.member_assignment) if is_consumer else ()
    return GroupMember(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, topics, assigned
    )


def _subscribed(metadata: bytes) -> frozenset[str]:
    """Return the topics of a subscription, an empty set if it cannot be read.

    Members of faust send a version number above 0 with the layout of version 0.
    """
    for payload in (metadata, _FIRST_VERSION + metadata[len(_FIRST_VERSION) :]) if metadata else ():
        try:
            return read_subscription(payload).topics
        except KafkaError:
            continue
    return frozenset()


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of an assignment, none if it cannot be read."""
    if not assignment:
        return ()
    try:
        given = decode_versioned(ConsumerProtocolAssignment, assignment, later_is_newest=True)
    except ProtocolError:
        return ()
    return _sorted(partitions_in(given.assigned_partitions))


def _sorted(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(partitions))
