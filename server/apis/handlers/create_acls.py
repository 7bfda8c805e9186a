"""CreateAcls (key 30): creates ACLs. Without an authorizer it is an error.

Version 1 adds name patterns (KIP-290), 3 users as resources (KIP-373).
"""

from __future__ import annotations

from ....common.room_logger import room_logger
from ....protocol.acl_bindings import AclBinding, ResourcePattern
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ...metadata.acl_store import TooManyRulesError
from ...metadata.metadata_store import STORE_FAILED
from ...runtime.loop_sharing import CountBudget
from ...security.acl_authorizer import AclAuthorizer
from ..acl_messages import to_acl_binding
from ..request_context import RequestContext

logger = room_logger("authorizer")

MAX_RULES = 10_000
"""The limit per request (`MAX_RECORDS_PER_USER_OP` of Kafka's QuorumController)."""


async def handle(
    ctx: RequestContext, request: CreateAclsRequest, *, acl_authorizer: AclAuthorizer | None
) -> CreateAclsResponse:
    """Create each ACL independently; they apply from the next request on.

    Raises KafkaError POLICY_VIOLATION for more than `MAX_RULES`.
    """
    if acl_authorizer is None:
        refused = AclCreationResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
        )
        return CreateAclsResponse(results=[refused] * len(request.creations))
    if len(request.creations) > MAX_RULES:
        reason = f"Unable to perform excessively large batch operation: {MAX_RULES} rules are allowed."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, reason)
    bindings: dict[AclBinding, list[AclCreationResult]] = {}
    results, budget = [], CountBudget()
    for creation in request.creations:
        await budget.step()
        result = AclCreationResult(error_message=None)
        try:
            bindings.setdefault(to_acl_binding(creation), []).append(result)
        except KafkaError as wrong:
            result.error_code, result.error_message = wrong.code, wrong.message
        results.append(result)
    by_pattern: dict[ResourcePattern, list[AclBinding]] = {}
    for binding in bindings:
        by_pattern.setdefault(binding.pattern, []).append(binding)
    failed = await acl_authorizer.create(bindings)
    for pattern, group in by_pattern.items():
        await budget.step()
        if pattern in failed:
            error = failed[pattern]
            logger.error("ACLs of %s could not be stored: %r", pattern.name, error)
            code, message = ErrorCode.KAFKA_STORAGE_ERROR, STORE_FAILED
            if isinstance(error, TooManyRulesError):
                code, message = ErrorCode.POLICY_VIOLATION, str(error)
            for binding in group:
                for result in bindings[binding]:
                    result.error_code, result.error_message = code, message
        else:
            logger.info(
                "%s from %s created %d ACLs for %s, for example %s",
                ctx.session.principal,
                ctx.client_host,
                len(group),
                pattern,
                group[0].entry,
            )
    return CreateAclsResponse(results=results)
