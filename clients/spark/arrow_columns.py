"""Columns of records as Arrow arrays of exactly the types that Spark asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from .record_table import Buffer, HeaderTable, Ints, Slices

_INLINE = 12
"""Byte strings up to this size stand inside an Arrow view itself."""
_VIEW = np.dtype([("size", np.int32), ("inline", f"V{_INLINE}")])
_FAR_VIEW = np.dtype([("size", np.int32), ("prefix", np.int32), ("buffer", np.int32), ("start", np.int32)])
"""A view of a string that is inside it, and of one that is in the buffer."""


def binary_array(data: Buffer, slices: Slices) -> Any:
    """The byte strings as a `binary` array."""
    sizes = slices.sizes
    least, most = (int(sizes.min()), int(sizes.max())) if len(sizes) else (0, 0)
    if most < 0:
        return pa.nulls(len(sizes), pa.binary())
    if least == most > 0:
        return _of_one_size(data, slices.starts, most)
    return _of_any_size(data, slices, least, most)


def _of_one_size(data: Buffer, starts: Ints, size: int) -> Any:
    """Strings as long as each other, which numpy gathers several times as fast."""
    count = len(starts)
    found = _windows(data, size)[starts]
    ends: Ints = np.arange(count + 1, dtype=np.int32) * size
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(found.view(np.uint8))])


def _of_any_size(data: Buffer, slices: Slices, least: int, most: int) -> Any:
    """Built as views over the buffer, which Arrow's own loop then copies together.

    Arrow compares views by a prefix that is left out here, since these views live no longer than that copy.
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
    """All stretches of so many bytes."""
    return np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))


def text_array(binary: Any) -> Any:
    """Bytes as text; what is no UTF-8 gets replacement characters, as Spark's own cast shows it."""
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if b is None else b.decode("utf-8", "replace") for b in binary.to_pylist()], pa.string())


def int_array(values: Ints, kind: Any) -> Any:
    """Numbers as they are, or narrower."""
    return _number_array(values.astype(kind.to_pandas_dtype(), copy=False), kind)


def time_array(milliseconds: Ints, kind: Any) -> Any:
    """Times in Spark's microseconds."""
    return _number_array(milliseconds * 1000, kind)


def _number_array(values: Ints, kind: Any) -> Any:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def constant_array(value: Any, count: int, kind: Any) -> Any:
    """The same value so many times."""
    return pa.repeat(pa.scalar(value, type=kind), count)


def header_array(data: Buffer, heads: HeaderTable, kind: Any) -> Any:
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
