"""Request and response headers, between a frame's size and the body.

request   v0  key int16, version int16, correlation id int32      ControlledShutdown v0 only
          v1  + client id, int16 length, -1 for null              bodies that are not flexible
          v2  + tagged fields                                     flexible bodies
response  v0  correlation id int32                                not flexible, and ApiVersions always
          v1  + tagged fields                                     flexible bodies
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from .apis import API_MESSAGES, ApiKey
from .compiled_support import bad_length, skip_tags, truncated
from .errors import ProtocolError
from .schema import Buffer

_PREFIX = struct.Struct(">hhi")
_PREFIX_AND_LENGTH = struct.Struct(">hhih")
_LENGTH = struct.Struct(">h")
_CORRELATION_ID = struct.Struct(">i")

_prefix_and_length_at = _PREFIX_AND_LENGTH.unpack_from
_new_header = tuple.__new__

key_at = struct.Struct(">h").unpack_from
"""A request's key alone, which is sufficient for the decision to read on."""
KEY_SIZE = 2
api_at = struct.Struct(">i").unpack_from
"""Key and version as one number, for a single lookup of the handler."""
API_SIZE = 4
_SIZE_AND_HEADER = struct.Struct(">ii")
_SIZE_AND_FLEXIBLE_HEADER = struct.Struct(">iix")


class RequestHeader(NamedTuple):
    """The common start of all requests; the client id may be None."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


@lru_cache(maxsize=1024)
def request_header_version(key: int, version: int) -> int:
    """Return the header version of a request. An unknown key or version has the plain header, v1.

    Of an unknown request only the first eight bytes are reliable.
    """
    if key == ApiKey.CONTROLLED_SHUTDOWN and version == 0:
        return 0
    spec = API_MESSAGES.get(key)  # type: ignore[call-overload]  # an IntEnum key equals its number
    return 2 if spec is not None and spec.is_flexible(version) else 1


@lru_cache(maxsize=1024)
def response_header_version(key: int, version: int) -> int:
    """Return the header version of a response: 0 or 1.

    ApiVersions keeps 0, so that a client can read the response to a version that the broker does not support (KIP-511).
    """
    return 1 if key != ApiKey.API_VERSIONS and request_header_version(key, version) == 2 else 0


def decode_request_header(buffer: Buffer, position: int, end: int) -> tuple[RequestHeader, int]:
    """Decode the header at `position`, and return the start of the body. Raises `ProtocolError`.

    Of ApiVersions in an unknown version only the first eight bytes are read, since the response requires no more and
    the header may have any form.
    """
    try:
        return _decode_request_header(buffer, position, end)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"malformed request header: {error}") from error


def _decode_request_header(buffer: Buffer, position: int, end: int) -> tuple[RequestHeader, int]:
    if end > len(buffer):
        raise ProtocolError(f"request ends at {end} in a buffer of {len(buffer)} bytes")
    if end - position < _PREFIX_AND_LENGTH.size:
        return _decode_prefix(buffer, position, end)
    key, version, correlation_id, length = _prefix_and_length_at(buffer, position)
    readable = _readable_header_version(key, version)
    if readable == 0:
        return _decode_prefix(buffer, position, end)
    start = position + _PREFIX_AND_LENGTH.size
    client_id = None
    body = start
    if length >= 0:
        body += length
        if body > end:
            raise truncated(body, end)
        client_id = str(buffer[start:body], "utf-8")
    elif length < -1:
        raise bad_length(length, "client id")
    if readable == 2:
        tags = buffer[body]
        body += 1
        if tags:
            body = skip_tags(buffer, body, end, tags)
        if body > end:
            raise truncated(body, end)
    # The generated constructor of a NamedTuple takes twice as long.
    return _new_header(RequestHeader, (key, version, correlation_id, client_id)), body


def _decode_prefix(buffer: Buffer, position: int, end: int) -> tuple[RequestHeader, int]:
    """Decode a header of eight bytes."""
    if end - position < _PREFIX.size:
        raise truncated(position + _PREFIX.size, end)
    key, version, correlation_id = _PREFIX.unpack_from(buffer, position)
    if _readable_header_version(key, version) != 0:
        raise ProtocolError("request shorter than its header")
    return RequestHeader(key, version, correlation_id), position + _PREFIX.size


@lru_cache(maxsize=1024)
def _readable_header_version(key: int, version: int) -> int:
    """Return the header version of a request as far as it can be read: 0 for an unknown version of ApiVersions."""
    if key == ApiKey.API_VERSIONS and version not in API_MESSAGES[ApiKey.API_VERSIONS].versions:
        return 0
    return request_header_version(key, version)


def encode_request_header(header: RequestHeader) -> bytes:
    """Encode a request header in the version for its key and API version."""
    key, version, correlation_id, client_id = header
    return _PREFIX.pack(key, version, correlation_id) + _after_prefix(key, version, client_id)


def frame_request(header: RequestHeader, body: Sequence[Buffer]) -> list[Buffer]:
    """Return a complete request: its size, its header, and the buffers of its body."""
    encoded = encode_request_header(header)
    size = len(encoded) + sum(map(len, body))
    return [size.to_bytes(4, "big") + encoded, *body]


@lru_cache(maxsize=1024)
def _after_prefix(key: int, version: int, client_id: str | None) -> bytes:
    """Return the constant part of a client's request headers: its id, and no tagged fields."""
    header_version = request_header_version(key, version)
    if header_version == 0:
        return b""
    encoded = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(encoded)
    return _LENGTH.pack(length) + encoded + (b"\0" if header_version == 2 else b"")


def encode_response_header(key: int, version: int, correlation_id: int) -> bytes:
    """Encode the header of the response to that request."""
    header = _CORRELATION_ID.pack(correlation_id)
    return header + b"\0" if response_header_version(key, version) else header


def response_front(key: int, version: int) -> tuple[Callable[[int, int], bytes], int]:
    """Return the function that writes the first bytes of a response, from the frame's size and the correlation id,
    and their number.

    As `encode_response_header` with the size before it. Looked up once per API, it costs a response one call.
    """
    front = _SIZE_AND_FLEXIBLE_HEADER if response_header_version(key, version) else _SIZE_AND_HEADER
    return front.pack, front.size


def decode_response_header(key: int, version: int, buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Return the correlation id, and the start of the body. Raises `ProtocolError`."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, position)
        start = position + _CORRELATION_ID.size
        if response_header_version(key, version):
            start = skip_tags(buffer, start + 1, end, buffer[start])
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"malformed response header: {error}") from error
    if start > end or end > len(buffer):
        raise ProtocolError("response shorter than its header")
    return correlation_id, start
