"""InitProducerId (key 22): an id for a producer that wants its retries recognised (KIP-98).

Without a transactional id the answer is always a fresh id with epoch 0, also when the producer presents the one it had
(v3, KIP-360). Transactional ids need a transaction coordinator; this broker has none and says so.
"""

from __future__ import annotations

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ....protocol.record import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ...metadata.producer_ids import ProducerIds
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: InitProducerIdRequest, *, producer_ids: ProducerIds
) -> InitProducerIdResponse:
    """Hands out a producer id."""
    error = _refusal(request)
    if error is ErrorCode.NONE and not _may_be_idempotent(ctx):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if error is not ErrorCode.NONE:
        return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
    return InitProducerIdResponse(producer_id=await producer_ids.next_id(), producer_epoch=0)


def _may_be_idempotent(ctx: RequestContext) -> bool:
    """Who may write to any topic may do it with retries that are recognised (KIP-679)."""
    return ctx.may(AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER, CLUSTER_NAME) or ctx.may_some(
        AclOperation.WRITE, AclResourceType.TOPIC
    )


def _refusal(request: InitProducerIdRequest) -> ErrorCode:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is None:
        return ErrorCode.NONE
    # Not a retriable error: a producer that waits for a coordinator which never comes would hang.
    return ErrorCode.UNSUPPORTED_VERSION if request.transactional_id else ErrorCode.INVALID_REQUEST
