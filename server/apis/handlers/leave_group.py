"""LeaveGroup (key 13): removes members, and the other members rebalance.

Up to version 2 each request removes a single member. Version 3 takes several, and static members by their instance id
alone, for administrators (KIP-345); 5 has a reason (KIP-800).
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ...coordinator.group.classic_group import LeaveResult, LeavingMember
from ...coordinator.group.group import check_group_id
from ...coordinator.group.group_coordinator import GroupCoordinator
from ..pending_reply import PendingReply
from ..request_context import RequestContext

FIRST_VERSION_WITH_SEVERAL = 3
MAX_LEAVING_MEMBERS = 20_000
"""Members that one request may remove: they are removed in one turn of the event loop."""


async def handle(
    ctx: RequestContext, request: LeaveGroupRequest, *, group_coordinator: GroupCoordinator
) -> LeaveGroupResponse:
    """Remove each member on its own. Respond when the removal of all members is durable."""
    check_group_id(request.group_id)
    if len(request.members) > MAX_LEAVING_MEMBERS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"A LeaveGroup request has more than {MAX_LEAVING_MEMBERS} members."
        )
    leaving = [LeavingMember(one.member_id, one.group_instance_id) for one in request.members]
    if ctx.api_version < FIRST_VERSION_WITH_SEVERAL:
        leaving = [LeavingMember(request.member_id, None)]
    reply: PendingReply[LeaveResult] = PendingReply()
    group_coordinator.leave_group(request.group_id, leaving, reply)
    return _response(ctx.api_version, leaving, await reply)


def _response(version: int, leaving: list[LeavingMember], result: LeaveResult) -> LeaveGroupResponse:
    if version < FIRST_VERSION_WITH_SEVERAL:
        return LeaveGroupResponse(error_code=result.error or result.outcomes[0])
    return LeaveGroupResponse(
        error_code=result.error,
        members=[
            MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=outcome)
            for one, outcome in zip(leaving, result.outcomes, strict=False)
        ],
    )
