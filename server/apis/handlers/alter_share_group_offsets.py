"""AlterShareGroupOffsets (key 91): change the start offsets of a share group without members (KIP-932).

Share state with this start offset is created for partitions that the group has not read yet, and a group that does not
exist is created.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ....protocol.schema import ZERO_UUID
from ...coordinator.creation_limiter import ClientIdentity
from ...coordinator.group.group import check_group_id
from ...coordinator.group.share.share_group_manager import ShareGroupManager
from ...metadata.metadata_cache import MetadataCache
from ...runtime.loop_sharing import CountBudget
from ..request_context import RequestContext

LOWEST_OFFSET = 0


async def handle(
    ctx: RequestContext,
    request: AlterShareGroupOffsetsRequest,
    *,
    share_group_manager: ShareGroupManager,
    metadata_cache: MetadataCache,
) -> AlterShareGroupOffsetsResponse:
    """Change each partition independently; the last offset of a partition applies if the request repeats it.

    Raises KafkaError UNSUPPORTED_VERSION, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND for a group of another type,
    NON_EMPTY_GROUP, GROUP_MAX_SIZE_REACHED.
    """
    if not share_group_manager.are_served:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Share groups are disabled by share.version.")
    check_group_id(request.group_id)
    budget = CountBudget()
    offsets: dict[str, dict[int, int]] = {}
    negative: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        of_topic = offsets.setdefault(topic.topic_name, {})
        for partition in topic.partitions:
            if partition.start_offset < LOWEST_OFFSET:
                negative.setdefault(topic.topic_name, {})[partition.partition_index] = None
            else:
                of_topic[partition.partition_index] = partition.start_offset
            await budget.step()
    client = ClientIdentity(f"/{ctx.client_host}", ctx.client_id or "")
    errors = await share_group_manager.state_manager.alter_offsets(request.group_id, offsets, client)
    response = AlterShareGroupOffsetsResponse()
    for name, of_topic in offsets.items():
        described = AlterShareGroupOffsetsResponseTopic(
            topic_name=name, topic_id=metadata_cache.topic_id(name) or ZERO_UUID
        )
        refused = negative.get(name, {})
        for index in {**of_topic, **refused}:
            answer = AlterShareGroupOffsetsResponsePartition(partition_index=index)
            if index in refused:
                answer.error_code, answer.error_message = ErrorCode.INVALID_REQUEST, "The start offset is negative."
            elif (name, index) in errors:
                answer.error_code, answer.error_message = errors[name, index]
            described.partitions.append(answer)
            await budget.step()
        response.responses.append(described)
    return response
