"""DescribeUserScramCredentials (key 50, KIP-554): users with SCRAM credentials, without the secrets.

They are stored in the metadata tree at the path of Kafka up to 3.9, together with the quotas of the user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ...runtime.loop_sharing import CountBudget
from ...security.scram_credentials import ScramCredentials
from ..request_context import RequestContext

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


async def handle(
    ctx: RequestContext, request: DescribeUserScramCredentialsRequest, *, scram_credentials: ScramCredentials
) -> DescribeUserScramCredentialsResponse:
    """Describe the requested users, or all users with credentials if the request names none."""
    counts = Counter(user.name for user in request.users or ())
    found = await scram_credentials.described(counts)
    results, budget = [], CountBudget()
    for user in counts or sorted(found):
        results.append(_result(user, counts[user], found))
        await budget.step()
    return DescribeUserScramCredentialsResponse(results=results)


def _result(user: str, times: int, found: Mapping[str, Mapping[str, int]]) -> DescribeUserScramCredentialsResult:
    if times > 1:
        reason = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return DescribeUserScramCredentialsResult(
            user=user, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=reason
        )
    if user not in found:
        reason = f"Attempt to describe a user credential that does not exist: {user}"
        return DescribeUserScramCredentialsResult(
            user=user, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=reason
        )
    infos = [
        CredentialInfo(mechanism=MECHANISMS[name], iterations=iterations) for name, iterations in found[user].items()
    ]
    return DescribeUserScramCredentialsResult(user=user, credential_infos=infos)
