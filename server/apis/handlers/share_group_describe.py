"""ShareGroupDescribe (key 77): state and members of share groups, with their assignments (KIP-932)."""

from __future__ import annotations

from functools import partial

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from ...coordinator.group.group import check_group_id
from ...coordinator.group.share.share_group_manager import ShareGroupManager
from ...coordinator.group.share.share_group_member import ShareGroupMember
from ...coordinator.group.share.simple_assignor import SIMPLE_ASSIGNOR
from ...metadata.metadata_cache import MetadataCache
from ...runtime.loop_sharing import CountBudget, lookup_steps
from ..authorized_operations import authorized_operations
from ..request_context import RequestContext
from ..response_budget import ResponseBudget

TOPICS_REFUSED = "The group has described topic(s) that the client is not authorized to describe."


async def handle(
    ctx: RequestContext,
    request: ShareGroupDescribeRequest,
    *,
    share_group_manager: ShareGroupManager,
    metadata_cache: MetadataCache,
) -> ShareGroupDescribeResponse:
    """Describe each group independently; a repeated group has one result.

    Groups that do not fit in the response have the error COORDINATOR_LOAD_IN_PROGRESS: the client requests them again.
    """
    may_see = partial(ctx.is_authorized, AclOperation.DESCRIBE, AclResourceType.TOPIC)
    budget, turn_budget = ResponseBudget(), CountBudget()
    response = ShareGroupDescribeResponse()
    for group_id in dict.fromkeys(request.group_ids):
        if not share_group_manager.are_served:
            group = DescribedGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
        elif budget.is_exhausted:
            group = DescribedGroup(group_id=group_id, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            group = _describe(share_group_manager, metadata_cache, group_id)
        budget.spend(sum(map(_size, group.members)))
        if ctx.has_authorizer and not all(map(may_see, _topics(group))):
            group = DescribedGroup(
                group_id=group_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=TOPICS_REFUSED
            )
        if group.error_code == ErrorCode.NONE and request.include_authorized_operations:
            group.authorized_operations = authorized_operations(ctx, AclResourceType.GROUP, group_id)
        response.groups.append(group)
        await turn_budget.step(lookup_steps(group_id) + len(group.members))
    return response


def _describe(share_group_manager: ShareGroupManager, metadata_cache: MetadataCache, group_id: str) -> DescribedGroup:
    try:
        check_group_id(group_id)
        group = share_group_manager.get_share_group(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=SIMPLE_ASSIGNOR,
        members=[_member(metadata_cache, member) for member in group.members.values()],
    )


def _member(metadata_cache: MetadataCache, member: ShareGroupMember) -> Member:
    """Return a member with the names of its topics, without deleted topics."""
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
                for topic_id, partitions in member.assigned.items()
                for name in (metadata_cache.topic_name(topic_id),)
                if name is not None
            ]
        ),
    )


def _topics(group: DescribedGroup) -> set[str]:
    return {
        name
        for member in group.members
        for names in (member.subscribed_topic_names, (one.topic_name for one in member.assignment.topic_partitions))
        for name in names
    }


def _size(member: Member) -> int:
    """Return the approximate size of a member in bytes."""
    assigned = member.assignment.topic_partitions
    names = sum(map(len, member.subscribed_topic_names))
    return 200 + names + sum(50 + 4 * len(one.partitions) + len(one.topic_name) for one in assigned)
