"""DescribeGroups (key 15): the members of classic groups and their assignments.

Version 3 can return the authorized operations (KIP-430), 4 adds static members, 6 returns GROUP_ID_NOT_FOUND (KIP-1043)
where older versions return a `Dead` group without an error. A group of the consumer protocol is not found either:
ConsumerGroupDescribe describes it.
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
from ...coordinator.group.classic_group import ClassicGroup, ClassicGroupState
from ...coordinator.group.group_coordinator import GroupCoordinator
from ...runtime.loop_sharing import CountBudget, lookup_steps
from ..authorized_operations import authorized_operations
from ..request_context import RequestContext
from ..response_budget import ResponseBudget

FIRST_VERSION_WITH_NOT_FOUND = 6


async def handle(
    ctx: RequestContext, request: DescribeGroupsRequest, *, group_coordinator: GroupCoordinator
) -> DescribeGroupsResponse:
    """Describe each group once and independently.

    Groups for which there is no room in the answer are COORDINATOR_LOAD_IN_PROGRESS: the client requests them again.
    """
    budget, turn_budget = ResponseBudget(), CountBudget()
    answers = []
    for group_id in dict.fromkeys(request.groups):
        answer = _answer(group_coordinator, group_id, ctx.api_version, budget)
        if answer.error_code == ErrorCode.NONE and request.include_authorized_operations:
            answer.authorized_operations = authorized_operations(ctx, AclResourceType.GROUP, group_id)
        answers.append(answer)
        await turn_budget.step(lookup_steps(group_id))
    return DescribeGroupsResponse(groups=answers)


def _answer(group_coordinator: GroupCoordinator, group_id: str, version: int, budget: ResponseBudget) -> DescribedGroup:
    try:
        group = group_coordinator.group_manager.get_classic_group(group_id)
    except KafkaError as error:
        return _not_described(group_id, version, error)
    if budget.is_exhausted:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    described = _describe(group)
    budget.spend(sum(len(one.member_metadata) + len(one.member_assignment) for one in described.members))
    return described


def _not_described(group_id: str, version: int, error: KafkaError) -> DescribedGroup:
    if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    if version < FIRST_VERSION_WITH_NOT_FOUND:
        return DescribedGroup(group_id=group_id, group_state=ClassicGroupState.DEAD.value)
    return DescribedGroup(
        group_id=group_id,
        group_state=ClassicGroupState.DEAD.value,
        error_code=error.code,
        error_message=error.message,
    )


def _describe(group: ClassicGroup) -> DescribedGroup:
    """Describe a group; metadata and assignments of members match, and are present, only in a STABLE group."""
    is_stable = group.state is ClassicGroupState.STABLE
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
