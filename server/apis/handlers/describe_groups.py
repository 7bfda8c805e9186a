"""DescribeGroups (key 15): members of classic groups and what they were given.

Version 3 can tell which operations the client may carry out (KIP-430), 4 names static members, 6 says of a group that
does not exist that it is not there (KIP-1043) where it was a `Dead` one without an error before. So does a group of
the consumer protocol: it is ConsumerGroupDescribe's business.
"""

from __future__ import annotations

from ....protocol.acls import AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ...coordinator.group.group import Group
from ...coordinator.group.states import GroupState
from ...runtime.turns import Pace, steps_of
from ..answer_budget import Budget
from ..authorized_operations import authorized_operations
from ..ports import Groups
from ..request_context import RequestContext

FIRST_VERSION_WITH_NOT_FOUND = 6


async def handle(ctx: RequestContext, request: DescribeGroupsRequest, *, groups: Groups) -> DescribeGroupsResponse:
    """Each group on its own, and once.

    Groups for which there is no room in the answer are COORDINATOR_LOAD_IN_PROGRESS: the client asks for them again.
    """
    budget, pace = Budget(), Pace()
    answers = []
    for group_id in dict.fromkeys(request.groups):
        answer = _answer(groups, group_id, ctx.api_version, budget)
        if answer.error_code == ErrorCode.NONE and request.include_authorized_operations:
            answer.authorized_operations = authorized_operations(ctx, AclResourceType.GROUP, group_id)
        answers.append(answer)
        await pace.step(steps_of(group_id))
    return DescribeGroupsResponse(groups=answers)


def _answer(groups: Groups, group_id: str, version: int, budget: Budget) -> DescribedGroup:
    try:
        group = groups.classic_group(group_id)
    except KafkaError as error:
        return _not_described(group_id, version, error)
    if budget.is_spent:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    described = _describe(group)
    budget.spend(sum(len(one.member_metadata) + len(one.member_assignment) for one in described.members))
    return described


def _not_described(group_id: str, version: int, error: KafkaError) -> DescribedGroup:
    if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    if version < FIRST_VERSION_WITH_NOT_FOUND:
        return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    return DescribedGroup(
        group_id=group_id,
        group_state=GroupState.DEAD.value,
        error_code=error.code,
        error_message=error.message,
    )


def _describe(group: Group) -> DescribedGroup:
    """Only in a STABLE group do metadata and assignments belong together."""
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ],
    )
