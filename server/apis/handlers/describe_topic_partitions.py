"""DescribeTopicPartitions (key 75): topics and their partitions page by page, in order of name (KIP-966).

Only partitions of a KRaft cluster have eligible leader replicas: other leaders are elected among the replicas in sync.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ....protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from ...config.settings import Settings
from ...metadata.metadata_cache import MetadataCache, MetadataSnapshot, PartitionImage, TopicImage
from ...metadata.topic_names import is_internal, is_legal
from ...runtime.loop_sharing import SlicedWork, Steps
from ..authorized_operations import authorized_operations
from ..request_context import RequestContext

METADATA_VERSION = 12
"""The Metadata version that describes a partition in the same way."""


async def handle(
    ctx: RequestContext,
    request: DescribeTopicPartitionsRequest,
    *,
    config: Settings,
    metadata_cache: MetadataCache,
    sliced_work: SlicedWork,
) -> DescribeTopicPartitionsResponse:
    """Fill one page. An invalid cursor is INVALID_REQUEST for every requested topic."""
    return await sliced_work.complete(_build_response(ctx, request, config, metadata_cache.snapshot))


def _build_response(
    ctx: RequestContext, request: DescribeTopicPartitionsRequest, config: Settings, snapshot: MetadataSnapshot
) -> Steps[DescribeTopicPartitionsResponse]:
    limit = max(1, min(request.response_partition_limit, config.max_request_partition_size_limit))
    response = DescribeTopicPartitionsResponse()
    try:
        names = _names(request, snapshot)
    except KafkaError as error:
        topics = [_refused(topic.name, error.code) for topic in request.topics]
        return DescribeTopicPartitionsResponse(topics=topics)
    for name in names:
        yield
        if not request.topics and not ctx.is_authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, name):
            continue
        if limit == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = snapshot.response_topic(name, ctx.listener.name, METADATA_VERSION)
        if topic is None:
            if request.topics:
                response.topics.append(_unknown(ctx, name))
            continue
        is_first = request.cursor is not None and request.cursor.topic_name == name
        start = request.cursor.partition_index if request.cursor is not None and is_first else 0
        remaining = [partition for partition in topic.partitions if partition.partition_index >= start]
        response.topics.append(_topic(ctx, topic, remaining[:limit], snapshot.topics[name]))
        if len(remaining) > limit:
            response.next_cursor = Cursor(topic_name=name, partition_index=remaining[limit].partition_index)
            break
        limit -= len(remaining)
    return response


def _names(request: DescribeTopicPartitionsRequest, snapshot: MetadataSnapshot) -> list[str]:
    """Return the requested topics, or all, from the cursor on. Raise KafkaError INVALID_REQUEST."""
    cursor = request.cursor
    wanted = {topic.name for topic in request.topics} or set(snapshot.topics)
    if cursor is None:
        return sorted(wanted)
    if cursor.partition_index < 0:
        text = "DescribeTopicPartitionsRequest cursor partition must be valid"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text}: {cursor.topic_name} {cursor.partition_index}")
    if request.topics and cursor.topic_name not in wanted:
        text = "DescribeTopicPartitionsRequest topic list should contain the cursor topic"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text}: {cursor.topic_name}")
    return sorted(name for name in wanted if name >= cursor.topic_name)


def _topic(
    ctx: RequestContext,
    topic: MetadataResponseTopic,
    partitions: list[MetadataResponsePartition],
    image: TopicImage,
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(partition, image.partitions[partition.partition_index]) for partition in partitions],
        topic_authorized_operations=authorized_operations(ctx, AclResourceType.TOPIC, topic.name or ""),
    )


def _partition(partition: MetadataResponsePartition, image: PartitionImage) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=partition.error_code,
        partition_index=partition.partition_index,
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replica_nodes,
        isr_nodes=partition.isr_nodes,
        eligible_leader_replicas=list(image.eligible_leader_replicas),
        last_known_elr=list(image.last_known_elr),
        offline_replicas=partition.offline_replicas,
    )


def _unknown(ctx: RequestContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=authorized_operations(ctx, AclResourceType.TOPIC, name),
    )


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)
