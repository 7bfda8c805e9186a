"""DescribeAcls (key 29): who may do what. Without an authorizer Kafka says so, and user interfaces hide the subject.

Version 1 knows patterns of names (KIP-290), 3 users as resources (KIP-373).
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ..request_context import RequestContext


def handle(ctx: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """This broker has no authorizer."""
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
