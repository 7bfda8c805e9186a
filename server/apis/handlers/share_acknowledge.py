"""ShareAcknowledge (key 79): acknowledge records that a member of a share group has acquired (KIP-932).

The response is sent when the new states are durable. Version 2 adds the renewal of acquisition locks (KIP-1222).
"""

from __future__ import annotations

from uuid import UUID

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ...metadata.metadata_cache import MetadataCache
from ...share.share_partition_manager import SharePartitionManager
from ...share.share_session import FINAL_EPOCH, INITIAL_EPOCH, ShareSessionKey
from ..leader_hints import LeaderHints
from ..request_context import RequestContext
from ..share_acknowledgements import ShareAcknowledgements, check_member

HINTED_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


async def handle(
    ctx: RequestContext,
    request: ShareAcknowledgeRequest,
    *,
    metadata_cache: MetadataCache,
    share_partition_manager: SharePartitionManager,
) -> ShareAcknowledgeResponse:
    """Acknowledge records; each partition of the response has its own error.

    Raises KafkaError UNSUPPORTED_VERSION, INVALID_REQUEST, SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
    """
    manager = share_partition_manager
    group_id, member_id = check_member(request.group_id, request.member_id, is_enabled=manager.is_enabled)
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise KafkaError(
            ErrorCode.INVALID_SHARE_SESSION_EPOCH, "The first request of a share session must be a ShareFetch."
        )
    key = ShareSessionKey(group_id, member_id)
    session = manager.sessions.get(key) if epoch == FINAL_EPOCH else manager.sessions.resume(key, epoch)
    acknowledgements = ShareAcknowledgements(ctx, metadata_cache, manager, is_renew_ack=request.is_renew_ack)
    results = await acknowledgements.apply(group_id, member_id, request.topics)
    if epoch == FINAL_EPOCH:
        # Not the session that the member has now: it may have opened another one during the write.
        manager.release_session(session)
    hints = LeaderHints(metadata_cache, ctx.listener.name)
    topics: dict[UUID, ShareAcknowledgeTopicResponse] = {}
    for (topic_id, index), error in results.items():
        data = PartitionData(partition_index=index)
        if error is not None:
            data.error_code, data.error_message = error.code, error.message
            name = metadata_cache.topic_name(topic_id)
            if error.code in HINTED_ERRORS and name is not None:
                data.current_leader = hints.leader(name, index, LeaderIdAndEpoch)
        if topic_id not in topics:
            topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=[])
        topics[topic_id].partitions.append(data)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=manager.config_provider.settings(group_id).record_lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=hints.endpoints(NodeEndpoint),
    )
