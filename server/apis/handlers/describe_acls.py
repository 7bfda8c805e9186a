"""DescribeAcls (key 29): rules of access. Without an authorizer it is refused, by which user interfaces know to hide
the subject.

Version 1 knows patterns of names (KIP-290), 3 users as resources (KIP-373).
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
from ...runtime.turns import Pace
from ..acl_messages import filter_of
from ..ports import AccessRules
from ..request_context import RequestContext

PATTERNS_VERSION = 1


async def handle(
    ctx: RequestContext, request: DescribeAclsRequest, *, acls: AccessRules | None
) -> DescribeAclsResponse:
    """The rules that the filter selects. Raises KafkaError INVALID_REQUEST."""
    if acls is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    wanted = filter_of(request)
    if ctx.api_version < PATTERNS_VERSION:
        # Such a client knows literal names only, and does not say so.
        wanted = wanted._replace(pattern_type=AclPatternType.LITERAL)
    resources: dict[ResourcePattern, DescribeAclsResource] = {}
    pace = Pace()
    for pattern, entry in await acls.selected(wanted):
        await pace.step()
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
