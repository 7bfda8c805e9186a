"""Zigzag variable-length integers, as in records of format v2, and in Confluent's Protobuf format."""

from __future__ import annotations

from .errors import ProtocolError

_VARINT_SHIFTS, _VARLONG_SHIFTS = range(7, 35, 7), range(7, 70, 7)
"""Masks of the second to the fifth, and to the tenth byte: an endless varint is not read to its end."""


def encode_varint(value: int) -> bytes:
    """Encode a signed integer of up to 64 bits as Kafka's varint or varlong (the bytes are the same)."""
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
    """Read the varint (32 bits) at `position`; return it and the position after it; ProtocolError if it is truncated or
    too long.
    """
    return _decode(data, position, _VARINT_SHIFTS, 32)


def decode_varlong(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Read the varlong (64 bits) at `position`; return it and the position after it; ProtocolError if it is truncated
    or too long.
    """
    return _decode(data, position, _VARLONG_SHIFTS, 64)


def _decode(data: bytes | memoryview, position: int, shifts: range, bits: int) -> tuple[int, int]:
    try:
        value = data[position]
        position += 1
        if value < 0x80:
            return value >> 1 ^ -(value & 1), position
        value &= 0x7F
        for shift in shifts:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise ProtocolError(f"varint of more than {bits} bits")
    except IndexError:
        raise ProtocolError("varint truncated") from None
    if value >> bits:
        raise ProtocolError(f"varint of more than {bits} bits")
    return value >> 1 ^ -(value & 1), position
