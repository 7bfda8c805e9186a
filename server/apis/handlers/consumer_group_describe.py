"""ConsumerGroupDescribe (key 69): groups of the consumer protocol, with current and target assignments.

Version 1 adds the protocol of each member. Groups of the classic protocol are not found: DescribeGroups describes them.
"""

from __future__ import annotations

from functools import partial

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
from ..group_descriptions import describe_groups
from ..request_context import RequestContext

CLASSIC, CONSUMER = 0, 1
TOPICS_REFUSED = "The group has described topic(s) that the client is not authorized to describe."


async def handle(
    ctx: RequestContext,
    request: ConsumerGroupDescribeRequest,
    *,
    consumer_group_manager: ConsumerGroupManager,
    metadata_cache: MetadataCache,
) -> ConsumerGroupDescribeResponse:
    """Describe each group independently; see `describe_groups`."""
    groups = await describe_groups(
        ctx,
        request,
        DescribedGroup,
        partial(_describe, consumer_group_manager, metadata_cache),
        are_served=consumer_group_manager.are_served,
        topics_of=_topics,
        size_of=lambda group: sum(map(_size, group.members)),
        topics_refused=TOPICS_REFUSED,
    )
    return ConsumerGroupDescribeResponse(groups=groups)


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


def _describe(
    consumer_group_manager: ConsumerGroupManager, metadata_cache: MetadataCache, group_id: str
) -> DescribedGroup:
    group = consumer_group_manager.get_consumer_group(group_id)
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
