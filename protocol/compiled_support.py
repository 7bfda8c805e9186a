"""Common parts of compiled and hand-written codecs: varints, tagged fields, uuids, cached `struct`s and errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from struct import Struct, pack
from typing import Any
from uuid import UUID, SafeUUID

from .errors import ProtocolError

MAX_ARRAY_ELEMENTS = 1_000_000
"""Maximum items of one array, as in Kafka's decoders since 4.4."""
MAX_UNKNOWN_TAGS = 64
"""Maximum unknown fields in one section of tagged fields. Kafka's decoders accept 10 000 since 4.4.
This limit is lower because a request may have a section in each of its structs, and each unknown field costs time.
"""
UVARINTS = tuple(bytes((value,)) for value in range(128))

new = object.__new__
_set_int = UUID.int.__set__  # type: ignore[attr-defined, misc]
_set_is_safe = UUID.is_safe.__set__  # type: ignore[attr-defined, misc]


@cache
def structure(codes: str) -> Struct:
    """Return the big-endian `Struct` of these codes."""
    return Struct(">" + codes)


@cache
def unpackers(code: str, rest: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """Return `unpack_from` for 0 to 15 items of one code followed by fixed ones."""
    return tuple(structure(code * count + rest).unpack_from for count in range(16))


def unpacker(code: str, count: int, rest: str) -> Callable[..., tuple[Any, ...]]:
    """Return `unpack_from` for any number of items of one code followed by fixed ones."""
    return Struct(f">{count}{code}{rest}").unpack_from


@cache
def packers(code: str, before: str) -> tuple[Callable[..., bytes], ...]:
    """Return `pack` for fixed items followed by 0 to 15 of one code."""
    return tuple(structure(before + code * count).pack for count in range(16))


def pack_many(code: str, items: Sequence[Any]) -> bytes:
    """Unpack any number of items of one code."""
    return pack(f">{len(items)}{code}", *items)


@lru_cache(maxsize=4096)
def as_uuid(raw: bytes) -> UUID:
    """Return the UUID of 16 bytes. The same few topic ids recur; UUID's own constructor takes a microsecond."""
    value = new(UUID)
    _set_int(value, int.from_bytes(raw, "big"))
    _set_is_safe(value, SafeUUID.unknown)
    return value


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint of at most 32 bits."""
    if value < 0x80:
        return UVARINTS[value]
    if value < 0x4000:
        return bytes((value & 127 | 128, value >> 7))
    if value < 0x200000:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    high = uvarint(value >> 21)
    return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127 | 128)) + high


def long_uvarint(buffer: Any, position: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint whose first byte, before `position`, has its top bit set."""
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise ProtocolError("varint longer than 32 bits")


def read_uvarint(buffer: Any, position: int) -> tuple[int, int]:
    """Read an unsigned varint; return it and the position after it."""
    first = buffer[position]
    return (first, position + 1) if first < 128 else long_uvarint(buffer, position + 1, first)


def tag_count(buffer: Any, position: int, first: int) -> tuple[int, int]:
    """Return the number of tagged fields, whose first byte has been read."""
    return (first, position) if first < 128 else long_uvarint(buffer, position, first)


def next_tag(buffer: Any, position: int, limit: int, last: int) -> tuple[int, int, int]:
    """Return the tag of the next tagged field, and the end and the start of its data."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if tag <= last:
        raise ProtocolError(f"tag {tag} after tag {last}")
    if position + size > limit:
        raise truncated(position + size, limit)
    return tag, position + size, position


def skip_tags(buffer: Any, position: int, end: int, first: int) -> int:
    """Skip unknown tagged fields; `first` is the first byte of their number."""
    count, position = tag_count(buffer, position, first)
    if count > MAX_UNKNOWN_TAGS:
        raise too_many_tags(count)
    last = -1
    for _ in range(count):
        last, position, _start = next_tag(buffer, position, end, last)
    return position


def truncated(needed: int, end: int) -> ProtocolError:
    """Return the error of a message that extends beyond its frame."""
    return ProtocolError(f"truncated: {needed - end} bytes missing")


def bad_length(length: int, label: str) -> ProtocolError:
    """Return the error of an invalid negative length, a forbidden null, or a length above the maximum."""
    return ProtocolError(f"{label} must not be null" if length == -1 else f"length {length} of {label}")


def too_many(count: int, label: str) -> ProtocolError:
    """Return the error of more items than the remaining bytes can contain, or than one array or message may have."""
    if count > MAX_ARRAY_ELEMENTS:
        return ProtocolError(f"{count} {label} exceed the maximum of {MAX_ARRAY_ELEMENTS} in one array")
    return ProtocolError(f"{count} {label} exceed the size of the message")


def too_many_tags(count: int) -> ProtocolError:
    """Return the error of more unknown tagged fields than a section may have."""
    return ProtocolError(f"{count} unknown tagged fields exceed the maximum of {MAX_UNKNOWN_TAGS}")


def bad_tag_size(label: str) -> ProtocolError:
    """Return the error of a tagged field whose data do not match its size."""
    return ProtocolError(f"wrong size of tagged field {label}")


def not_in_version(label: str, version: int) -> ProtocolError:
    """Return the error of a value in a field that the version does not have."""
    return ProtocolError(f"version {version} does not support a value of {label}")
