"""LeaveGroup (key 13): members go, and the others rebalance at once.

Up to version 2 one member goes; 3 takes several, and static ones by their instance id alone, which is how an operator
removes them (KIP-345); 5 carries a reason (KIP-800).
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ...coordinator.group.group_id import check_group_id
from ...coordinator.group.member import Leaver, LeaveResult
from ..ports import Groups
from ..request_context import RequestContext

FIRST_VERSION_WITH_SEVERAL = 3
MOST_LEAVERS = 20_000
"""How many members one request may remove: they go together."""


def handle(ctx: RequestContext, request: LeaveGroupRequest, *, groups: Groups) -> None:
    """Each member on its own; answered when all that goes is gone for sure."""
    check_group_id(request.group_id)
    if len(request.members) > MOST_LEAVERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A request lets {MOST_LEAVERS} members go at most.")
    leaving = [Leaver(one.member_id, one.group_instance_id) for one in request.members]
    if ctx.api_version < FIRST_VERSION_WITH_SEVERAL:
        leaving = [Leaver(request.member_id, None)]

    def reply(result: LeaveResult) -> None:
        ctx.respond(_response(ctx.api_version, leaving, result))

    group = groups.find(request.group_id)
    if group is None:
        reply(LeaveResult(ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)))
    else:
        groups.leave(group, leaving, reply)


def _response(version: int, leaving: list[Leaver], result: LeaveResult) -> LeaveGroupResponse:
    if version < FIRST_VERSION_WITH_SEVERAL:
        return LeaveGroupResponse(error_code=result.error or result.outcomes[0])
    return LeaveGroupResponse(
        error_code=result.error,
        members=[
            MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=outcome)
            for one, outcome in zip(leaving, result.outcomes, strict=False)
        ],
    )
