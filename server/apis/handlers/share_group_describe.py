"""ShareGroupDescribe (key 77): state and members of share groups, with their assignments (KIP-932)."""

from __future__ import annotations

from functools import partial

from ....protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from ...coordinator.group.share.share_group_manager import ShareGroupManager
from ...coordinator.group.share.share_group_member import ShareGroupMember
from ...coordinator.group.share.simple_assignor import SIMPLE_ASSIGNOR
from ...metadata.metadata_cache import MetadataCache
from ..group_descriptions import describe_groups
from ..request_context import RequestContext

TOPICS_REFUSED = "The group has described topic(s) that the client is not authorized to describe."


async def handle(
    ctx: RequestContext,
    request: ShareGroupDescribeRequest,
    *,
    share_group_manager: ShareGroupManager,
    metadata_cache: MetadataCache,
) -> ShareGroupDescribeResponse:
    """Describe each group independently; see `describe_groups`."""
    groups = await describe_groups(
        ctx,
        request,
        DescribedGroup,
        partial(_describe, share_group_manager, metadata_cache),
        are_served=share_group_manager.are_served,
        topics_of=_topics,
        size_of=lambda group: sum(map(_size, group.members)),
        topics_refused=TOPICS_REFUSED,
    )
    return ShareGroupDescribeResponse(groups=groups)


def _describe(share_group_manager: ShareGroupManager, metadata_cache: MetadataCache, group_id: str) -> DescribedGroup:
    group = share_group_manager.get_share_group(group_id)
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
