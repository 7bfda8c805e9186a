"""Present and earlier names of the fields of structs, and decoded values in which fields have their present names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa


@dataclass(frozen=True)
class FieldNames:
    """Earlier names of a field, the latest ones first, and of the fields of its struct.

    `below` belongs to the struct that is the field itself, the element of its list, or the value of its map.
    """

    earlier: tuple[str, ...] = ()
    below: Mapping[str, FieldNames] = field(default_factory=dict)


Names: TypeAlias = Mapping[str, FieldNames]
"""The fields of a struct that had other names, or whose structs have such fields."""
_Rename: TypeAlias = Callable[[Any], Any]


def merge_names(one: Names, other: Names) -> Names:
    """Merge the earlier names of two schemas."""
    merged = dict(one)
    for name, names in other.items():
        known = merged.get(name, FieldNames())
        earlier = tuple(dict.fromkeys((*known.earlier, *names.earlier)))
        merged[name] = FieldNames(earlier, merge_names(known.below, names.below))
    return merged


def renamer(kind: Any, names: Names) -> _Rename | None:
    """Return the function that gives the fields of a decoded value of a type their present names; None if none of
    them had another one.
    """
    types = pa.types
    if not names:
        return None
    if types.is_list(kind):
        of_element = renamer(kind.value_type, names)
        return None if of_element is None else lambda value: [_present(of_element, one) for one in value]
    if types.is_map(kind):
        of_item = renamer(kind.item_type, names)
        return None if of_item is None else lambda value: {key: _present(of_item, value[key]) for key in value}
    if not types.is_struct(kind):
        return None
    fields = [
        (each.name, names[each.name].earlier, renamer(each.type, names[each.name].below))
        for each in kind
        if each.name in names
    ]

    def rename(value: Any) -> Any:
        for name, earlier, below in fields:
            if name not in value:
                old = next((one for one in earlier if one in value), None)
                if old is None:
                    continue
                value[name] = value.pop(old)
            if below is not None:
                value[name] = _present(below, value[name])
        return value

    return rename if fields else None


def _present(rename: _Rename, value: Any) -> Any:
    return None if value is None else rename(value)
