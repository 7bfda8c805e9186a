"""DescribeAcls (key 29): ACLs. Without an authorizer it is an error: user interfaces then hide their ACL pages.

Version 1 adds name patterns (KIP-290), 3 users as resources (KIP-373).
"""

from __future__ import annotations

from ....protocol.acl_bindings import ResourcePattern
from ....protocol.acls import AclPatternType
from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ...runtime.loop_sharing import CountBudget
from ...security.acl_authorizer import AclAuthorizer
from ..acl_messages import to_acl_binding_filter
from ..request_context import RequestContext

PATTERNS_VERSION = 1


async def handle(
    ctx: RequestContext, request: DescribeAclsRequest, *, acl_authorizer: AclAuthorizer | None
) -> DescribeAclsResponse:
    """Return the ACLs that the filter selects. Raise KafkaError INVALID_REQUEST."""
    if acl_authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    wanted = to_acl_binding_filter(request)
    if ctx.api_version < PATTERNS_VERSION:
        # Version 0 has literal names only, and no field for the pattern type.
        wanted = wanted._replace(pattern_type=AclPatternType.LITERAL)
    resources: dict[ResourcePattern, DescribeAclsResource] = {}
    budget = CountBudget()
    for pattern, entry in await acl_authorizer.selected(wanted):
        await budget.step()
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = DescribeAclsResource(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                acls=[],
            )
        resource.acls.append(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
