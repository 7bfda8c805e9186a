"""ListGroups (key 16): the groups that this broker coordinates.

Who may not describe the cluster sees the groups that they may describe. Version 4 can ask for states
(KIP-518), 5 for types (KIP-848).
"""

from __future__ import annotations

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ...runtime.turns import Pace
from ..ports import Groups
from ..request_context import RequestContext


async def handle(ctx: RequestContext, request: ListGroupsRequest, *, groups: Groups) -> ListGroupsResponse:
    """What is known now, and whether that is all."""
    states = {state.lower() for state in request.states_filter}
    types = {one.lower() for one in request.types_filter}
    sees_all = ctx.may(AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME)
    listed, pace = [], Pace()
    for group in groups.groups:
        state = group.state_name
        is_wanted = (not states or state.lower() in states) and (not types or group.type_name in types)
        if is_wanted and not group.is_dead and (sees_all or _may_see(ctx, group.group_id)):
            listed.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=state,
                    group_type=group.type_name,
                )
            )
        await pace.step()
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if groups.is_loading else ErrorCode.NONE
    return ListGroupsResponse(error_code=error, groups=listed)


def _may_see(ctx: RequestContext, group_id: str) -> bool:
    return ctx.may(AclOperation.DESCRIBE, AclResourceType.GROUP, group_id)
