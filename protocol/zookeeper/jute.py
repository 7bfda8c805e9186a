"""Jute, the encoding of ZooKeeper's records, derived from the types of named tuples.

A record is a NamedTuple whose annotations are `Int`, `Long`, `bool`, `str` (an ustring), `bytes | None` (a buffer),
another record, or a list of one of these. All is big-endian; strings, buffers and lists begin with their length, -1 for
null. A null string or list is read as an empty one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from struct import error as struct_error
from types import UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from ..errors import ProtocolError

Int = Annotated[int, "i"]
Long = Annotated[int, "q"]

R = TypeVar("R", bound=tuple[Any, ...])

MAX_ITEMS = 50_000
"""Maximum items of a list in a request: a short frame must not cause long work."""

_int = Struct(">i")
_unpack_int = _int.unpack_from
_pack_int = _int.pack


class Codec(NamedTuple):
    """Reader and writer of one type; the reader returns the value and the position after it."""

    read: Callable[[bytes, int], tuple[Any, int]]
    write: Callable[[Any, bytearray], None]


def decode(record: type[R], data: bytes, at: int = 0) -> R:
    """Read a record at `at`, ignoring later bytes. Raises ProtocolError."""
    return decode_at(record, data, at)[0]


def decode_at(record: type[R], data: bytes, at: int) -> tuple[R, int]:
    """Read a record and return it with its end. Raises ProtocolError."""
    try:
        return cast("tuple[R, int]", _codec(record).read(data, at))
    except (struct_error, UnicodeDecodeError) as error:
        raise ProtocolError(f"invalid {record.__name__}: {error}") from error


def encode(record: tuple[Any, ...]) -> bytes:
    out = bytearray()
    _codec(type(record)).write(record, out)
    return bytes(out)


@cache
def _codec(kind: Any) -> Codec:
    if kind is str:
        return Codec(_read_text, _write_text)
    origin = get_origin(kind)
    if origin is Annotated:
        return _fixed(get_args(kind)[1])
    if kind is bool:
        return _fixed("?")
    if origin is UnionType:
        return Codec(_read_buffer, _write_buffer)
    if origin is list:
        return _list_of(_codec(get_args(kind)[0]))
    return _record(kind)


def _fixed(code: str) -> Codec:
    struct = Struct(f">{code}")
    unpack, pack, size = struct.unpack_from, struct.pack, struct.size

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return unpack(data, at)[0], at + size

    def write(value: Any, out: bytearray) -> None:
        out += pack(value)

    return Codec(read, write)


def _record(kind: Any) -> Codec:
    types = list(get_type_hints(kind, include_extras=True).values())
    if all(get_origin(one) is Annotated or one is bool for one in types):
        return _struct(kind, "".join("?" if one is bool else get_args(one)[1] for one in types))
    codecs = [_codec(one) for one in types]
    make = kind._make

    def read(data: bytes, at: int) -> tuple[Any, int]:
        values = []
        for codec in codecs:
            value, at = codec.read(data, at)
            values.append(value)
        return make(values), at

    def write(record: Any, out: bytearray) -> None:
        for codec, value in zip(codecs, record, strict=True):
            codec.write(value, out)

    return Codec(read, write)


def _struct(kind: Any, codes: str) -> Codec:
    """Read a record of numbers only in one call."""
    struct = Struct(f">{codes}")
    make, size = kind._make, struct.size

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return make(struct.unpack_from(data, at)), at + size

    def write(record: Any, out: bytearray) -> None:
        out += struct.pack(*record)

    return Codec(read, write)


def _list_of(item: Codec) -> Codec:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        count, at = _unpack_int(data, at)[0], at + 4
        if not -1 <= count <= MAX_ITEMS:
            raise ProtocolError(f"a list of {count} items; at most {MAX_ITEMS} are allowed")
        items = []
        for _ in range(count):
            value, at = item.read(data, at)
            items.append(value)
        return items, at

    def write(items: Any, out: bytearray) -> None:
        out += _pack_int(len(items))
        for value in items:
            item.write(value, out)

    return Codec(read, write)


def _read_buffer(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _unpack_int(data, at)[0], at + 4
    if size < 0:
        return None, at
    end = at + size
    if end > len(data):
        raise ProtocolError(f"{size} bytes declared, but {len(data) - at} remain")
    return data[at:end], end


def _write_buffer(value: bytes | None, out: bytearray) -> None:
    if value is None:
        out += _pack_int(-1)
    else:
        out += _pack_int(len(value))
        out += value


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    value, at = _read_buffer(data, at)
    return "" if value is None else value.decode(), at


def _write_text(value: str, out: bytearray) -> None:
    _write_buffer(value.encode(), out)
