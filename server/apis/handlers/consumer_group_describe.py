"""ConsumerGroupDescribe (key 69): groups of the consumer protocol, what their members have and what they shall have.

Version 1 says which protocol a member speaks. Groups of the classic protocol are DescribeGroups' business: to a client
that asks here first they are not found.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from ...config.broker_config import BrokerConfig
from ...coordinator.group.consumer.assignment import NOTHING
from ...coordinator.group.consumer.assignment import Assignment as Partitions
from ...coordinator.group.consumer.group import ConsumerGroup
from ...coordinator.group.consumer.member import ConsumerMember
from ...coordinator.group.coordinator import GroupCoordinator
from ...metadata.metadata_cache import MetadataCache
from ..authorized_operations import ALL_GROUP_OPERATIONS, NOT_REQUESTED
from ..request_context import RequestContext

CLASSIC, CONSUMER = 0, 1
PROTOCOL = "consumer"


def handle(
    ctx: RequestContext,
    request: ConsumerGroupDescribeRequest,
    *,
    config: BrokerConfig,
    groups: GroupCoordinator,
    metadata: MetadataCache,
) -> ConsumerGroupDescribeResponse:
    """Each group on its own."""
    operations = ALL_GROUP_OPERATIONS if request.include_authorized_operations else NOT_REQUESTED
    answers = []
    for group_id in request.group_ids:
        answer = _answer(group_id, config=config, groups=groups, metadata=metadata)
        if answer.error_code == ErrorCode.NONE:
            answer.authorized_operations = operations
        answers.append(answer)
    return ConsumerGroupDescribeResponse(groups=answers)


def _answer(
    group_id: str, *, config: BrokerConfig, groups: GroupCoordinator, metadata: MetadataCache
) -> DescribedGroup:
    if PROTOCOL not in config.group_coordinator_rebalance_protocols:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
        group = groups.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    assignors = groups.consumers.members.assignors
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor or assignors[0],
        members=[_member(group, member, metadata=metadata) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, *, metadata: MetadataCache) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(member.assigned, metadata=metadata),
        target_assignment=_assignment(group.targets.get(member.member_id, NOTHING), metadata=metadata),
        member_type=CONSUMER if member.classic is None else CLASSIC,
    )


def _assignment(assigned: Partitions, *, metadata: MetadataCache) -> Assignment:
    """With the names of topics; those that are gone are left out."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
            for name in (metadata.topic_name(topic_id),)
            if name is not None
        ]
    )
