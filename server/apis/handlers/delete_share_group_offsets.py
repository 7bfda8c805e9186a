"""DeleteShareGroupOffsets (key 92): delete the start offsets of topics in a share group without members (KIP-932)."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ....protocol.schema import ZERO_UUID
from ...coordinator.group.group import check_group_id
from ...coordinator.group.share.share_group_manager import ShareGroupManager
from ...metadata.metadata_cache import MetadataCache
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext,
    request: DeleteShareGroupOffsetsRequest,
    *,
    share_group_manager: ShareGroupManager,
    metadata_cache: MetadataCache,
) -> DeleteShareGroupOffsetsResponse:
    """Delete the offsets of each topic independently; a repeated topic has one result.

    Raises KafkaError UNSUPPORTED_VERSION, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """
    if not share_group_manager.are_served:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Share groups are disabled by share.version.")
    check_group_id(request.group_id)
    names = list(dict.fromkeys(topic.topic_name for topic in request.topics))
    errors = await share_group_manager.state_manager.delete_offsets(request.group_id, names)
    return DeleteShareGroupOffsetsResponse(
        responses=[
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=metadata_cache.topic_id(name) or ZERO_UUID,
                error_code=errors[name].code,
                error_message=errors[name].message,
            )
            for name in names
        ]
    )
