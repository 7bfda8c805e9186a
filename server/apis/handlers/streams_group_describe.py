"""StreamsGroupDescribe (key 89): groups of the streams protocol, with their topology and their assignments (KIP-1071).

Version 1 adds the name of the assignor and the description of the topology, which only a plug-in of Kafka can store
(KIP-1331): its status is NOT_STORED.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from ....protocol.errors import ErrorCode
from ....protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    TaskIds,
    TaskOffset,
    Topology,
)
from ....protocol.messages.streams_group_describe import (
    Subtopology as WireSubtopology,
)
from ....protocol.messages.streams_group_describe import (
    TopicInfo as WireTopicInfo,
)
from ...coordinator.group.streams.sticky_task_assignor import STICKY_ASSIGNOR_NAME
from ...coordinator.group.streams.streams_group import StreamsGroup
from ...coordinator.group.streams.streams_group_manager import StreamsGroupManager
from ...coordinator.group.streams.streams_group_member import StreamsGroupMember
from ...coordinator.group.streams.streams_heartbeat import NO_TASK_OFFSETS, TaskOffsets
from ...coordinator.group.streams.streams_topology import InternalTopicInfo, Subtopology
from ...coordinator.group.streams.tasks import Tasks, TasksTuple, without_epochs
from ...coordinator.group.streams.topics.configured_topology import ConfiguredInternalTopic, ConfiguredSubtopology
from ..group_descriptions import describe_groups
from ..request_context import RequestContext

NOT_STORED = 1
"""The status of a topology description that no plug-in has stored."""
TOPICS_REFUSED = "The described group uses topics that the client is not authorized to describe."


async def handle(
    ctx: RequestContext, request: StreamsGroupDescribeRequest, *, streams_group_manager: StreamsGroupManager
) -> StreamsGroupDescribeResponse:
    """Describe each group independently; see `describe_groups`."""
    groups = await describe_groups(
        ctx,
        request,
        DescribedGroup,
        partial(_describe, streams_group_manager),
        are_served=streams_group_manager.are_served,
        topics_of=_topics,
        size_of=_size,
        topics_refused=TOPICS_REFUSED,
    )
    if request.include_topology_description:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.topology_description_status = NOT_STORED
    return StreamsGroupDescribeResponse(groups=groups)


def _topics(group: DescribedGroup) -> set[str]:
    found: set[str] = set()
    for one in (group.topology.subtopologies or ()) if group.topology is not None else ():
        found.update(one.source_topics, one.repartition_sink_topics)
        found.update(topic.name for topic in one.repartition_source_topics)
        found.update(topic.name for topic in one.state_changelog_topics)
    return found


def _size(group: DescribedGroup) -> int:
    """Return the approximate size of a group in bytes."""
    size = 200 + 100 * len(_topics(group))
    for member in group.members:
        size += 200 + 20 * (len(member.task_offsets) + len(member.task_end_offsets))
        size += sum(50 + len(tag.key) + len(tag.value) for tag in member.client_tags)
        for assignment in (member.assignment, member.target_assignment):
            for tasks in (assignment.active_tasks, assignment.standby_tasks, assignment.warmup_tasks):
                size += sum(20 + len(one.subtopology_id) + 4 * len(one.partitions) for one in tasks)
    return size


def _describe(streams_group_manager: StreamsGroupManager, group_id: str) -> DescribedGroup:
    group = streams_group_manager.get_streams_group(group_id)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=STICKY_ASSIGNOR_NAME,
        topology=_topology(group),
        members=[_member(group, member) for member in group.members.values()],
    )


def _topology(group: StreamsGroup) -> Topology | None:
    """Return the topology with the numbers of partitions, or as the members sent it while its topics are not ready."""
    topology, configured = group.topology, group.configured_topology
    if topology is None:
        return None
    if configured is not None and configured.is_ready and configured.subtopologies is not None:
        subtopologies = [_configured_subtopology(name, one) for name, one in configured.subtopologies.items()]
    else:
        subtopologies = [_subtopology(topology.subtopologies[name]) for name in sorted(topology.subtopologies)]
    return Topology(epoch=topology.epoch, subtopologies=subtopologies)


def _configured_subtopology(name: str, subtopology: ConfiguredSubtopology) -> WireSubtopology:
    return WireSubtopology(
        subtopology_id=name,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
        state_changelog_topics=_configured_topics(subtopology.state_changelog_topics),
        repartition_source_topics=_configured_topics(subtopology.repartition_source_topics),
    )


def _configured_topics(topics: Mapping[str, ConfiguredInternalTopic]) -> list[WireTopicInfo]:
    return [
        WireTopicInfo(
            name=name,
            partitions=topic.partition_count,
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=key, value=value) for key, value in topic.topic_configs.items()],
        )
        for name, topic in sorted(topics.items())
    ]


def _subtopology(subtopology: Subtopology) -> WireSubtopology:
    return WireSubtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
        state_changelog_topics=_topic_infos(subtopology.state_changelog_topics),
        repartition_source_topics=_topic_infos(subtopology.repartition_source_topics),
    )


def _topic_infos(topics: Iterable[InternalTopicInfo]) -> list[WireTopicInfo]:
    return [
        WireTopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=key, value=value) for key, value in topic.topic_configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(group: StreamsGroup, member: StreamsGroupMember) -> Member:
    endpoint, offsets = member.user_endpoint, group.task_offsets.get(member.member_id, NO_TASK_OFFSETS)
    target = group.targets.get(member.member_id, TasksTuple())
    return Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.client_tags.items()],
        task_offsets=_task_offsets(offsets.offsets),
        task_end_offsets=_task_offsets(offsets.end_offsets),
        assignment=_assignment(without_epochs(member.assigned.active), member.assigned.standby, member.assigned.warmup),
        target_assignment=_assignment(target.active, target.standby, target.warmup),
    )


def _assignment(active: Tasks, standby: Tasks, warmup: Tasks) -> Assignment:
    return Assignment(active_tasks=_task_ids(active), standby_tasks=_task_ids(standby), warmup_tasks=_task_ids(warmup))


def _task_ids(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=sorted(partitions)) for name, partitions in sorted(tasks.items())]


def _task_offsets(offsets: TaskOffsets) -> list[TaskOffset]:
    return [
        TaskOffset(subtopology_id=name, partition=partition, offset=offset)
        for name, of_subtopology in sorted(offsets.items())
        for partition, offset in sorted(of_subtopology.items())
    ]
