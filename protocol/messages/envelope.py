"""Envelope (key 58): a broker forwards a client's request to the active controller (KIP-590).

Version 0, flexible from 0.
"""

from __future__ import annotations

from ..schema import bytes_, int16, message, wire


@message(versions="0", flexible="0+")
class EnvelopeRequest:
    request_data: bytes = wire(bytes_, "0+")
    request_principal: bytes | None = wire(bytes_, "0+", null="0+")
    client_host_address: bytes = wire(bytes_, "0+")


@message(versions="0", flexible="0+")
class EnvelopeResponse:
    response_data: bytes | None = wire(bytes_, "0+", null="0+", default=None)
    error_code: int = wire(int16, "0+")
