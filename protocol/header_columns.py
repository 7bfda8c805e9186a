"""The headers of many records as columns of numbers, in addition to the columns of the records.

`header_columns_here` has a compiled twin; this module is the specification.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from .native import native
from .record_codec import locate_headers
from .record_columns import RecordColumns


class HeaderColumns(NamedTuple):
    """All headers of some records, in order; positions are bytes in their buffer, a size of -1 is null.

    `counts` is the number per record; the other columns have a row for each header.
    """

    counts: memoryview
    key_starts: memoryview
    key_sizes: memoryview
    value_starts: memoryview
    value_sizes: memoryview


def header_columns(buffer: bytes | memoryview, records: RecordColumns, *, use_native: bool = True) -> HeaderColumns:
    """Return the headers of the records in a buffer. Raises ProtocolError unless they end with their records."""
    if use_native and native is not None:
        # Compiled code only reports that headers are invalid: the reason is determined below.
        found = native.header_columns(buffer, (records.block, records.capacity, 0, records.count))
        if found is not None:
            return HeaderColumns(*(memoryview(column).cast("i") for column in found))
    return header_columns_here(buffer, records)


def header_columns_here(buffer: bytes | memoryview, records: RecordColumns) -> HeaderColumns:
    """`header_columns` without compiled code."""
    counts, *columns = (array("i") for _ in HeaderColumns._fields)
    for row in range(records.count):
        headers = list(locate_headers(buffer, records.header_starts[row], records.ends[row]))
        counts.append(len(headers))
        for header in headers:
            for column, number in zip(columns, header, strict=True):
                column.append(number)
    return HeaderColumns(*(memoryview(column) for column in (counts, *columns)))
