"""Columns of records as Arrow arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from .record_table import (
    Buffer,
    HeaderTable,
    Ints,
    Slices,
)

_INLINE = 12
"""Maximum size of a byte string that an Arrow view contains itself."""
_VIEW = np.dtype([("size", np.int32), ("inline", f"V{_INLINE}")])
_FAR_VIEW = np.dtype([("size", np.int32), ("prefix", np.int32), ("buffer", np.int32), ("start", np.int32)])
"""Layouts of a view: with the string inside, and with its position in the buffer."""


def binary_array(data: Buffer, slices: Slices) -> Any:
    """Return the byte strings as a `binary` array."""
    sizes = slices.sizes
    least, most = (int(sizes.min()), int(sizes.max())) if len(sizes) else (0, 0)
    if most < 0:
        return pa.nulls(len(sizes), pa.binary())
    if least == most > 0:
        return _of_one_size(data, slices.starts, most)
    return _of_any_size(data, slices, least, most)


def _of_one_size(data: Buffer, starts: Ints, size: int) -> Any:
    """Gather strings of equal length with numpy, several times as fast."""
    count = len(starts)
    found = _windows(data, size)[starts]
    ends: Ints = np.arange(count + 1, dtype=np.int32) * size
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(found.view(np.uint8))])


def _of_any_size(data: Buffer, slices: Slices, least: int, most: int) -> Any:
    """Build views over the buffer, which Arrow's own loop then copies together.

    Arrow compares views by a prefix, which is omitted here, since these views exist only until that copy.
    """
    count = len(slices.sizes)
    views: Ints = np.zeros(count, _VIEW)
    views["size"] = np.maximum(slices.sizes, 0) if least < 0 else slices.sizes
    if most <= _INLINE:
        views["inline"] = _windows(data, _INLINE)[slices.starts]
    else:
        views.view(_FAR_VIEW)["start"] = slices.starts
        short = np.flatnonzero(slices.sizes <= _INLINE)
        views["inline"][short] = _windows(data, _INLINE)[slices.starts[short]]
    bitmap = pa.py_buffer(np.packbits(slices.sizes >= 0, bitorder="little")) if least < 0 else None
    array = pa.Array.from_buffers(pa.binary_view(), count, [bitmap, pa.py_buffer(views), pa.py_buffer(data)])
    return array.cast(pa.binary())


def _windows(data: Buffer, size: int) -> Any:
    """Return all ranges with this number of bytes."""
    return np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))


def text_array(binary: Any) -> Any:
    """Return bytes as text; bytes that are not UTF-8 become replacement characters, as in Java's headers."""
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if b is None else b.decode("utf-8", "replace") for b in binary.to_pylist()], pa.string())


def int_array(values: Ints, kind: Any) -> Any:
    """Return numbers, narrowed if necessary."""
    return _number_array(values.astype(kind.to_pandas_dtype(), copy=False), kind)


def time_array(milliseconds: Ints, kind: Any) -> Any:
    """Return times in milliseconds or microseconds, of which no time may be beyond `MAX_MILLISECONDS`, where 64 bits
    end.
    """
    return _number_array(milliseconds if kind.unit == "ms" else milliseconds * 1000, kind)


MAX_MILLISECONDS = (2**63 - 1) // 1000


def find_unfit_times(milliseconds: Ints) -> Ints:
    """Return the rows whose time in microseconds has more than 64 bits, as a time in nanoseconds by mistake has."""
    if not len(milliseconds) or (
        int(milliseconds.max()) <= MAX_MILLISECONDS and int(milliseconds.min()) >= -MAX_MILLISECONDS
    ):
        return _NO_ROWS
    return np.flatnonzero((milliseconds > MAX_MILLISECONDS) | (milliseconds < -MAX_MILLISECONDS))


_NO_ROWS: Ints = np.zeros(0, np.int64)


def _number_array(values: Ints, kind: Any) -> Any:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def constant_array(value: Any, count: int, kind: Any) -> Any:
    """Repeat a value."""
    return pa.repeat(pa.scalar(value, type=kind), count)


def header_array(data: Buffer, heads: HeaderTable, kind: Any) -> Any:
    """Build `array<struct<key string, value binary>>`; null for a record without headers, as in Spark's connector."""
    counts = heads.counts
    offsets: Ints = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    pairs = pa.StructArray.from_arrays(
        [text_array(binary_array(data, heads.keys)), binary_array(data, heads.values)],
        fields=list(kind.value_type),
    )
    bitmap = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    return pa.Array.from_buffers(kind, len(counts), [bitmap, pa.py_buffer(offsets)], children=[pairs])
