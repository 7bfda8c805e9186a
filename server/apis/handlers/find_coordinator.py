"""FindCoordinator (key 10): where the coordinator of a group, a transactional id or a share group is.

Version 1 adds the kind of key, 4 asks for several keys at once (KIP-699), 6 knows share groups (KIP-932). The first
question about a group creates `__consumer_offsets`, about a transactional id `__transaction_state`; Kafka answers that
one with COORDINATOR_NOT_AVAILABLE, here the client waits for the topic instead. Share groups have no coordinators yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ...runtime.turns import Pace, steps_of
from ..ports import ClusterMetadata, Groups, ProducerTransactions
from ..request_context import RequestContext

GROUP, TRANSACTION, SHARE = 0, 1, 2
NOBODY = -1
NO_ERROR = "NONE"
"""The message of a success, as Kafka has it before version 4."""
FIRST_VERSION_WITH_SHARE_GROUPS = 6


async def handle(
    ctx: RequestContext,
    request: FindCoordinatorRequest,
    *,
    groups: Groups,
    metadata: ClusterMetadata,
    transactions: ProducerTransactions,
) -> FindCoordinatorResponse:
    """One answer for each key; before version 4 there is just one."""
    finders = {GROUP: groups.find_coordinator, TRANSACTION: transactions.find_coordinator}
    if ctx.api_version >= 4:
        answers, pace = [], Pace()
        for key in dict.fromkeys(request.coordinator_keys):
            answers.append(await _coordinator(ctx, request.key_type, key, finders, metadata))
            await pace.step(steps_of(key))
        return FindCoordinatorResponse(coordinators=answers)
    answer = await _coordinator(ctx, request.key_type, request.key, finders, metadata)
    return FindCoordinatorResponse(
        error_code=answer.error_code,
        error_message=answer.error_message or NO_ERROR,
        node_id=answer.node_id,
        host=answer.host,
        port=answer.port,
    )


async def _coordinator(
    ctx: RequestContext,
    key_type: int,
    key: str,
    finders: Mapping[int, Callable[[str], Awaitable[int]]],
    metadata: ClusterMetadata,
) -> Coordinator:
    """The coordinator of one key, or why there is none."""
    version = ctx.api_version
    kinds = (GROUP, TRANSACTION, SHARE) if version >= FIRST_VERSION_WITH_SHARE_GROUPS else (GROUP, TRANSACTION)
    try:
        if key_type not in kinds:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"key type {key_type} is not known")
        if key_type == SHARE:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker has no such coordinators")
        node_id = await finders[key_type](key)
        endpoint = metadata.endpoint(node_id, ctx.listener.name)
        if endpoint is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator cannot be reached this way")
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=NOBODY, host="", port=NOBODY, error_code=error.code, error_message=error.message
        )
    return Coordinator(key=key, node_id=node_id, host=endpoint.host, port=endpoint.port)
