"""Columns of records as Arrow arrays of exactly the types that Spark asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from .record_columns import Buffer, HeaderColumns, Ints, Slices

_INLINE = 12
"""Byte strings up to this size stand inside an Arrow view itself."""


def binary_array(data: Buffer, slices: Slices) -> Any:
    """The byte strings as a `binary` array.

    Built as views over the buffer, which Arrow's own loop then copies together. Arrow compares views by a prefix that
    is left out here, since these views live no longer than that copy.
    """
    count = len(slices.sizes)
    sizes = np.maximum(slices.sizes, 0)
    views: Ints = np.zeros((count, 4), np.int32)
    views[:, 0] = sizes
    views[:, 3] = slices.starts
    short = np.flatnonzero(sizes <= _INLINE)
    if short.size:
        windows = np.ndarray((len(data) - _INLINE + 1,), f"V{_INLINE}", data, strides=(1,))
        inline: Ints = views.view(np.uint8).reshape(count, 16)
        inline[short, 4:] = windows[slices.starts[short]].view(np.uint8).reshape(len(short), _INLINE)
    valid = slices.sizes >= 0
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    array = pa.Array.from_buffers(pa.binary_view(), count, [bitmap, pa.py_buffer(views), pa.py_buffer(data)])
    return array.cast(pa.binary())


def text_array(binary: Any) -> Any:
    """Bytes as text; what is no UTF-8 gets replacement characters, as Spark's own cast shows it."""
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if b is None else b.decode("utf-8", "replace") for b in binary.to_pylist()], pa.string())


def int_array(values: Ints, kind: Any) -> Any:
    """Numbers as they are, or narrower."""
    return pa.array(values, type=pa.int64()).cast(kind)


def time_array(milliseconds: Ints, kind: Any) -> Any:
    """Times in Spark's microseconds."""
    return pa.array(milliseconds * 1000, type=pa.int64()).cast(kind)


def constant_array(value: Any, count: int, kind: Any) -> Any:
    """The same value so many times."""
    return pa.repeat(pa.scalar(value, type=kind), count)


def header_array(data: Buffer, heads: HeaderColumns, kind: Any) -> Any:
    """`array<struct<key string, value binary>>`; null for a record without headers, as Spark's connector has it."""
    counts = heads.counts
    offsets: Ints = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    pairs = pa.StructArray.from_arrays(
        [text_array(binary_array(data, heads.keys)), binary_array(data, heads.values)],
        fields=list(kind.value_type),
    )
    bitmap = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    return pa.Array.from_buffers(kind, len(counts), [bitmap, pa.py_buffer(offsets)], children=[pairs])
