"""DeleteGroups (key 42): deletes groups without members, with their offsets (KIP-229).

Version 3 adds an error message, which only GROUP_DELETION_FAILED has: the error of a plug-in of streams groups.

Offsets that OffsetCommit of version 0 has written for a group are deleted, too. The coordinator does not have a group
that has no other offsets: such a group is found in the metadata tree.
"""

from __future__ import annotations

import asyncio
from functools import partial

from ....protocol.errors import ErrorCode
from ....protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ...coordinator.group.group_coordinator import GroupCoordinator
from ...coordinator.group.zookeeper_offsets import ZooKeeperOffsets
from ...metadata.metadata_store import StoreError
from ...runtime.loop_sharing import CountBudget, lookup_steps
from ..request_context import RequestContext

HAS_NO_MEMBERS = (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)


async def handle(
    ctx: RequestContext,
    request: DeleteGroupsRequest,
    *,
    group_coordinator: GroupCoordinator,
    zookeeper_offsets: ZooKeeperOffsets | None,
) -> DeleteGroupsResponse:
    """Delete each group once and independently; respond when the deletions are on disk."""
    results = {group_id: DeletableGroupResult(group_id=group_id) for group_id in request.groups_names}
    undecided, is_decided = set(results), asyncio.Event()

    def decided(group_id: str, outcome: ErrorCode) -> None:
        results[group_id].error_code = outcome
        undecided.discard(group_id)
        if not undecided:
            is_decided.set()

    budget = CountBudget()
    for group_id in results:
        group_coordinator.delete_group(group_id, partial(decided, group_id))
        await budget.step(lookup_steps(group_id))
    if results:
        await is_decided.wait()
    without_members = [group_id for group_id, result in results.items() if result.error_code in HAS_NO_MEMBERS]
    try:
        for group_id in () if zookeeper_offsets is None else await zookeeper_offsets.delete(without_members):
            results[group_id].error_code = ErrorCode.NONE
    except StoreError:
        for group_id in without_members:
            results[group_id].error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return DeleteGroupsResponse(results=list(results.values()))
