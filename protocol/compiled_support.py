"""What compiled and hand-written codecs share: varints, tag sections, uuids, cached `struct`s and refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from struct import Struct, pack
from typing import Any
from uuid import UUID, SafeUUID

from .errors import ProtocolError

MAX_UNKNOWN_TAGS = 64
UVARINTS = tuple(bytes((value,)) for value in range(128))

new = object.__new__
_set_int = UUID.int.__set__  # type: ignore[attr-defined, misc]
_set_is_safe = UUID.is_safe.__set__  # type: ignore[attr-defined, misc]


@cache
def structure(codes: str) -> Struct:
    """The big-endian `Struct` of these codes."""
    return Struct(">" + codes)


@cache
def unpackers(code: str, rest: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """`unpack_from` for 0 to 15 items of one code followed by fixed ones."""
    return tuple(structure(code * count + rest).unpack_from for count in range(16))


def unpacker(code: str, count: int, rest: str) -> Callable[..., tuple[Any, ...]]:
    """`unpack_from` for any number of items of one code followed by fixed ones."""
    return Struct(f">{count}{code}{rest}").unpack_from


@cache
def packers(code: str, before: str) -> tuple[Callable[..., bytes], ...]:
    """`pack` for fixed items followed by 0 to 15 of one code."""
    return tuple(structure(before + code * count).pack for count in range(16))


def pack_many(code: str, items: Sequence[Any]) -> bytes:
    """Any number of items of one code."""
    return pack(f">{len(items)}{code}", *items)


@lru_cache(maxsize=4096)
def as_uuid(raw: bytes) -> UUID:
    """The UUID of 16 bytes. The same few topic ids pass by all the time; UUID's own constructor takes 1 us."""
    value = new(UUID)
    _set_int(value, int.from_bytes(raw, "big"))
    _set_is_safe(value, SafeUUID.unknown)
    return value


def uvarint(value: int) -> bytes:
    """An unsigned varint of at most 32 bits."""
    if value < 0x80:
        return UVARINTS[value]
    if value < 0x4000:
        return bytes((value & 127 | 128, value >> 7))
    if value < 0x200000:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    high = uvarint(value >> 21)
    return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127 | 128)) + high


def long_uvarint(buffer: Any, position: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte, before `position`, has its top bit set."""
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
    """An unsigned varint and the position after it."""
    first = buffer[position]
    return (first, position + 1) if first < 128 else long_uvarint(buffer, position + 1, first)


def tag_count(buffer: Any, position: int, first: int) -> tuple[int, int]:
    """The number of tagged fields, of which the first byte has been read."""
    return (first, position) if first < 128 else long_uvarint(buffer, position, first)


def next_tag(buffer: Any, position: int, limit: int, last: int) -> tuple[int, int, int]:
    """The tag of the next tagged field, where its data ends and where they begin."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if tag <= last:
        raise ProtocolError(f"tag {tag} after tag {last}")
    if position + size > limit:
        raise truncated(position + size, limit)
    return tag, position + size, position


def skip_tags(buffer: Any, position: int, end: int, first: int) -> int:
    """Step over a tag section of which nothing is known; `first` is the first byte of its count."""
    count, position = tag_count(buffer, position, first)
    if count > MAX_UNKNOWN_TAGS:
        raise too_many(count, "unknown tagged fields")
    last = -1
    for _ in range(count):
        last, position, _start = next_tag(buffer, position, end, last)
    return position


def truncated(needed: int, end: int) -> ProtocolError:
    """The message says it goes on where the frame has ended."""
    return ProtocolError(f"truncated: {needed - end} bytes missing")


def bad_length(length: int, label: str) -> ProtocolError:
    """A length below zero that does not mean null, or means null where null is not allowed; or above the longest."""
    return ProtocolError(f"{label} must not be null" if length == -1 else f"length {length} of {label}")


def too_many(count: int, label: str) -> ProtocolError:
    """More items than the bytes left can hold, or than one message may create."""
    return ProtocolError(f"{count} {label} are more than the message can hold")


def bad_tag_size(label: str) -> ProtocolError:
    """A tagged field whose data are longer or shorter than its size says."""
    return ProtocolError(f"wrong size of tagged field {label}")


def not_in_version(label: str, version: int) -> ProtocolError:
    """A value that matters, for a field which the version asked for does not have."""
    return ProtocolError(f"version {version} cannot carry a value of {label}")
