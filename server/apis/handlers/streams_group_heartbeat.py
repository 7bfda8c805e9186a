"""StreamsGroupHeartbeat (key 88): membership in a streams group, whose tasks the broker assigns (KIP-1071).

A member joins with epoch 0 and its topology, and leaves with -1, or -2 as a static member that will return. A heartbeat
contains the changes of the member, its response the changes of the assignment and the state of the topics. Missing
internal topics are created in the background, with the settings of the topology. The response is sent when the changes
of the member are durable.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.streams_group_heartbeat import (
    Endpoint as WireEndpoint,
)
from ....protocol.messages.streams_group_heartbeat import (
    EndpointToPartitions as WireEndpointToPartitions,
)
from ....protocol.messages.streams_group_heartbeat import (
    Status as WireStatus,
)
from ....protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TaskOffset,
    TopicPartition,
    Topology,
)
from ...controller.admin_manager import BROKER_DEFAULT, TopicCreation
from ...controller.auto_topic_creation_manager import AutoTopicCreationManager
from ...coordinator.group.streams.streams_group_manager import StreamsGroupManager
from ...coordinator.group.streams.streams_group_member import Endpoint
from ...coordinator.group.streams.streams_group_records import (
    encode_topology,
    subtopology_from_wire,
    tasks_from_record,
)
from ...coordinator.group.streams.streams_heartbeat import (
    MAX_COPARTITIONS,
    MAX_SUBTOPOLOGIES,
    MAX_TOPIC_CONFIGS,
    MAX_TOPICS,
    EndpointToPartitions,
    StreamsHeartbeat,
    StreamsHeartbeatResult,
    TaskOffsets,
    check_topic_names,
    check_topology,
)
from ...coordinator.group.streams.streams_topology import StreamsTopology
from ...coordinator.group.streams.tasks import Tasks, TasksTuple, without_epochs
from ...coordinator.group.streams.topics.configured_topology import ConfiguredInternalTopic
from ...coordinator.group.streams.topics.topic_configuration_error import Status
from ...quotas.request_quota_usage import new_controller_mutation_quota
from ...runtime.loop_sharing import ITEMS_PER_TURN, SlicedWork, Steps
from ...runtime.ports import Work
from ..large_requests import LANE
from ..request_context import RequestContext

MAX_TASK_OFFSETS = 20_000
"""The limit on the offsets that a member reports; they are kept in memory while the group has the member."""
NAMED_ERRORS = 3
"""The limit on the errors of topic creations in a status."""


def handle(
    ctx: RequestContext,
    request: StreamsGroupHeartbeatRequest,
    *,
    auto_topic_creation_manager: AutoTopicCreationManager,
    sliced_work: SlicedWork,
    streams_group_manager: StreamsGroupManager,
    work: Work,
) -> Coroutine[Any, Any, None] | None:
    """Pass the heartbeat to the group, which responds in a callback: before this returns if nothing has changed.

    Returns a coroutine if the request has a topology, or if topics have changed since the last heartbeat of the group.
    Raises KafkaError UNSUPPORTED_VERSION, TOPIC_AUTHORIZATION_FAILED, STREAMS_INVALID_TOPOLOGY, INVALID_REQUEST among
    others.
    """
    if not streams_group_manager.are_served:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The streams group protocol is disabled.")

    def reply(result: StreamsHeartbeatResult) -> None:
        if result.internal_topics_to_create:
            # An error of the creation is reported for two heartbeat intervals.
            error_ms = 2 * result.heartbeat_interval_ms
            steps = _create_internal_topics(ctx, result, auto_topic_creation_manager, error_ms)
            sliced_work.run(steps, ctx.finish)
        else:
            ctx.respond(_response(result, result.statuses))

    if request.topology is None:
        beat = _to_heartbeat(ctx, request, None)
        beat.check()
        if not streams_group_manager.must_resolve_topology(beat):
            streams_group_manager.streams_group_heartbeat(beat, reply)
            return None

    async def resolve_and_pass() -> None:
        prepared = await _prepare(ctx, request.topology, sliced_work, work)
        beat = _to_heartbeat(ctx, request, prepared)
        beat.check()
        resolved = None
        # Again if the group has another topology by now: that of a member which was faster, or of the loaded group.
        while streams_group_manager.must_resolve_topology(beat, resolved):
            resolved = await sliced_work.complete(streams_group_manager.resolve_topology(beat))
        streams_group_manager.streams_group_heartbeat(beat, reply, resolved)

    return resolve_and_pass()


# -- the request -------------------------------------------------------------------------------------------------------


class _PreparedTopology(NamedTuple):
    """The topology of a request after its checks, and the value of its record."""

    topology: StreamsTopology
    value: bytes


async def _prepare(
    ctx: RequestContext, topology: Topology | None, sliced_work: SlicedWork, work: Work
) -> _PreparedTopology | None:
    """Convert and check the topology of a request, in a lane if it is large. Raises KafkaError."""
    if topology is None:
        return None
    # Before the first step whose time grows with the topology: a request of 100 MB would block the loop for minutes.
    size = _check_size(topology)
    # The largest topology takes 60 ms, which depend on nothing but the request.
    prepared = _convert(topology) if size <= ITEMS_PER_TURN else await work.run(LANE, lambda: _convert(topology))
    await sliced_work.complete(_check_topic_access(ctx, prepared.topology))
    return prepared


def _convert(topology: Topology) -> _PreparedTopology:
    """Return the topology of a request. Raises KafkaError STREAMS_INVALID_TOPOLOGY, INVALID_REQUEST."""
    subtopologies = {one.subtopology_id: subtopology_from_wire(one) for one in topology.subtopologies}
    if len(subtopologies) < len(topology.subtopologies):
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, "The topology has two subtopologies with the same id.")
    converted = StreamsTopology(topology.epoch, subtopologies)
    check_topic_names(converted)
    check_topology(converted)
    return _PreparedTopology(converted, encode_topology(converted))


def _to_heartbeat(
    ctx: RequestContext, request: StreamsGroupHeartbeatRequest, prepared: _PreparedTopology | None
) -> StreamsHeartbeat:
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        endpoint_information_epoch=request.endpoint_information_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topology=None if prepared is None else prepared.topology,
        topology_value=b"" if prepared is None else prepared.value,
        owned=_owned(request),
        process_id=request.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else {tag.key: tag.value for tag in tags},
        task_offsets=_task_offsets(request.task_offsets),
        task_end_offsets=_task_offsets(request.task_end_offsets),
        shutdown_application=request.shutdown_application,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.client_host}",
        version=ctx.api_version,
    )


def _check_size(topology: Topology) -> int:
    """Return the number of subtopologies, topics, copartitions and settings.

    Raises KafkaError STREAMS_INVALID_TOPOLOGY, INVALID_REQUEST for a topology that exceeds a limit.
    """
    subtopologies = topology.subtopologies
    if len(subtopologies) > MAX_SUBTOPOLOGIES:
        reason = f"A topology has {MAX_SUBTOPOLOGIES} subtopologies at most."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)
    topics = sum(
        len(one.source_topics)
        + len(one.repartition_source_topics)
        + len(one.repartition_sink_topics)
        + len(one.state_changelog_topics)
        for one in subtopologies
    )
    if topics > MAX_TOPICS:
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"A topology has {MAX_TOPICS} topics at most.")
    copartitions = sum(len(one.copartition_groups) for one in subtopologies)
    if copartitions <= MAX_COPARTITIONS:  # else there are too many groups to count their indexes
        copartitions += sum(
            len(group.source_topics) + len(group.source_topic_regex) + len(group.repartition_source_topics)
            for one in subtopologies
            for group in one.copartition_groups
        )
    if copartitions > MAX_COPARTITIONS:
        reason = f"A topology has {MAX_COPARTITIONS} copartition groups and topics in them at most."
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    configs = sum(
        len(topic.topic_configs)
        for one in subtopologies
        for topics_with_configs in (one.repartition_source_topics, one.state_changelog_topics)
        for topic in topics_with_configs
    )
    if configs > MAX_TOPIC_CONFIGS:
        reason = f"The internal topics of a topology have {MAX_TOPIC_CONFIGS} settings at most."
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    return len(subtopologies) + topics + copartitions + configs


def _owned(request: StreamsGroupHeartbeatRequest) -> TasksTuple | None:
    """Return the tasks that the member owns, None if it reports none. Raises KafkaError INVALID_REQUEST."""
    lists = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if lists == (None, None, None):
        return None
    if None in lists:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "If one task-type is non-null, all must be non-null.")
    return TasksTuple(*(tasks_from_record(tasks or ()) for tasks in lists))


def _task_offsets(reported: Sequence[TaskOffset] | None) -> TaskOffsets | None:
    """Return the offsets by subtopology and partition. Raises KafkaError INVALID_REQUEST."""
    if reported is None:
        return None
    if len(reported) > MAX_TASK_OFFSETS:
        reason = f"A member can report the offsets of at most {MAX_TASK_OFFSETS} tasks."
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    offsets: dict[str, dict[int, int]] = {}
    for one in reported:
        of_subtopology = offsets.setdefault(one.subtopology_id, {})
        if one.partition in of_subtopology:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Task offsets contain a duplicate entry for subtopology {one.subtopology_id} and partition "
                f"{one.partition}.",
            )
        of_subtopology[one.partition] = one.offset
    return offsets


def _check_topic_access(ctx: RequestContext, topology: StreamsTopology) -> Steps[None]:
    if not ctx.has_authorizer:
        return
    for name in dict.fromkeys(topology.all_topics):
        if not ctx.is_authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        yield


# -- internal topics ---------------------------------------------------------------------------------------------------


def _create_internal_topics(
    ctx: RequestContext,
    result: StreamsHeartbeatResult,
    manager: AutoTopicCreationManager,
    error_ms: int,
) -> Steps[StreamsGroupHeartbeatResponse]:
    """Begin to create the internal topics, and return the response with the reasons why they are missing."""
    topics, statuses = result.internal_topics_to_create, list(result.statuses)
    refused = yield from _topics_without_create_access(ctx, topics)
    if refused:
        _extend_status(statuses, f"Unauthorized to CREATE on topics {', '.join(refused)}.")
        return _response(result, statuses)
    creations: list[TopicCreation] = []
    for name, topic in topics.items():
        if not manager.is_tried(name):
            creations.append(_creation(topic))
        yield
    # Kafka charges the client, too: it sends the latest version of CreateTopics with the client's principal. Beyond the
    # quota the error of each topic is THROTTLING_QUOTA_EXCEEDED.
    mutation_quota = new_controller_mutation_quota(ctx.quota_usage, strict=True)
    manager.create_streams_internal_topics(creations, error_ms, mutation_quota)
    errors = manager.streams_internal_topic_errors(topics)
    if errors:
        text = ", ".join(f"{name} ({message})" for name, message in list(errors.items())[:NAMED_ERRORS])
        more = f" and {len(errors) - NAMED_ERRORS} more" if len(errors) > NAMED_ERRORS else ""
        _extend_status(statuses, f"Creation failed: {text}{more}.")
    return _response(result, statuses)


def _topics_without_create_access(ctx: RequestContext, topics: Iterable[str]) -> Steps[list[str]]:
    refused: list[str] = []
    if not ctx.is_authorized(AclOperation.CREATE, AclResourceType.CLUSTER, CLUSTER_NAME):
        for name in topics:
            if not ctx.is_authorized(AclOperation.CREATE, AclResourceType.TOPIC, name):
                refused.append(name)
            yield
    return refused


def _creation(topic: ConfiguredInternalTopic) -> TopicCreation:
    return TopicCreation(
        topic.name,
        topic.partition_count,
        topic.replication_factor or BROKER_DEFAULT,
        config=dict(topic.topic_configs),
    )


def _extend_status(statuses: list[tuple[Status, str]], detail: str) -> None:
    for index, (status, text) in enumerate(statuses):
        if status is Status.MISSING_INTERNAL_TOPICS:
            statuses[index] = status, f"{text}; {detail}"
            return
    statuses.append((Status.MISSING_INTERNAL_TOPICS, detail))


# -- the response ------------------------------------------------------------------------------------------------------


def _response(result: StreamsHeartbeatResult, statuses: Iterable[tuple[Status, str]]) -> StreamsGroupHeartbeatResponse:
    response = StreamsGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        task_offset_interval_ms=result.task_offset_interval_ms,
        acceptable_recovery_lag=result.acceptable_recovery_lag,
        status=[WireStatus(status_code=status, status_detail=detail) for status, detail in statuses],
        endpoint_information_epoch=result.endpoint_information_epoch,
    )
    if result.assigned is not None:
        response.active_tasks = _task_ids(without_epochs(result.assigned.active))
        response.standby_tasks = _task_ids(result.assigned.standby)
        response.warmup_tasks = _task_ids(result.assigned.warmup)
    if result.endpoints is not None:
        response.partitions_by_user_endpoint = list(map(_endpoint, result.endpoints))
    return response


def _task_ids(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=sorted(partitions)) for name, partitions in sorted(tasks.items())]


def _endpoint(found: EndpointToPartitions) -> WireEndpointToPartitions:
    return WireEndpointToPartitions(
        user_endpoint=WireEndpoint(host=found.endpoint.host, port=found.endpoint.port),
        active_partitions=_topic_partitions(found.active),
        standby_partitions=_topic_partitions(found.standby),
    )


def _topic_partitions(topics: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
    return [TopicPartition(topic=name, partitions=list(partitions)) for name, partitions in topics.items()]
