"""LeaveGroup (key 13): members go, and the others rebalance at once.

Up to version 2 one member goes; 3 takes several, and static ones by their instance id alone, which is how an operator
removes them (KIP-345); 5 carries a reason (KIP-800).
"""

from __future__ import annotations

from functools import partial

from ....protocol.errors import ErrorCode
from ....protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ...coordinator.group.group_id import check_group_id
from ..request_context import RequestContext

FIRST_VERSION_WITH_SEVERAL = 3


def handle(ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse | None:
    """Each member on its own; answered when all that goes is gone for sure."""
    check_group_id(request.group_id)
    groups = ctx.broker.groups
    groups.shard_of(request.group_id)
    leaving = request.members
    if ctx.api_version < FIRST_VERSION_WITH_SEVERAL:
        leaving = [MemberIdentity(member_id=request.member_id)]
    answers = [MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id) for one in leaving]
    undecided = set(range(len(answers)))

    def decided(number: int, outcome: ErrorCode) -> None:
        answers[number].error_code = outcome
        undecided.discard(number)
        if not undecided:
            ctx.respond(_response(ctx.api_version, answers))

    for number, member in enumerate(leaving):
        # Looked up each time: the one before may have made it another kind of group.
        group = groups.find(request.group_id)
        if group is None:
            decided(number, ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            groups.leave(group, member.member_id, member.group_instance_id, partial(decided, number))
    return None if answers else LeaveGroupResponse()


def _response(version: int, answers: list[MemberResponse]) -> LeaveGroupResponse:
    if version < FIRST_VERSION_WITH_SEVERAL:
        return LeaveGroupResponse(error_code=answers[0].error_code)
    return LeaveGroupResponse(members=answers)
