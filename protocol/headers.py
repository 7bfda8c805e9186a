"""Request and response headers, which stand between a frame's size and the body.

request   v0  key int16, version int16, correlation id int32      ControlledShutdown v0 only
          v1  + client id, int16 length, -1 for null              bodies that are not flexible
          v2  + tagged fields                                     flexible bodies
response  v0  correlation id int32                                not flexible, and ApiVersions always
          v1  + tagged fields                                     flexible bodies
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from .apis import API_MESSAGES, ApiKey
from .compiled_support import skip_tags
from .errors import ProtocolError
from .schema import Buffer

_PREFIX = struct.Struct(">hhi")
_PREFIX_AND_LENGTH = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")


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
    if end > len(buffer) or end - position < _PREFIX.size:
        raise ProtocolError("request shorter than its header")
    key, version, correlation_id = _PREFIX.unpack_from(buffer, position)
    header_version = request_header_version(key, version)
    start = position + _PREFIX.size
    if header_version == 0 or (
        key == ApiKey.API_VERSIONS and version not in API_MESSAGES[ApiKey.API_VERSIONS].versions
    ):
        return RequestHeader(key, version, correlation_id), start
    length = int.from_bytes(buffer[start : start + 2], "big", signed=True)
    start += 2
    client_id = None
    if length >= 0:
        client_id = str(buffer[start : start + length], "utf-8")
        start += length
    elif length < -1:
        raise ProtocolError(f"length {length} of client id")
    if start > end:
        raise ProtocolError("request header longer than its frame")
    if header_version == 2:
        start = skip_tags(buffer, start + 1, end, buffer[start])
        if start > end:
            raise ProtocolError("request header longer than its frame")
    return RequestHeader(key, version, correlation_id, client_id), start


def encode_request_header(header: RequestHeader) -> bytes:
    """The bytes of a request header, in the version its key and API version ask for."""
    header_version = request_header_version(header.api_key, header.api_version)
    prefix = header[:3]
    if header_version == 0:
        return _PREFIX.pack(*prefix)
    client_id = b"" if header.client_id is None else header.client_id.encode()
    length = -1 if header.client_id is None else len(client_id)
    tags = b"\0" if header_version == 2 else b""
    return _PREFIX_AND_LENGTH.pack(*prefix, length) + client_id + tags


def encode_response_header(key: int, version: int, correlation_id: int) -> bytes:
    """The bytes of the header of an answer to that request."""
    header = _CORRELATION_ID.pack(correlation_id)
    return header + b"\0" if response_header_version(key, version) else header


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
