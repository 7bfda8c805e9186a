"""Encoded requests for tests that write to a socket or call the broker's request handler directly."""

from __future__ import annotations

import struct
from typing import Any

from barnabas.protocol.codec import encode_request
from barnabas.protocol.headers import RequestHeader, encode_request_header


def framed(body: bytes | bytearray | memoryview) -> bytes:
    """Return a request with its length in front."""
    return struct.pack(">i", len(body)) + body


def request_body(
    key: int, version: int, message: Any, *, correlation_id: int = 1, client_id: str | None = "x"
) -> bytes:
    """Return an encoded header and message, without the length in front."""
    header = encode_request_header(RequestHeader(key, version, correlation_id, client_id))
    return bytes(header) + bytes(encode_request(message, version))
