"""DeleteAcls (key 31): deletes ACLs. Without an authorizer it is an error.

Version 1 adds name patterns (KIP-290), 3 users as resources (KIP-373).
"""

from __future__ import annotations

from ....common.room_logger import room_logger
from ....protocol.acl_bindings import AclBinding
from ....protocol.acls import AclPatternType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ...metadata.metadata_store import STORE_FAILED, StoreError
from ...runtime.loop_sharing import next_turn
from ...security.acl_authorizer import AclAuthorizer
from ..acl_messages import to_acl_binding_filter
from ..request_context import RequestContext

logger = room_logger("authorizer")
PATTERNS_VERSION = 1


async def handle(
    ctx: RequestContext, request: DeleteAclsRequest, *, acl_authorizer: AclAuthorizer | None
) -> DeleteAclsResponse:
    """Delete the ACLs of each filter on its own. The deletion applies from the next request on."""
    if acl_authorizer is None:
        error = ErrorCode.SECURITY_DISABLED
        refused = DeleteAclsFilterResult(error_code=error, error_message="No Authorizer is configured.")
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    results = []
    for one in request.filters:
        # Many may be about one pattern each.
        await next_turn()
        results.append(await _deleted(ctx, one, acl_authorizer))
    return DeleteAclsResponse(filter_results=results)


async def _deleted(ctx: RequestContext, one: DeleteAclsFilter, acl_authorizer: AclAuthorizer) -> DeleteAclsFilterResult:
    try:
        wanted = to_acl_binding_filter(one)
    except KafkaError as error:
        return DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
    if ctx.api_version < PATTERNS_VERSION:
        wanted = wanted._replace(pattern_type=AclPatternType.LITERAL)
    selected = await acl_authorizer.selected(wanted)
    try:
        await acl_authorizer.delete(selected)
    except (StoreError, ValueError) as error:
        logger.error("ACLs could not be deleted: %r", error)
        return DeleteAclsFilterResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=STORE_FAILED)
    if selected:
        logger.info(
            "%s from %s deleted %d ACLs, for example %s",
            ctx.session.principal,
            ctx.client_host,
            len(selected),
            selected[0],
        )
    return DeleteAclsFilterResult(error_message=None, matching_acls=[_matching(binding) for binding in selected])


def _matching(binding: AclBinding) -> DeleteAclsMatchingAcl:
    pattern, entry = binding
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
