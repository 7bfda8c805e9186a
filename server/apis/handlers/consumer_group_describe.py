"""ConsumerGroupDescribe (key 69): groups of the consumer protocol, what their members have and what they shall have.

Version 1 says which protocol a member speaks. Groups of the classic protocol are DescribeGroups' business: to a client
that asks here first they are not found.
"""

from __future__ import annotations

from functools import partial

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from ...coordinator.group.consumer.assignment import NOTHING
from ...coordinator.group.consumer.assignment import Assignment as Partitions
from ...coordinator.group.consumer.group import ConsumerGroup
from ...coordinator.group.consumer.member import ConsumerMember
from ...runtime.turns import Pace, steps_of
from ..answer_budget import Budget
from ..authorized_operations import authorized_operations
from ..ports import ClusterMetadata, ConsumerProtocolGroups
from ..request_context import RequestContext

CLASSIC, CONSUMER = 0, 1
TOPICS_REFUSED = "The group has described topic(s) that the client is not authorized to describe."


async def handle(
    ctx: RequestContext,
    request: ConsumerGroupDescribeRequest,
    *,
    consumer_groups: ConsumerProtocolGroups,
    metadata: ClusterMetadata,
) -> ConsumerGroupDescribeResponse:
    """Each group on its own, and once.

    Groups for which there is no room in the answer are COORDINATOR_LOAD_IN_PROGRESS: the client asks for them again.
    """
    may_see = partial(ctx.may, AclOperation.DESCRIBE, AclResourceType.TOPIC)
    budget, pace = Budget(), Pace()
    answers = []
    for group_id in dict.fromkeys(request.group_ids):
        if not consumer_groups.are_served:
            answer = DescribedGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
        elif budget.is_spent:
            answer = DescribedGroup(group_id=group_id, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            answer = _answer(consumer_groups, metadata, group_id)
        budget.spend(sum(map(_size, answer.members)))
        if ctx.is_guarded and not all(map(may_see, _topics(answer))):
            answer = DescribedGroup(
                group_id=group_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=TOPICS_REFUSED
            )
        if answer.error_code == ErrorCode.NONE and request.include_authorized_operations:
            answer.authorized_operations = authorized_operations(ctx, AclResourceType.GROUP, group_id)
        answers.append(answer)
        await pace.step(steps_of(group_id) + len(answer.members))
    return ConsumerGroupDescribeResponse(groups=answers)


def _topics(group: DescribedGroup) -> set[str]:
    return {
        name
        for member in group.members
        for names in (
            member.subscribed_topic_names,
            (one.topic_name for one in member.assignment.topic_partitions),
            (one.topic_name for one in member.target_assignment.topic_partitions),
        )
        for name in names
    }


def _size(member: Member) -> int:
    """About how many bytes it takes."""
    assigned = [*member.assignment.topic_partitions, *member.target_assignment.topic_partitions]
    names = sum(map(len, member.subscribed_topic_names)) + len(member.subscribed_topic_regex or "")
    return 200 + names + sum(50 + 4 * len(one.partitions) + len(one.topic_name) for one in assigned)


def _answer(consumer_groups: ConsumerProtocolGroups, metadata: ClusterMetadata, group_id: str) -> DescribedGroup:
    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
        group = consumer_groups.consumer_group(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    assignors = consumer_groups.assignors
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor or assignors[0],
        members=[_member(metadata, group, member) for member in group.members.values()],
    )


def _member(metadata: ClusterMetadata, group: ConsumerGroup, member: ConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(metadata, member.assigned),
        target_assignment=_assignment(metadata, group.targets.get(member.member_id, NOTHING)),
        member_type=CONSUMER if member.classic is None else CLASSIC,
    )


def _assignment(metadata: ClusterMetadata, assigned: Partitions) -> Assignment:
    """With the names of topics; those that are gone are left out."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
            for name in (metadata.topic_name(topic_id),)
            if name is not None
        ]
    )
