"""Checks and conversions that the requests about delegation tokens share (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ..security.session import ANONYMOUS

if TYPE_CHECKING:
    from .request_context import RequestContext

MAX_NAME_CHARACTERS = 1024


def check_token_requests_allowed(ctx: RequestContext) -> None:
    """Raise KafkaError unless the client is authenticated, and not by a token (Kafka's allowTokenRequests)."""
    protocol, session = ctx.listener.security_protocol, ctx.session
    is_authenticated = protocol.startswith("SASL_") or (protocol == "SSL" and session.principal != ANONYMOUS)
    if session.is_by_token or not is_authenticated:
        text = "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token "
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, f"{text}authenticated channels.")


def parse_principal(principal_type: str, name: str) -> str:
    """Return `User:name`. Raise KafkaError INVALID_PRINCIPAL_TYPE for other types of principals."""
    if principal_type != "User" or not name or len(name) > MAX_NAME_CHARACTERS:
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE, "Supplied principalType is not supported")
    return f"{principal_type}:{name}"


def split_principal(principal: str) -> tuple[str, str]:
    """Return the type and the name of a principal."""
    principal_type, _, name = principal.partition(":")
    return principal_type, name
