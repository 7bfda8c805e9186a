"""ConsumerGroupDescribe (key 69): groups of the consumer protocol, with current and target assignments.

Version 1 adds the protocol of each member. Groups of the classic protocol are not found: DescribeGroups describes them.
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
from ...coordinator.group.assignment import NOTHING
from ...coordinator.group.assignment import Assignment as Partitions
from ...coordinator.group.consumer_group import ConsumerGroup
from ...coordinator.group.consumer_group_manager import ConsumerGroupManager
from ...coordinator.group.consumer_group_member import ConsumerGroupMember
from ...metadata.metadata_cache import MetadataCache
from ...runtime.loop_sharing import CountBudget, lookup_steps
from ..authorized_operations import authorized_operations
from ..request_context import RequestContext
from ..response_budget import ResponseBudget

CLASSIC, CONSUMER = 0, 1
TOPICS_REFUSED = "The group has described topic(s) that the client is not authorized to describe."


async def handle(
    ctx: RequestContext,
    request: ConsumerGroupDescribeRequest,
    *,
    consumer_group_manager: ConsumerGroupManager,
    metadata_cache: MetadataCache,
) -> ConsumerGroupDescribeResponse:
    """Each group on its own, and once.

    Groups for which there is no room in the answer are COORDINATOR_LOAD_IN_PROGRESS: the client requests them again.
    """
    may_see = partial(ctx.is_authorized, AclOperation.DESCRIBE, AclResourceType.TOPIC)
    budget, turn_budget = ResponseBudget(), CountBudget()
    answers = []
    for group_id in dict.fromkeys(request.group_ids):
        if not consumer_group_manager.are_served:
            answer = DescribedGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
        elif budget.is_exhausted:
            answer = DescribedGroup(group_id=group_id, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            answer = _answer(consumer_group_manager, metadata_cache, group_id)
        budget.spend(sum(map(_size, answer.members)))
        if ctx.has_authorizer and not all(map(may_see, _topics(answer))):
            answer = DescribedGroup(
                group_id=group_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=TOPICS_REFUSED
            )
        if answer.error_code == ErrorCode.NONE and request.include_authorized_operations:
            answer.authorized_operations = authorized_operations(ctx, AclResourceType.GROUP, group_id)
        answers.append(answer)
        await turn_budget.step(lookup_steps(group_id) + len(answer.members))
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
    """Return the approximate size of a member in bytes."""
    assigned = [*member.assignment.topic_partitions, *member.target_assignment.topic_partitions]
    names = sum(map(len, member.subscribed_topic_names)) + len(member.subscribed_topic_regex or "")
    return 200 + names + sum(50 + 4 * len(one.partitions) + len(one.topic_name) for one in assigned)


def _answer(
    consumer_group_manager: ConsumerGroupManager, metadata_cache: MetadataCache, group_id: str
) -> DescribedGroup:
    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
        group = consumer_group_manager.get_consumer_group(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    assignors = consumer_group_manager.assignors
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor or assignors[0],
        members=[_member(metadata_cache, group, member) for member in group.members.values()],
    )


def _member(metadata_cache: MetadataCache, group: ConsumerGroup, member: ConsumerGroupMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(metadata_cache, member.assigned),
        target_assignment=_assignment(metadata_cache, group.targets.get(member.member_id, NOTHING)),
        member_type=CONSUMER if member.classic is None else CLASSIC,
    )


def _assignment(metadata_cache: MetadataCache, assigned: Partitions) -> Assignment:
    """Return the assignment with topic names, without deleted topics."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
            for name in (metadata_cache.topic_name(topic_id),)
            if name is not None
        ]
    )
