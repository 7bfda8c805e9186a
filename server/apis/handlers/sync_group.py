"""SyncGroup (key 14): the leader brings the assignment of a generation, everybody gets its own.

Version 3 knows static members (KIP-345), 5 says which protocol the client takes the generation to have (KIP-559).
Answered once the assignment is durable.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ...coordinator.group.group_id import check_group_id
from ...coordinator.group.member import SyncResult
from ...coordinator.group.requests import Syncing
from ..ports import Groups
from ..request_context import RequestContext

FIRST_VERSION_WITH_PROTOCOL = 5


def handle(ctx: RequestContext, request: SyncGroupRequest, *, groups: Groups) -> None:
    """Hand the request to the group, which answers."""

    def reply(result: SyncResult) -> None:
        ctx.respond(
            SyncGroupResponse(
                error_code=result.error,
                protocol_type=result.protocol_type,
                protocol_name=result.protocol_name,
                assignment=result.assignment,
            )
        )

    if ctx.api_version >= FIRST_VERSION_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        reply(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    try:
        check_group_id(request.group_id)
        group = groups.find(request.group_id)
    except KafkaError as error:
        # While it is loaded nobody knows whether the generation still holds: the member shall join again.
        is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        reply(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS if is_loading else error.code))
        return
    if group is None:
        reply(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        return
    groups.sync(
        group,
        Syncing(
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={one.member_id: bytes(one.assignment) for one in request.assignments},
            reply=groups.later(reply),
        ),
    )
