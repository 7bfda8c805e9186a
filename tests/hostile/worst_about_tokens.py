"""The worst requests of a client that proves who it is; then about delegation tokens, of a user who has all but one of
those that a user may have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from barnabas.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.sasl_server import LARGEST_MESSAGE_BYTES
from barnabas.server.apis.handlers.create_delegation_token import LONGEST_RENEWERS, MAX_RENEWERS
from barnabas.server.metadata.token_store import DelegationToken
from barnabas.server.security.delegation_token_manager import MAX_TOKENS_PER_OWNER, SECRET_BYTES

from .worst_requests import FRAME_BYTES, Known, Worst

USER, MECHANISM = "eve", "SCRAM-SHA-256"
OTHER_TOKENS = MAX_TOKENS_PER_OWNER - 1
WIDE_CHARACTER = chr(0x1F600)
HOUR_MS = 3_600_000
MAX_EXTENSIONS = (LARGEST_MESSAGE_BYTES[MECHANISM] - len(b"n,,n=x,r=y")) // len(b",fff=")


def widest_names(how_many: int) -> list[str]:
    """As long as a hundred renewers' may be, each with a character for which Python takes four bytes for all others."""
    width = LONGEST_RENEWERS // MAX_RENEWERS - len(WIDE_CHARACTER.encode())
    return [f"{WIDE_CHARACTER}{number:0{width}x}" for number in range(how_many)]


def token_wish(renewers: int = MAX_RENEWERS) -> CreateDelegationTokenRequest:
    """A wish for a token that takes as much room as one may."""
    return CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(principal_type="User", principal_name=name) for name in widest_names(renewers)],
        max_lifetime_ms=-1,
    )


def others_tokens() -> Iterator[DelegationToken]:
    """All that one other user after the other may have, as large as they may be: the client is a renewer of each."""
    renewers = tuple(f"User:{name}" for name in (USER, *widest_names(MAX_RENEWERS - 1)))
    for number in count():
        owner = f"User:{number // MAX_TOKENS_PER_OWNER}"
        yield DelegationToken(f"{number:022}", owner, owner, renewers, 1, 1 << 50, 1 << 50)


def _extensions(most: int) -> Callable[[int, Known], SaslAuthenticateRequest]:
    """A first message of SCRAM, which is answered with a challenge whoever it names."""

    def make(count: int, _: Known) -> SaslAuthenticateRequest:
        extensions = b"".join(b",%x=" % number for number in range(min(count, most)))
        return SaslAuthenticateRequest(auth_bytes=b"n,,n=x,r=y" + extensions)

    return make


def renewal(secret: bytes) -> RenewDelegationTokenRequest:
    return RenewDelegationTokenRequest(hmac=secret, renew_period_ms=HOUR_MS)


def end(secret: bytes, period_ms: int = -1) -> ExpireDelegationTokenRequest:
    """At once, or then."""
    return ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms)


def _described(owners: Callable[[int], list[str] | None]) -> Callable[[int, Known], DescribeDelegationTokenRequest]:
    def make(count: int, _: Known) -> DescribeDelegationTokenRequest:
        names = owners(count)
        if names is None:
            return DescribeDelegationTokenRequest(owners=None)
        named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in names]
        return DescribeDelegationTokenRequest(owners=named)

    return make


def _names(count: int) -> list[str]:
    return [f"{number:x}" for number in range(count)]


NOT_FOUND = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
NO_MECHANISM, FAILED = ErrorCode.UNSUPPORTED_SASL_MECHANISM, ErrorCode.SASL_AUTHENTICATION_FAILED
TOO_MANY = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
K = ApiKey
WORST_ABOUT_TOKENS = (
    Worst("bytes", K.SASL_HANDSHAKE, 1, lambda *_: SaslHandshakeRequest(mechanism="x" * 32_767), NO_MECHANISM),
    Worst("a mechanism", K.SASL_HANDSHAKE, 1, lambda *_: SaslHandshakeRequest(mechanism=MECHANISM), ErrorCode.NONE),
    Worst("bytes", K.SASL_AUTHENTICATE, 2, lambda n, _: SaslAuthenticateRequest(auth_bytes=bytes(n)), FAILED),
    Worst("extensions", K.SASL_AUTHENTICATE, 2, _extensions(MAX_EXTENSIONS), ErrorCode.NONE),
    Worst("too many extensions", K.SASL_AUTHENTICATE, 2, _extensions(FRAME_BYTES), FAILED),
    Worst("the last one", K.CREATE_DELEGATION_TOKEN, 3, lambda _, __: token_wish(), ErrorCode.NONE),
    Worst("one too many", K.CREATE_DELEGATION_TOKEN, 3, lambda _, __: token_wish(), TOO_MANY),
    Worst("renewers", K.CREATE_DELEGATION_TOKEN, 3, lambda n, _: token_wish(n), ErrorCode.INVALID_REQUEST),
    Worst("bytes", K.RENEW_DELEGATION_TOKEN, 2, lambda n, _: renewal(bytes(n)), NOT_FOUND),
    Worst("a stranger's", K.RENEW_DELEGATION_TOKEN, 2, lambda _, __: renewal(bytes(SECRET_BYTES)), NOT_FOUND),
    Worst("one's own", K.RENEW_DELEGATION_TOKEN, 2, lambda _, known: renewal(known.token), ErrorCode.NONE),
    Worst("bytes", K.EXPIRE_DELEGATION_TOKEN, 2, lambda n, _: end(bytes(n)), NOT_FOUND),
    Worst("a stranger's", K.EXPIRE_DELEGATION_TOKEN, 2, lambda _, __: end(bytes(SECRET_BYTES)), NOT_FOUND),
    Worst("one's own", K.EXPIRE_DELEGATION_TOKEN, 2, lambda _, known: end(known.token, HOUR_MS), ErrorCode.NONE),
    Worst("all", K.DESCRIBE_DELEGATION_TOKEN, 3, _described(lambda _: None), ErrorCode.NONE),
    Worst("of many owners", K.DESCRIBE_DELEGATION_TOKEN, 3, _described(lambda n: [USER, *_names(n)]), ErrorCode.NONE),
    Worst("of strangers", K.DESCRIBE_DELEGATION_TOKEN, 3, _described(_names), ErrorCode.NONE),
)
ALL_THERE_ARE = _described(lambda _: None)
WORST_AMONG_OWNERS = (
    (800, Worst("most of another's", K.DESCRIBE_DELEGATION_TOKEN, 3, ALL_THERE_ARE, ErrorCode.NONE)),
    (200, Worst("all of another's", K.DESCRIBE_DELEGATION_TOKEN, 3, ALL_THERE_ARE, ErrorCode.POLICY_VIOLATION)),
    (3000, Worst("all of many", K.DESCRIBE_DELEGATION_TOKEN, 3, ALL_THERE_ARE, ErrorCode.POLICY_VIOLATION)),
)
"""Each after so many more of others' tokens, when the client has all it may have: the first are nearly too many."""
