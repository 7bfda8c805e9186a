"""SaslHandshake (key 17): choose a SASL mechanism.

Versions 0-1, never flexible.
   0  tokens follow as bare size-delimited frames without Kafka headers
   1  tokens follow inside SaslAuthenticate requests
"""

from __future__ import annotations

from ..schema import int16, message, string, wire


@message(versions="0-1")
class SaslHandshakeRequest:
    mechanism: str = wire(string, "0+")


@message(versions="0-1")
class SaslHandshakeResponse:
    error_code: int = wire(int16, "0+")
    mechanisms: list[str] = wire([string], "0+")
