"""OffsetDelete (key 47): remove offsets of partitions that no member reads (KIP-496)."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ...coordinator.group.any_group import AnyGroup
from ...coordinator.group.coordinator import GroupCoordinator
from ...coordinator.group.group import CONSUMER_PROTOCOL_TYPE
from ...coordinator.group.group_id import check_group_id
from ...coordinator.group.offsets import Place
from ...metadata.metadata_cache import MetadataCache
from ..request_context import RequestContext


def handle(
    ctx: RequestContext, request: OffsetDeleteRequest, *, groups: GroupCoordinator, metadata: MetadataCache
) -> OffsetDeleteResponse | None:
    """Each partition on its own; answered when all that is removed is removed on disk."""
    check_group_id(request.group_id)
    group = groups.find(request.group_id)
    if group is None or group.is_dead:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    if not group.is_empty and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        # What its members read is not known, so that every partition may be in use.
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {request.group_id} has members.")
    response = OffsetDeleteResponse()
    removed: dict[Place, OffsetDeleteResponsePartition] = {}
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            answer = OffsetDeleteResponsePartition(partition_index=partition.partition_index)
            answer.error_code = _refusal(group, topic.name, partition.partition_index, metadata=metadata)
            answers.append(answer)
            if not answer.error_code:
                removed[topic.name, partition.partition_index] = answer
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))

    def done(outcome: ErrorCode) -> None:
        for answer in removed.values():
            answer.error_code = outcome
        ctx.respond(response)

    places = group.offsets.places
    groups.offsets.remove(group, [place for place in removed if place in places], done)
    return None


def _refusal(group: AnyGroup, topic: str, partition: int, *, metadata: MetadataCache) -> ErrorCode:
    if not metadata.has_partition(topic, partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not group.is_empty and (group.subscribed_topics is None or group.is_subscribed(topic)):
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE
