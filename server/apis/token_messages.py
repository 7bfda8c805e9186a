"""What requests about delegation tokens have in common: who may make them, and principals as they name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ..security.session import ANONYMOUS

if TYPE_CHECKING:
    from .request_context import RequestContext

LONGEST_NAME = 1024


def check_allowed(ctx: RequestContext) -> None:
    """Raises KafkaError unless the client has proved who it is, and by something else than a token."""
    protocol, session = ctx.listener.security_protocol, ctx.session
    is_known = protocol.startswith("SASL_") or (protocol == "SSL" and session.principal != ANONYMOUS)
    if session.is_by_token or not is_known:
        text = "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token "
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, f"{text}authenticated channels.")


def principal_of(kind: str, name: str) -> str:
    """Raises KafkaError for anything but a user."""
    if kind != "User" or not name or len(name) > LONGEST_NAME:
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE, "Supplied principalType is not supported")
    return f"{kind}:{name}"


def kind_and_name(principal: str) -> tuple[str, str]:
    """The two parts of a principal."""
    kind, _, name = principal.partition(":")
    return kind, name
