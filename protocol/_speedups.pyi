"""What `protocol/native/` compiles to. Every function has a twin in Python, named here, which says what it does.

Rows are (block, capacity, first row, row behind the last) of `RecordColumns`. A map's layout is (slots, bytes of a
key's id, whether keys are compared).
"""

from array import array
from typing import TypeAlias

_Buffer: TypeAlias = bytes | bytearray | memoryview
_Rows: TypeAlias = tuple[bytearray, int, int, int]
_Layout: TypeAlias = tuple[int, int, bool]

def put_many(
    memory: bytearray,
    state: array[int],
    layout: _Layout,
    buffer: _Buffer,
    rows: _Rows,
    digests: bytes | None,
    from_offset: int,
    max_size: int,
    /,
) -> int:
    """`SkimpyOffsetMap.put_many`."""

def get_many(
    memory: bytearray,
    state: array[int],
    layout: _Layout,
    buffer: _Buffer,
    rows: _Rows,
    digests: bytes | None,
    found: array[int],
    /,
) -> None:
    """`SkimpyOffsetMap.get_many`."""
