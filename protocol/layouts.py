"""Fixed-width formats as data: a named tuple defines the fields, their order and widths.

    class OffsetIndexEntry(NamedTuple):
        relative_offset: Int32
        position: Int32

    OFFSET_INDEX_ENTRY = Layout(OffsetIndexEntry)

All readers and writers of these bytes use the layout, as does the `construct` description of tools. All integers are
big-endian.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Annotated, Generic, TypeAlias, TypeVar, get_type_hints

Int8: TypeAlias = Annotated[int, "b"]
Uint8: TypeAlias = Annotated[int, "B"]
Int16: TypeAlias = Annotated[int, "h"]
Int32: TypeAlias = Annotated[int, "i"]
Uint32: TypeAlias = Annotated[int, "I"]
Int64: TypeAlias = Annotated[int, "q"]

_FIELDS = {code: Struct(">" + code) for code in "bBhiIq"}

Row = TypeVar("Row", bound=tuple[int, ...])


class Layout(Generic[Row]):
    """The consecutive fields of `row`. Methods raise struct.error for too few bytes."""

    __slots__ = ("_starts", "fields", "row", "size", "struct", "values")

    def __init__(self, row: type[Row]) -> None:
        self.row = row
        hints = get_type_hints(row, include_extras=True)
        self.fields: dict[str, str] = {name: hint.__metadata__[0] for name, hint in hints.items()}
        """Name -> code of `struct`, in order."""
        self.struct = Struct(">" + "".join(self.fields.values()))
        self.size = self.struct.size
        self.values: Callable[..., tuple[int, ...]] = self.struct.unpack_from
        """`values(buffer, position)`: as `read`, in half the time and without names."""
        self._starts: dict[str, int] = {}
        position = 0
        for name, code in self.fields.items():
            self._starts[name] = position
            position += _FIELDS[code].size

    def at(self, field: str) -> int:
        """Return the position of a field, in bytes from the first one."""
        return self._starts[field]

    def read(self, buffer: bytes | bytearray | memoryview, position: int = 0) -> Row:
        """Read all fields at `position`."""
        return tuple.__new__(self.row, self.values(buffer, position))

    def read_all(self, data: bytes | memoryview) -> Iterator[Row]:
        """Read all rows of `data`; a truncated last row is omitted."""
        make: Callable[..., Row] = tuple.__new__
        whole = memoryview(data)[: len(data) // self.size * self.size]
        return (make(self.row, values) for values in self.struct.iter_unpack(whole))

    def span(self, first: str, last: str) -> Struct:
        """Return a struct for the fields from `first` to `last`, to be used at `at(first)`."""
        names = list(self.fields)
        return Struct(">" + "".join(self.fields[name] for name in names[names.index(first) : names.index(last) + 1]))

    def reader(self, *fields: str) -> Callable[[bytes | bytearray | memoryview, int], tuple[int, ...]]:
        """Return a reader of these fields, given in their order, relative to a position."""
        codes, position = ">", 0
        for name in fields:
            codes += f"{self._starts[name] - position}x{self.fields[name]}"
            position = self._starts[name] + _FIELDS[self.fields[name]].size
        return Struct(codes).unpack_from

    def patch(self, buffer: bytearray | memoryview, **values: int) -> None:
        """Write these fields at the start of `buffer`."""
        for name, value in values.items():
            _FIELDS[self.fields[name]].pack_into(buffer, self._starts[name], value)
