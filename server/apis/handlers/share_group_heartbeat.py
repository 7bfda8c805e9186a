"""ShareGroupHeartbeat (key 76): membership in a share group (KIP-932).

A member joins with epoch 0 and leaves with -1. A heartbeat contains the changes of the member, its response the changes
of the assignment. The response is sent when the changes of the member are durable.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from ...coordinator.group.consumer_heartbeat import HeartbeatResult
from ...coordinator.group.share.share_group_heartbeat import ShareHeartbeat
from ...coordinator.group.share.share_group_manager import ShareGroupManager
from ..request_context import RequestContext


def handle(ctx: RequestContext, request: ShareGroupHeartbeatRequest, *, share_group_manager: ShareGroupManager) -> None:
    """Pass the heartbeat to the group, which responds in a callback: before this returns if nothing has changed."""

    def reply(result: HeartbeatResult) -> None:
        ctx.respond(_response(result))

    if not share_group_manager.are_served:
        reply(HeartbeatResult(ErrorCode.UNSUPPORTED_VERSION))
        return
    topics = request.subscribed_topic_names
    beat = ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack_id=request.rack_id,
        topics=None if topics is None else frozenset(topics),
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.client_host}",
    )
    share_group_manager.share_group_heartbeat(beat, reply)


def _response(result: HeartbeatResult) -> ShareGroupHeartbeatResponse:
    assignment = None
    if result.assignment is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in result.assignment.items()
            ]
        )
    return ShareGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )
