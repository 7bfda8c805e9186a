"""The rows of a long list that one response contains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Self, TypeVar

DEFAULT_ROWS = 1000
MAX_ROWS = 100_000
T = TypeVar("T")


class RowLimit(NamedTuple):
    """The parameters `limit` and `search` of a request."""

    rows: int
    search: str

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> Self:
        """Parse the parameters of a request. Raises ValueError."""
        text = parameters.get("limit", str(DEFAULT_ROWS))
        if not text.isdecimal() or len(text) > len(str(MAX_ROWS)) or not 1 <= int(text) <= MAX_ROWS:
            raise ValueError(f"limit: expected a number from 1 to {MAX_ROWS}")
        return cls(int(text), parameters.get("search", "").lower())

    def matching(self, rows: Sequence[T], name: Callable[[T], str]) -> Sequence[T]:
        """Return the rows whose names contain the search, in upper or lower case."""
        return [row for row in rows if self.search in name(row).lower()] if self.search else rows
