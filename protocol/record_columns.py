"""Many records as columns of numbers: positions of keys and values in a buffer, without copies or decoding.

For code that handles millions of records, such as the log cleaner and readers of tables. A column is a `memoryview` of
machine integers: `numpy.frombuffer(columns.offsets, "i8")` is an array over the same memory.
"""

from __future__ import annotations

ROW_SIZE = 44
"""Bytes of a record in all columns: two of 8 bytes, seven of 4."""


class RecordColumns:
    """The first `count` rows are records of one buffer; positions are bytes in it, a size of -1 is null.

    All columns are in one block of memory, `block`, in order, each `capacity` long.
    """

    __slots__ = (
        "block",
        "capacity",
        "count",
        "ends",
        "header_starts",
        "key_sizes",
        "key_starts",
        "offsets",
        "starts",
        "timestamps",
        "value_sizes",
        "value_starts",
    )

    def __init__(self, capacity: int = 0) -> None:
        self.count = 0
        self._allocate(capacity)

    def _allocate(self, capacity: int) -> None:
        self.capacity = capacity
        self.block = bytearray(capacity * ROW_SIZE)
        view = memoryview(self.block)
        longs = [view[8 * i * capacity : 8 * (i + 1) * capacity].cast("q") for i in range(2)]
        view = view[16 * capacity :]
        ints = [view[4 * i * capacity : 4 * (i + 1) * capacity].cast("i") for i in range(7)]
        self.offsets, self.timestamps = longs
        self.starts, self.key_starts, self.key_sizes, self.value_starts, self.value_sizes = ints[:5]
        self.header_starts, self.ends = ints[5:]

    def clear(self) -> None:
        """Remove the rows; the memory is kept."""
        self.count = 0

    def make_room(self, rows: int) -> None:
        """Ensure that `rows` more fit."""
        if self.count + rows <= self.capacity:
            return
        before = self._columns()
        self._allocate(max(self.count + rows, self.capacity + self.capacity // 2))
        for old, new in zip(before, self._columns(), strict=True):
            new[: self.count] = old[: self.count]

    def _columns(self) -> tuple[memoryview, ...]:
        return (
            *(self.offsets, self.timestamps, self.starts, self.key_starts, self.key_sizes),
            *(self.value_starts, self.value_sizes, self.header_starts, self.ends),
        )

    def key(self, buffer: bytes | bytearray | memoryview, row: int) -> bytes | None:
        """Return the key of the record in `row` from the buffer of the columns."""
        size = self.key_sizes[row]
        start = self.key_starts[row]
        return None if size < 0 else bytes(buffer[start : start + size])
