"""Request and response headers, which stand between a frame's size and the body.

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
"""A request's key alone, for whoever decides by that whether to read on."""
KEY_SIZE = 2
api_at = struct.Struct(">i").unpack_from
"""Key and version as one number, to look up in one step what answers that."""
API_SIZE = 4
_SIZE_AND_HEADER = struct.Struct(">ii")
_SIZE_AND_FLEXIBLE_HEADER = struct.Struct(">iix")


class RequestHeader(NamedTuple):
    """What every request begins with; a client that gives no id has None."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


@lru_cache(maxsize=1024)
def request_header_version(key: int, version: int) -> int:
    """The header version of a request. An unknown key or version is given the plain header, v1.

    Of an unknown request only the first eight bytes can be relied on.
    """
    if key == ApiKey.CONTROLLED_SHUTDOWN and version == 0:
        return 0
    spec = API_MESSAGES.get(key)  # type: ignore[call-overload]  # an IntEnum key equals its number
    return 2 if spec is not None and spec.is_flexible(version) else 1


@lru_cache(maxsize=1024)
def response_header_version(key: int, version: int) -> int:
    """The header version of a response: 0 or 1.

    ApiVersions keeps 0, so that a client can read the answer to a version the broker does not know (KIP-511).
    """
    return 1 if key != ApiKey.API_VERSIONS and request_header_version(key, version) == 2 else 0


def decode_request_header(buffer: Buffer, position: int, end: int) -> tuple[RequestHeader, int]:
    """The header at `position`, and where the body begins. Raises `ProtocolError`.

    Of ApiVersions in a version unknown to us only the first eight bytes are read, since the answer to it needs
    no more and its header may be of any shape.
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
    """A header of eight bytes."""
    if end - position < _PREFIX.size:
        raise truncated(position + _PREFIX.size, end)
    key, version, correlation_id = _PREFIX.unpack_from(buffer, position)
    if _readable_header_version(key, version) != 0:
        raise ProtocolError("request shorter than its header")
    return RequestHeader(key, version, correlation_id), position + _PREFIX.size


@lru_cache(maxsize=1024)
def _readable_header_version(key: int, version: int) -> int:
    """The header version of a request as far as it can be read: 0 for an ApiVersions of the future."""
    if key == ApiKey.API_VERSIONS and version not in API_MESSAGES[ApiKey.API_VERSIONS].versions:
        return 0
    return request_header_version(key, version)


def encode_request_header(header: RequestHeader) -> bytes:
    """The bytes of a request header, in the version its key and API version ask for."""
    key, version, correlation_id, client_id = header
    return _PREFIX.pack(key, version, correlation_id) + _after_prefix(key, version, client_id)


def frame_request(header: RequestHeader, body: Sequence[Buffer]) -> list[Buffer]:
    """A request as it is sent: its size, its header, and the body's buffers as they are."""
    encoded = encode_request_header(header)
    size = len(encoded) + sum(map(len, body))
    return [size.to_bytes(4, "big") + encoded, *body]


@lru_cache(maxsize=1024)
def _after_prefix(key: int, version: int, client_id: str | None) -> bytes:
    """What of a request's header is the same in all requests of a client: its id, and no tagged fields."""
    header_version = request_header_version(key, version)
    if header_version == 0:
        return b""
    encoded = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(encoded)
    return _LENGTH.pack(length) + encoded + (b"\0" if header_version == 2 else b"")


def encode_response_header(key: int, version: int, correlation_id: int) -> bytes:
    """The bytes of the header of an answer to that request."""
    header = _CORRELATION_ID.pack(correlation_id)
    return header + b"\0" if response_header_version(key, version) else header


def response_front(key: int, version: int) -> tuple[Callable[[int, int], bytes], int]:
    """What writes the first bytes of such an answer, given the frame's size and the correlation id; how many these are.

    As `encode_response_header` with the size before it. Found once for each API, it costs an answer one call.
    """
    front = _SIZE_AND_FLEXIBLE_HEADER if response_header_version(key, version) else _SIZE_AND_HEADER
    return front.pack, front.size


def decode_response_header(key: int, version: int, buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """The correlation id, and where the body begins. Raises `ProtocolError`."""
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
