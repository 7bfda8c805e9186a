"""DeleteAcls (key 31): take rules back. Without an authorizer there are none.

Version 1 knows patterns of names (KIP-290), 3 users as resources (KIP-373).
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from ..request_context import RequestContext


def handle(ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """This broker has no authorizer: every filter is refused."""
    error = ErrorCode.SECURITY_DISABLED
    refused = DeleteAclsFilterResult(error_code=error, error_message="No Authorizer is configured.")
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
