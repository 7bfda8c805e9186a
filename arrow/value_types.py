"""How keys and values become columns: the formats that a user names, and the types of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from .value_formats import ValueFormat

Format: TypeAlias = Any
"""`binary`, `string`, or an object of this module."""


class ColumnFormat(NamedTuple):
    """The type of a column, and its decoding; None for bytes as they are."""

    type: Any
    format: ValueFormat | None


def format_of(given: Format, column: str, topics: Sequence[str]) -> ColumnFormat:
    """Return the format of a column. Raises ValueError."""
    if given == "binary":
        return ColumnFormat(pa.binary(), None)
    if given == "string":
        return ColumnFormat(pa.string(), ValueFormat("string"))
    raise ValueError(f"{column}: unknown format {given!r}. Expected binary or string")
