"""Heartbeat (key 12): a member lives; the answer says whether it has to join again.

Version 3 knows static members (KIP-345). While groups are being loaded every heartbeat succeeds: members will be known
later, and have their full session timeout then.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...coordinator.group.group_id import check_group_id
from ..ports import Groups
from ..request_context import RequestContext


def handle(ctx: RequestContext, request: HeartbeatRequest, *, groups: Groups) -> HeartbeatResponse:
    """Answers at once."""
    try:
        check_group_id(request.group_id)
        group = groups.find(request.group_id)
    except KafkaError as error:
        is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
    if group is None:
        return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    error_code = groups.heartbeat(group, request.member_id, request.group_instance_id, request.generation_id)
    return HeartbeatResponse(error_code=error_code)
