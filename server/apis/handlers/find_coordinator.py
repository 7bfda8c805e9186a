"""FindCoordinator (key 10): the coordinator of a group, a transactional id or a share group.

Version 1 adds the type of key, 4 takes several keys (KIP-699), 6 adds share groups (KIP-932). The first request for a
group creates `__consumer_offsets`, for a transactional id `__transaction_state`, and for a share-partition
`__share_group_state`. Kafka responds to that request with COORDINATOR_NOT_AVAILABLE, Barnabas when the topic exists.
The key of a share-partition is `group:topic id:partition`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ...coordinator.group.group_coordinator import GroupCoordinator
from ...coordinator.share.share_coordinator import ShareCoordinator
from ...coordinator.share.share_partition_key import SharePartitionKey
from ...coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ...metadata.metadata_cache import MetadataCache
from ...runtime.loop_sharing import CountBudget, lookup_steps
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
    group_coordinator: GroupCoordinator,
    metadata_cache: MetadataCache,
    share_coordinator: ShareCoordinator,
    transaction_coordinator: TransactionCoordinator,
) -> FindCoordinatorResponse:
    """Return the coordinator of each key. Requests before version 4 have one key."""
    finders: dict[int, Callable[[str], Awaitable[int]]] = {
        GROUP: group_coordinator.group_manager.find_coordinator,
        TRANSACTION: transaction_coordinator.state_manager.find_coordinator,
        SHARE: partial(_find_share_coordinator, ctx, share_coordinator),
    }
    if ctx.api_version >= 4:
        answers, budget = [], CountBudget()
        for key in dict.fromkeys(request.coordinator_keys):
            answers.append(await _coordinator(ctx, request.key_type, key, finders, metadata_cache))
            await budget.step(lookup_steps(key))
        return FindCoordinatorResponse(coordinators=answers)
    answer = await _coordinator(ctx, request.key_type, request.key, finders, metadata_cache)
    return FindCoordinatorResponse(
        error_code=answer.error_code,
        error_message=answer.error_message or NO_ERROR,
        node_id=answer.node_id,
        host=answer.host,
        port=answer.port,
    )


async def _find_share_coordinator(ctx: RequestContext, share_coordinator: ShareCoordinator, key: str) -> int:
    """Return the coordinator of a share-partition, for other brokers only."""
    if not ctx.is_authorized(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    try:
        share_partition = SharePartitionKey.parse(key)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    return await share_coordinator.find_coordinator(share_partition)


async def _coordinator(
    ctx: RequestContext,
    key_type: int,
    key: str,
    finders: Mapping[int, Callable[[str], Awaitable[int]]],
    metadata_cache: MetadataCache,
) -> Coordinator:
    """Return the coordinator of one key, or the reason why there is none."""
    version = ctx.api_version
    kinds = (GROUP, TRANSACTION, SHARE) if version >= FIRST_VERSION_WITH_SHARE_GROUPS else (GROUP, TRANSACTION)
    try:
        if key_type not in kinds:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown coordinator key type {key_type}")
        node_id = await finders[key_type](key)
        endpoint = metadata_cache.endpoint(node_id, ctx.listener.name)
        if endpoint is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator has no endpoint for this listener")
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=NOBODY, host="", port=NOBODY, error_code=error.code, error_message=error.message
        )
    return Coordinator(key=key, node_id=node_id, host=endpoint.host, port=endpoint.port)
