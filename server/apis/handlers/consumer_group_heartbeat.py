"""ConsumerGroupHeartbeat (key 68): be a member of a group in which the broker assigns partitions (KIP-848).

It joins (epoch 0), leaves (-1, or -2 for a static member that will be back), says what has changed and hears what has.
Version 1 subscribes by regular expression, and members make their ids themselves (KIP-1082). Answered once what it
changed is durable.
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
from ...coordinator.group.consumer.assignment import from_wire
from ...coordinator.group.consumer.beat import Beat, BeatResult
from ..ports import ConsumerProtocolGroups
from ..request_context import RequestContext


def handle(
    ctx: RequestContext, request: ConsumerGroupHeartbeatRequest, *, consumer_groups: ConsumerProtocolGroups
) -> None:
    """Hand the request to the group, which answers."""

    def reply(result: BeatResult) -> None:
        ctx.respond(_response(result))

    if not consumer_groups.are_served:
        reply(BeatResult(ErrorCode.UNSUPPORTED_VERSION))
        return
    consumer_groups.consumer_group_heartbeat(_beat(ctx, request), reply)


def _beat(ctx: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Beat:
    topics, owned = request.subscribed_topic_names, request.topic_partitions
    return Beat(
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
        names_itself=ctx.api_version >= 1,
        may_see=partial(ctx.may, AclOperation.DESCRIBE, AclResourceType.TOPIC),
    )


def _response(result: BeatResult) -> ConsumerGroupHeartbeatResponse:
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
