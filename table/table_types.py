"""Types of a table's columns: the types that all formats store, and the union of an old and a new schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

_UNSIGNED = {8: pa.int32(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}


def stored_type(kind: Any, *, has_times: bool = True) -> Any:
    """Return the type in which a column of this type is stored. Raises ValueError if no format has one.

    Integers are signed and have 32 or 64 bits, timestamps have microseconds. `has_times` is whether the format has a
    type for times of day; otherwise they are stored as a number of microseconds, as durations are in all formats.
    """
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([field.with_type(stored_type(field.type, has_times=has_times)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(stored_type(kind.value_type, has_times=has_times)))
    if types.is_map(kind):
        of_key = kind.key_field.with_type(stored_type(kind.key_type, has_times=has_times))
        return pa.map_(of_key, kind.item_field.with_type(stored_type(kind.item_type, has_times=has_times)))
    if types.is_unsigned_integer(kind):
        return _UNSIGNED[kind.bit_width]
    if types.is_signed_integer(kind):
        return pa.int64() if kind.bit_width == 64 else pa.int32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz is not None else None)
    if types.is_time(kind):
        return pa.time64("us") if has_times else pa.int64()
    if types.is_duration(kind):
        return pa.int64()
    if types.is_null(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_decimal(kind) and kind.precision > 38:
        raise ValueError(f"a table cannot hold {kind}, which has more than 38 digits")
    return kind


def stored_schema(schema: Any, *, has_times: bool = True) -> Any:
    """Return the stored types of all columns, nullable. Raises ValueError with the name of the column."""
    fields = []
    for field in schema:
        try:
            fields.append(pa.field(field.name, stored_type(field.type, has_times=has_times)))
        except ValueError as error:
            raise ValueError(f"column {field.name!r}: {error}") from None
    return pa.schema(fields)


def check_names(fields: Iterable[Any], engine: str) -> None:
    """Raise ValueError if names of columns, or of fields of one struct, differ in case only.

    Called for engines that do not distinguish them: DuckDB would rename the second one.
    """
    known: dict[str, str] = {}
    for field in fields:
        other = known.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise ValueError(
                f"columns {other!r} and {field.name!r} differ in case only, which {engine} does not distinguish. "
                "Rename the field, set a prefix for the columns of records, or use Iceberg or Parquet"
            )
        for kind in _inner_structs(field.type):
            check_names(kind, engine)


def _inner_structs(kind: Any) -> Iterator[Any]:
    types = pa.types
    if types.is_struct(kind):
        yield kind
    elif types.is_list(kind):
        yield from _inner_structs(kind.value_type)
    elif types.is_map(kind):
        yield from _inner_structs(kind.key_type)
        yield from _inner_structs(kind.item_type)


def merge_schemas(old: Any, new: Any) -> Any:
    """Return the columns of both, the old ones first, with the wider type. Raises ValueError with the column's name."""
    fields = {field.name: field for field in old}
    for field in new:
        known = fields.get(field.name)
        if known is None:
            fields[field.name] = field
            continue
        try:
            fields[field.name] = known.with_type(_merge_types(known.type, field.type))
        except ValueError as error:
            raise ValueError(f"column {field.name!r}: {error}") from None
    return pa.schema(list(fields.values()))


def _merge_types(old: Any, new: Any) -> Any:
    types = pa.types
    if old == new:
        return old
    if types.is_struct(old) and types.is_struct(new):
        return pa.struct(list(merge_schemas(pa.schema(list(old)), pa.schema(list(new)))))
    if types.is_list(old) and types.is_list(new):
        return pa.list_(_merge_types(old.value_type, new.value_type))
    if types.is_map(old) and types.is_map(new) and old.key_type == new.key_type:
        return pa.map_(old.key_type, _merge_types(old.item_type, new.item_type))
    both_integers = types.is_signed_integer(old) and types.is_signed_integer(new)
    if both_integers or (types.is_floating(old) and types.is_floating(new)):
        return max(old, new, key=lambda kind: kind.bit_width)
    if types.is_decimal(old) and types.is_decimal(new) and old.scale == new.scale:
        return max(old, new, key=lambda kind: kind.precision)
    raise ValueError(f"the table has {old}, and the schema of the topic {new}")


def fit_batch(batch: Any, schema: Any) -> Any:
    """Return the batch with these columns and types; columns that it does not have are null.

    Raises pyarrow.ArrowInvalid for a value that does not fit.
    """
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        arrays.append(pa.nulls(batch.num_rows, field.type) if index < 0 else _fit(batch.column(index), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fit(array: Any, kind: Any) -> Any:
    """Cast an array; in structs, fields are found by name, and missing ones are null."""
    types = pa.types
    if array.type == kind:
        return array
    if types.is_struct(kind):
        fields = [
            pa.nulls(len(array), field.type)
            if array.type.get_field_index(field.name) < 0
            else _fit(array.field(field.name), field.type)
            for field in kind
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=mask)
    if types.is_list(kind) and _has_structs(kind):
        values = _fit(array.flatten(), kind.value_type)
        lengths = array.value_lengths().fill_null(0)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pa.compute.cumulative_sum(lengths).cast(pa.int32())])
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=mask)
    if types.is_duration(array.type):
        return array.cast(pa.duration("us")).cast(pa.int64())
    if types.is_time(array.type) and types.is_integer(kind):
        return array.cast(pa.time64("us")).cast(pa.int64())
    return array.cast(kind)


def _has_structs(kind: Any) -> bool:
    return pa.types.is_struct(kind.value_type) or (pa.types.is_list(kind.value_type) and _has_structs(kind.value_type))
