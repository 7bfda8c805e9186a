"""CreateAcls (key 30): let somebody do something, or not. Without an authorizer there is nobody to heed it.

Version 1 knows patterns of names (KIP-290), 3 users as resources (KIP-373).
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ..request_context import RequestContext


def handle(ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """This broker has no authorizer: every rule is refused."""
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured.")
    return CreateAclsResponse(results=[refused] * len(request.creations))
