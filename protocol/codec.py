"""Encoding and decoding of messages, by API key and version.

Codecs are compiled at the first use of a (message, version) and cached; some decoders are preceded by one of
`hot_codecs`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any, TypeVar, cast

from .apis import API_MESSAGES, ApiKey
from .compiler import Decoder, Encoder, decoder, encoder
from .errors import ProtocolError
from .hot_codecs import hot_decoder
from .schema import Buffer, has_large_pieces, versions_of

# Maximum number of structs, strings and numbers in lists of one message. Any client sends requests; responses are from
# a chosen broker, and list whole clusters.
REQUEST_OBJECT_BUDGET = 50_000
ORDER_OBJECT_BUDGET = 700_000
"""The budget of requests of a controller to a broker: a hundred thousand partitions with three replicas each."""
STOP_OBJECT_BUDGET = 100_000
"""The budget of replicas in StopReplica: far more than a broker can have."""
_BUDGETS = {
    ApiKey.LEADER_AND_ISR: ORDER_OBJECT_BUDGET,
    ApiKey.STOP_REPLICA: STOP_OBJECT_BUDGET,
    ApiKey.UPDATE_METADATA: ORDER_OBJECT_BUDGET,
}
RESPONSE_OBJECT_BUDGET = 5_000_000

# Pieces of at least this many bytes are passed on without a copy; smaller ones are joined.
LARGE_PIECE_BYTES = 4096

_BAD_BYTES = (struct.error, IndexError, UnicodeDecodeError)
_BAD_VALUES = (struct.error, AttributeError, TypeError, ValueError, IndexError)

_version = struct.Struct(">h").unpack_from

T = TypeVar("T")


def decode_request(key: int, version: int, buffer: Buffer, position: int, end: int) -> Any:
    """Decode the request in `buffer[position:end]`. Bytes after it are ignored, as in Kafka.

    Strings and bytes are copies, `records` are memoryviews of `buffer`. Raises `ProtocolError`.
    """
    return request_decoder(key, version)(buffer, position, end)


@cache
def request_decoder(key: int, version: int) -> Callable[[Buffer, int, int], Any]:
    """Return `decode_request` of one API and version, for callers that decode many. It raises `ProtocolError`
    likewise.
    """
    cls = _checked(key, version, lambda spec: spec.request)
    budget = _BUDGETS.get(ApiKey(key), REQUEST_OBJECT_BUDGET)
    return partial(_decode, hot_decoder(cls, version, decoder(cls, version)), budget)


def decode_response(key: int, version: int, buffer: Buffer, position: int, end: int) -> Any:
    """Decode the response in `buffer[position:end]`, otherwise as `decode_request`."""
    return _decode(_response_decoder(key, version), RESPONSE_OBJECT_BUDGET, buffer, position, end)


def encode_request(message: object, version: int) -> bytes:
    """Encode the body of a request. Raises `ProtocolError` if the version cannot represent the values."""
    return b"".join(_pieces(message, version))


def encode_item(item: object, version: int) -> bytes:
    """Encode one item of a message's list, for `EncodedItems`. Raises `ProtocolError` likewise."""
    return b"".join(_pieces(item, version))


def encode_response(message: object, version: int) -> list[Buffer]:
    """Encode the body of a response as buffers to be written in order, with large pieces uncopied.

    Raises `ProtocolError` if the version cannot represent the values.
    """
    pieces = _pieces(message, version)
    if len(pieces) == 1:
        return pieces
    cls: Any = type(message)
    return _gathered(pieces) if has_large_pieces(cls) else [b"".join(pieces)]


def encode_long_response(message: object, version: int) -> list[Buffer]:
    """Encode as `encode_response`, with little more memory than the bytes; pieces of a few bytes take eight times
    that.
    """
    cls: Any = type(message)
    if has_large_pieces(cls):
        return encode_response(message, version)
    body = bytearray()
    _write(message, version, body.extend)
    return [body]


def _gathered(pieces: list[Buffer]) -> list[Buffer]:
    """Join each run of small pieces."""
    buffers: list[Buffer] = []
    start = 0
    for index, piece in enumerate(pieces):
        if len(piece) >= LARGE_PIECE_BYTES:
            if start < index:
                buffers.append(b"".join(pieces[start:index]))
            buffers.append(piece)
            start = index + 1
    if start < len(pieces):
        buffers.append(b"".join(pieces[start:]))
    return buffers


def encode_versioned(message: object, version: int) -> bytes:
    """Encode a message that begins with its own version: consumer protocol payloads, records of coordinators."""
    return version.to_bytes(2, "big") + b"".join(_pieces(message, version))


def decode_versioned(cls: type[T], buffer: Buffer, *, later_is_newest: bool = False, version: int | None = None) -> T:
    """Decode a message that begins with its own version.

    A version later than the newest known is an error, or with `later_is_newest` is read as the newest: for payloads
    that only grow at their end. `version` overrides the version in the bytes. Raises `ProtocolError`.
    """
    stated = peek_version(buffer)
    decode = _versioned_decoder(cast(type, cls), stated if version is None else version, later_is_newest)
    return cast(T, _decode(decode, RESPONSE_OBJECT_BUDGET, buffer, 2, len(buffer)))


@lru_cache(maxsize=256)
def _versioned_decoder(cls: type, version: int, later_is_newest: bool) -> Decoder:
    versions = versions_of(cls)
    if later_is_newest:
        version = min(version, versions.last)
    if version not in versions:
        raise ProtocolError(f"{cls.__name__} has no version {version}")
    return decoder(cls, version)


def peek_version(buffer: Buffer) -> int:
    """Return the version at the start of a message. Raises `ProtocolError`."""
    if len(buffer) < 2:
        raise ProtocolError("the version is missing")
    return cast(int, _version(buffer)[0])


def _decode(decode: Decoder, budget: int, buffer: Buffer, position: int, end: int) -> Any:
    if end > len(buffer):
        raise ProtocolError(f"message ends at {end} in a buffer of {len(buffer)} bytes")
    try:
        return decode(buffer, position, end, budget)[0]
    except _BAD_BYTES as error:
        raise ProtocolError(f"malformed message: {error}") from error


def _pieces(message: object, version: int) -> list[Buffer]:
    pieces: list[Buffer] = []
    _write(message, version, pieces.append)
    return pieces


def _write(message: object, version: int, write: Callable[[Buffer], None]) -> None:
    cls: Any = type(message)
    try:
        _encoder(cls, version)(message, write)
    except ProtocolError:
        raise
    except _BAD_VALUES as error:
        raise ProtocolError(f"{cls.__name__} v{version} cannot carry its values: {error}") from error


@cache
def _response_decoder(key: int, version: int) -> Decoder:
    return decoder(_checked(key, version, lambda spec: spec.response), version)


def _checked(key: int, version: int, pick: Callable[[Any], type]) -> type:
    spec = API_MESSAGES.get(key)  # type: ignore[call-overload]  # an IntEnum key equals its number
    if spec is None or version not in spec.versions:
        raise ProtocolError(f"no messages for API key {key} version {version}")
    return pick(spec)


@cache
def _encoder(cls: type, version: int) -> Encoder:
    if version not in versions_of(cls):
        raise ProtocolError(f"{cls.__name__} has no version {version}")
    return encoder(cls, version)
