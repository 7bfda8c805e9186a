"""Columns and fields of a table that have another name in the latest schema of a topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from ..arrow.field_names import FieldNames, Names


class ColumnRename(NamedTuple):
    """The new name of a column, or of a field of a struct by its path of present names.

    In the path, `element` leads to the elements of a list, and `value` to the values of a map, as in Iceberg.
    """

    path: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return f"column {'.'.join(self.path)!r} is named {self.name!r} in the schema of the topic"


def find_renames(path: tuple[str, ...], old: Any, new: Any, names: Names) -> Iterator[ColumnRename]:
    """Yield the renames between a type of the table and the type of the latest schema, inner fields first.

    A field is renamed only if the table does not have its new name, and the schema does not have its old name. If two
    new fields have the same old name, the first one gets it.
    """
    types = pa.types
    if types.is_list(old) and types.is_list(new):
        yield from find_renames((*path, "element"), old.value_type, new.value_type, names)
    if types.is_map(old) and types.is_map(new):
        yield from find_renames((*path, "value"), old.item_type, new.item_type, names)
    if not (types.is_struct(old) and types.is_struct(new)):
        return
    known, present = {one.name: one.type for one in old}, {one.name for one in new}
    taken = set[str]()
    for one in new:
        field = names.get(one.name, FieldNames())
        former = one.name
        if one.name not in known:
            free = (name for name in field.earlier if name in known and name not in present and name not in taken)
            former = next(free, "")
            if not former:
                continue
            taken.add(former)
        yield from find_renames((*path, former), known[former], one.type, field.below)
        if former != one.name:
            yield ColumnRename((*path, former), one.name)
