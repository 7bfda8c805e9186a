"""Heartbeat (key 12): extends the session of a member; the response reports a rebalance.

Version 3 adds static members (KIP-345). While groups are loaded every heartbeat succeeds: members are loaded with their
full session timeout.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...coordinator.group.group import check_group_id
from ...coordinator.group.group_coordinator import GroupCoordinator
from ..request_context import RequestContext


def handle(ctx: RequestContext, request: HeartbeatRequest, *, group_coordinator: GroupCoordinator) -> HeartbeatResponse:
    """Extend the session of the member."""
    try:
        check_group_id(request.group_id)
        error_code = group_coordinator.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    except KafkaError as error:
        is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
    return HeartbeatResponse(error_code=error_code)
