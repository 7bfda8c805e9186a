"""SaslAuthenticate (key 36): one step of a SASL conversation.

Versions 0-2, flexible from 2.
   1  session lifetime for re-authentication (KIP-368)
"""

from __future__ import annotations

from ..schema import bytes_, int16, int64, message, string, wire


@message(versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: bytes = wire(bytes_, "0+")


@message(versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")
    auth_bytes: bytes = wire(bytes_, "0+")
    session_lifetime_ms: int = wire(int64, "1+", ignorable=True)
