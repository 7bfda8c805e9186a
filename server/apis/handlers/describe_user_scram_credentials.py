"""DescribeUserScramCredentials (key 50, KIP-554): which users have SCRAM credentials, without the secrets.

They lie in the metadata tree where Kafka up to 3.9 has them, beside the users' quotas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from urllib.parse import unquote

from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ...metadata.metadata_store import MetadataStore, NoNodeError
from ...metadata.znodes import DEFAULT_ENTITY, UnreadableNodeError, decode_config
from ...runtime.turns import Pace
from ..request_context import RequestContext

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


async def handle(
    ctx: RequestContext, request: DescribeUserScramCredentialsRequest, *, store: MetadataStore
) -> DescribeUserScramCredentialsResponse:
    """Describes the users asked for, or all who have credentials if none is named."""
    counts = Counter(user.name for user in request.users or ())
    pace = Pace()
    stored = await _stored(store, counts, pace)
    results = []
    for user in counts or sorted(stored):
        results.append(_result(user, counts[user], stored))
        await pace.step()
    return DescribeUserScramCredentialsResponse(results=results)


async def _stored(store: MetadataStore, wanted: Container[str], pace: Pace) -> dict[str, list[CredentialInfo]]:
    """Those of these users, or of all if none are named, that have credentials."""
    found = {}
    for node in await store.children("/config/users"):
        await pace.step()
        name = unquote(node)
        if node == DEFAULT_ENTITY or (wanted and name not in wanted):
            continue
        try:
            data, _ = await store.get(f"/config/users/{node}")
            infos = _infos(decode_config(data) if data else {})
        except (NoNodeError, UnreadableNodeError):  # gone since it was listed, or told of when quotas were read
            continue
        if infos:
            found[name] = infos
    return found


def _infos(config: Mapping[str, str]) -> list[CredentialInfo]:
    """Credentials are stored as `salt=…,stored_key=…,server_key=…,iterations=…`."""
    return [
        CredentialInfo(
            mechanism=number, iterations=int(dict(part.split("=", 1) for part in text.split(","))["iterations"])
        )
        for name, number in MECHANISMS.items()
        if (text := config.get(name))
    ]


def _result(user: str, times: int, stored: Mapping[str, list[CredentialInfo]]) -> DescribeUserScramCredentialsResult:
    if times > 1:
        reason = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return DescribeUserScramCredentialsResult(
            user=user, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=reason
        )
    if user not in stored:
        reason = f"Attempt to describe a user credential that does not exist: {user}"
        return DescribeUserScramCredentialsResult(
            user=user, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=reason
        )
    return DescribeUserScramCredentialsResult(user=user, credential_infos=stored[user])
