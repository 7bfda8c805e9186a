"""LeaveGroup (key 13): members go, and the others rebalance at once.

Up to version 2 one member goes; 3 takes several, and static ones by their instance id alone, which is how an operator
removes them (KIP-345); 5 carries a reason (KIP-800).
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode
from ...protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ..group.group import Group
from ..group.group_id import check_group_id
from ..request_context import RequestContext

FIRST_VERSION_WITH_SEVERAL = 3


def handle(ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Answers at once; each member on its own."""
    check_group_id(request.group_id)
    group = ctx.broker.groups.find(request.group_id)
    if ctx.api_version < FIRST_VERSION_WITH_SEVERAL:
        return LeaveGroupResponse(error_code=_leave(ctx, group, MemberIdentity(member_id=request.member_id)))
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=_leave(ctx, group, member),
            )
            for member in request.members
        ]
    )


def _leave(ctx: RequestContext, group: Group | None, member: MemberIdentity) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ctx.broker.groups.members.leave(group, member.member_id, member.group_instance_id)
