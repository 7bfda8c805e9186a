"""OffsetDelete (key 47): remove offsets of partitions that no member reads (KIP-496)."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ...coordinator.group.group import CONSUMER_PROTOCOL_TYPE
from ...coordinator.group.group_id import check_group_id
from ...coordinator.group.group_port import GroupPort
from ...coordinator.group.offsets import Place
from ...runtime.turns import COMMITTED_PARTITIONS, Pace
from ..ports import ClusterMetadata, CommittedOffsets
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: OffsetDeleteRequest, *, committed_offsets: CommittedOffsets, metadata: ClusterMetadata
) -> OffsetDeleteResponse | None:
    """Each partition on its own; answered when all that is removed is removed on disk."""
    check_group_id(request.group_id)
    response, pace = OffsetDeleteResponse(), Pace(COMMITTED_PARTITIONS)
    known: dict[Place, OffsetDeleteResponsePartition] = {}
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            answer = OffsetDeleteResponsePartition(partition_index=partition.partition_index)
            if metadata.has_partition(topic.name, partition.partition_index):
                known[topic.name, partition.partition_index] = answer
            else:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.append(answer)
            await pace.step()
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    group = _group(committed_offsets, request.group_id)
    for place, answer in known.items():
        if not group.is_empty and (group.subscribed_topics is None or group.is_subscribed(place[0])):
            answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC

    def done(outcome: ErrorCode) -> None:
        for answer in known.values():
            answer.error_code = answer.error_code or outcome
        ctx.respond(response)

    places = group.offsets.places
    removed = [place for place, answer in known.items() if not answer.error_code and place in places]
    committed_offsets.remove_offsets(group, removed, done)
    return None


def _group(committed_offsets: CommittedOffsets, group_id: str) -> GroupPort:
    """Raises KafkaError GROUP_ID_NOT_FOUND, and NON_EMPTY_GROUP if what its members read is not known."""
    group = committed_offsets.find(group_id)
    if group is None or group.is_dead:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not group.is_empty and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} has members.")
    return group
