"""Zigzag variable-length integers, as they stand inside records of format v2 and nowhere else."""

from __future__ import annotations

from .errors import ProtocolError

_MAX_VARINT_BYTES = 5
_SHIFTS = range(0, 70, 7)
"""A varlong has ten bytes at most: an endless one is not read to its end."""


def encode_varint(value: int) -> bytes:
    """A signed integer of up to 64 bits as Kafka's varint or varlong (the bytes are the same)."""
    rest = value << 1 if value >= 0 else ~(value << 1)
    if rest < 0x80:
        return _ONE_BYTE[rest]
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def decode_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The varint (32 bits) at `position`, and the position behind it; ProtocolError if it is cut or too long."""
    value, end = _decode_unsigned(data, position)
    if value >> 32 or end - position > _MAX_VARINT_BYTES:
        raise ProtocolError("varint of more than 32 bits")
    return (value >> 1) ^ -(value & 1), end


def decode_varlong(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The varlong (64 bits) at `position`, and the position behind it; ProtocolError if it is cut or too long."""
    value, position = _decode_unsigned(data, position)
    return (value >> 1) ^ -(value & 1), position


def _decode_unsigned(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The varlong at `position` as it stands, still zigzag, and the position behind it. Errors as `decode_varlong`."""
    value = 0
    try:
        for shift in _SHIFTS:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise ProtocolError("varint too long")
    except IndexError:
        raise ProtocolError("varint cut off") from None
    if value >> 64:
        raise ProtocolError("varint too long")
    return value, position
