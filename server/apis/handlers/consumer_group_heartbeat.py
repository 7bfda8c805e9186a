"""ConsumerGroupHeartbeat (key 68): the membership in a group in which the broker assigns partitions (KIP-848).

A member joins with epoch 0 and leaves with -1, or -2 as a static member that will return. A heartbeat contains the
changes of the member, its response the changes of the assignment. Version 1 adds subscriptions by regular expression
and member ids of the clients (KIP-1082). The response is sent when the changes of the member are durable.
"""

from __future__ import annotations

from functools import partial

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ...coordinator.group.assignment import from_wire
from ...coordinator.group.consumer_group_manager import ConsumerGroupManager
from ...coordinator.group.consumer_heartbeat import ConsumerHeartbeat, HeartbeatResult
from ..request_context import RequestContext


def handle(
    ctx: RequestContext, request: ConsumerGroupHeartbeatRequest, *, consumer_group_manager: ConsumerGroupManager
) -> None:
    """Pass the heartbeat to the group. The group responds in a callback: without changes before this returns."""

    def reply(result: HeartbeatResult) -> None:
        ctx.respond(_response(result))

    if not consumer_group_manager.are_served:
        reply(HeartbeatResult(ErrorCode.UNSUPPORTED_VERSION))
        return
    consumer_group_manager.consumer_group_heartbeat(_to_heartbeat(ctx, request), reply)


def _to_heartbeat(ctx: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    topics, owned = request.subscribed_topic_names, request.topic_partitions
    return ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if topics is None else frozenset(topics),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if owned is None else from_wire(owned),
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.client_host}",
        generates_member_id=ctx.api_version >= 1,
        may_see=partial(ctx.is_authorized, AclOperation.DESCRIBE, AclResourceType.TOPIC),
    )


def _response(result: HeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if result.assignment is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in result.assignment.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )
