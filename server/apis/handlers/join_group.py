"""JoinGroup (key 11): joins a group, or rejoins it in a rebalance. The response is sent at the end of the rebalance.

Version 1 adds the rebalance timeout (the session timeout in version 0), 4 returns the id of a new member first
(KIP-394), 5 adds static members (KIP-345), 7 returns the protocol type (KIP-559), 8 has a reason (KIP-800), 9 lets a
static leader that returns keep the assignment (KIP-814).
"""

from __future__ import annotations

from ....common.room_logger import room_logger
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ...config.settings import Settings
from ...coordinator.group.classic_group import NO_MEMBER, JoinReply, JoinRequest, JoinResult
from ...coordinator.group.group_coordinator import GroupCoordinator
from ..request_context import RequestContext

logger = room_logger("groups")

MAX_PROTOCOLS = 1000
MAX_METADATA_BYTES = 1024 * 1024
"""Metadata of one member, in all its protocols together."""


def handle(
    ctx: RequestContext, request: JoinGroupRequest, *, config: Settings, group_coordinator: GroupCoordinator
) -> None:
    """Pass the member to its group, which responds in a callback when the rebalance ends."""

    def reply(result: JoinResult) -> None:
        ctx.respond(_response(ctx.api_version, result))

    try:
        _join(ctx, request, group_coordinator.pace_reply(reply), config, group_coordinator)
    except KafkaError as error:
        reply(JoinResult(error.code, NO_MEMBER))


def _join(
    ctx: RequestContext,
    request: JoinGroupRequest,
    reply: JoinReply,
    config: Settings,
    group_coordinator: GroupCoordinator,
) -> None:
    if not request.group_id:
        reply.immediately(JoinResult(ErrorCode.INVALID_GROUP_ID, request.member_id))
        return
    if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
        reply.immediately(JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
        return
    if len(request.protocols) > MAX_PROTOCOLS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a member has more than {MAX_PROTOCOLS} protocols")
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
    if sum(len(name) + len(metadata) for name, metadata in protocols) > MAX_METADATA_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the metadata of a member have more than {MAX_METADATA_BYTES} bytes"
        )
    if request.reason:
        who = request.member_id or ctx.client_id
        logger.debug("group %r: %r joins: %.200r", request.group_id, who, request.reason)
    rebalance_timeout_ms = request.session_timeout_ms if ctx.api_version == 0 else request.rebalance_timeout_ms
    group_coordinator.join_group(
        request.group_id,
        JoinRequest(
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            client_id=ctx.client_id or "",
            client_host=f"/{ctx.client_host}",
            rebalance_timeout_ms=max(rebalance_timeout_ms, 0),
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=protocols,
            needs_known_id=ctx.api_version >= 4,
            can_skip_assignment=ctx.api_version >= 9,
            reply=reply,
        ),
    )


def _response(version: int, result: JoinResult) -> JoinGroupResponse:
    name = result.protocol_name
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name="" if name is None and version < 7 else name,
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in result.members
        ],
    )
