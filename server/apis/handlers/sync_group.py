"""SyncGroup (key 14): the leader sends the assignment of a generation, and each member receives its own assignment.

Version 3 adds static members (KIP-345), 5 the protocol of the generation for a check (KIP-559). The response is sent
when the assignment is durable.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ...coordinator.group.classic_group import SyncRequest, SyncResult
from ...coordinator.group.group import check_group_id
from ...coordinator.group.group_coordinator import GroupCoordinator
from ..request_context import RequestContext

FIRST_VERSION_WITH_PROTOCOL = 5


def handle(ctx: RequestContext, request: SyncGroupRequest, *, group_coordinator: GroupCoordinator) -> None:
    """Pass the request to the group, which responds in a callback when the assignment is durable."""

    def reply(result: SyncResult) -> None:
        ctx.respond(
            SyncGroupResponse(
                error_code=result.error,
                protocol_type=result.protocol_type,
                protocol_name=result.protocol_name,
                assignment=result.assignment,
            )
        )

    if ctx.api_version >= FIRST_VERSION_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        reply(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    syncing = SyncRequest(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={one.member_id: bytes(one.assignment) for one in request.assignments},
        reply=group_coordinator.pace_reply(reply),
    )
    try:
        check_group_id(request.group_id)
        group_coordinator.sync_group(request.group_id, syncing)
    except KafkaError as error:
        # While the group is loaded its generation is unknown: the member has to join again.
        is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        reply(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS if is_loading else error.code))
