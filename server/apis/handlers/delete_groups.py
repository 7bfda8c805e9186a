"""DeleteGroups (key 42): remove groups without members, with their offsets (KIP-229)."""

from __future__ import annotations

from functools import partial

from ....protocol.errors import ErrorCode
from ....protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ...runtime.turns import Pace, steps_of
from ..ports import Groups
from ..request_context import RequestContext


async def handle(ctx: RequestContext, request: DeleteGroupsRequest, *, groups: Groups) -> DeleteGroupsResponse | None:
    """Each group on its own, and once; answered when all that is removed is removed on disk."""
    results = {group_id: DeletableGroupResult(group_id=group_id) for group_id in request.groups_names}
    response = DeleteGroupsResponse(results=list(results.values()))
    undecided, is_asked = set(results), False

    def decided(group_id: str, outcome: ErrorCode) -> None:
        results[group_id].error_code = outcome
        undecided.discard(group_id)
        if is_asked and not undecided:
            ctx.respond(response)

    pace = Pace()
    for group_id in results:
        groups.delete(group_id, partial(decided, group_id))
        await pace.step(steps_of(group_id))
    is_asked = True
    return None if undecided else response
