"""ListGroups (key 16): the groups that this broker coordinates.

A client without the ACL to describe the cluster receives the groups that it may describe. Version 4 filters by state
(KIP-518), 5 by type (KIP-848).
"""

from __future__ import annotations

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ...coordinator.group.group_coordinator import GroupCoordinator
from ...runtime.loop_sharing import CountBudget
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: ListGroupsRequest, *, group_coordinator: GroupCoordinator
) -> ListGroupsResponse:
    """List the loaded groups. The error reports that groups are still being loaded."""
    states = {state.lower() for state in request.states_filter}
    types = {one.lower() for one in request.types_filter}
    sees_all = ctx.is_authorized(AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME)
    listed, budget = [], CountBudget()
    for group in group_coordinator.group_manager.groups:
        state = group.state_name
        is_wanted = (not states or state.lower() in states) and (not types or group.type.value in types)
        if is_wanted and not group.is_dead and (sees_all or _may_see(ctx, group.group_id)):
            listed.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=state,
                    group_type=group.type.value,
                )
            )
        await budget.step()
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if group_coordinator.group_manager.is_loading else ErrorCode.NONE
    return ListGroupsResponse(error_code=error, groups=listed)


def _may_see(ctx: RequestContext, group_id: str) -> bool:
    return ctx.is_authorized(AclOperation.DESCRIBE, AclResourceType.GROUP, group_id)
