"""FindCoordinator (key 10): where the coordinator of a group, a transactional id or a share group is.

Version 1 adds the kind of key, 4 asks for several keys at once (KIP-699), 6 knows share groups (KIP-932). This broker
has no coordinators yet, so every legal question gets the answer that Kafka gives while a coordinator's topic cannot be
had: COORDINATOR_NOT_AVAILABLE. The API is served all the same because librdkafka takes its presence as the sign that a
broker understands LZ4, and sends batches uncompressed without a word where it is missing.
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode
from ...protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ..request_context import RequestContext

GROUP, TRANSACTION, SHARE = 0, 1, 2
NOBODY = -1
FIRST_VERSION_WITH_SHARE_GROUPS = 6


def handle(ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """One answer for each key; before version 4 there is just one."""
    if ctx.api_version >= 4:
        answers = [_coordinator(ctx.api_version, request.key_type, key) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=answers)
    answer = _coordinator(ctx.api_version, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=answer.error_code, error_message=answer.error_message, node_id=NOBODY, host="", port=NOBODY
    )


def _coordinator(version: int, key_type: int, key: str) -> Coordinator:
    """The coordinator of one key: none, and why."""
    kinds = (GROUP, TRANSACTION, SHARE) if version >= FIRST_VERSION_WITH_SHARE_GROUPS else (GROUP, TRANSACTION)
    if key_type not in kinds:
        code, message = ErrorCode.INVALID_REQUEST, f"key type {key_type} is not known"
    elif key_type == GROUP and not key:
        code, message = ErrorCode.INVALID_GROUP_ID, "a group id must not be empty"
    else:
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker has no coordinators"
    return Coordinator(key=key, node_id=NOBODY, host="", port=NOBODY, error_code=code, error_message=message)
