"""Lazy frames of Polars over streams of records: the plan of a query narrows the read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple, cast

import polars as pl
from polars.io.plugins import register_io_source

from .offset_range import OffsetRange
from .record_stream import RecordStream

if TYPE_CHECKING:
    from polars._typing import ClosedInterval

_CLOSED: tuple[ClosedInterval, ...] = ("both", "left", "right", "none")
_LEAST, _MOST = -(2**63), 2**63 - 1
_PLACES = {"topic": pl.String, "partition": pl.Int32}
_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
_TIME_TYPES = (pl.Datetime("us", "UTC"), pl.Datetime("ns", "UTC"))
"""The types to which Polars casts the column `timestamp` for a comparison."""


def scan_barnabas(stream: RecordStream) -> pl.LazyFrame:
    """Return a lazy frame of the records of `read_topic` or `read_folder`.

    Only the columns of the query are decoded. Conditions on `partition`, `topic`, `offset` and a lower bound of
    `timestamp` narrow the read as the filters of a `RecordStream` do, and a row limit ends it. Each `collect` reads
    again, up to the end that the stream has.
    """

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        names = stream.schema.names if with_columns is None else with_columns
        filtered = [] if predicate is None else predicate.meta.root_names()
        bounds = None if predicate is None else PredicateBounds(predicate)
        left = _MOST if n_rows is None else n_rows
        if left == 0:
            return
        for batch in stream.read(list(dict.fromkeys((*names, *filtered))), bounds=bounds, limit=n_rows):
            # The limit applies to the rows before the predicate, as in the readers of Polars.
            frame = cast(pl.DataFrame, pl.from_arrow(batch)).head(left)
            left -= frame.height
            yield (frame if predicate is None else frame.filter(predicate)).select(names)
            if left == 0:
                return

    schema = cast(pl.DataFrame, pl.from_arrow(stream.schema.empty_table())).schema
    return register_io_source(read, schema=schema, is_pure=True)


class _Interval(NamedTuple):
    """The numbers from `low` to `high`, including both."""

    low: int
    high: int


_EVERYTHING = _Interval(_LEAST, _MOST)


class PredicateBounds:
    """The bounds that a predicate sets for a read, as `FilterBounds` for filters of pyarrow.

    Polars has no interface that returns the operator of an expression: it returns the operands, and compares
    expressions. An expression is therefore recognized as `a & b`, for example, if it equals the expression that this
    operator returns for its operands. Expressions that are not recognized do not narrow the read; the predicate is
    evaluated in any case.
    """

    def __init__(self, predicate: pl.Expr) -> None:
        self._terms = list(_conjuncts(predicate))

    def narrowed(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges without partitions and offsets for which the predicate is false."""
        places = pl.DataFrame([tuple(r.partition) for r in ranges], schema=_PLACES, orient="row").with_row_index("row")
        low, high = _EVERYTHING
        for term in self._terms:
            if set(term.meta.root_names()) <= set(_PLACES):
                places = places.filter(term)
            found = _interval(term, "offset")
            low, high = max(low, found.low), min(high, found.high)
        kept = [ranges[row] for row in places["row"]]
        kept = [replace(r, start=max(r.start, low), end=min(r.end, high + 1)) for r in kept]
        return [r for r in kept if r.records > 0]

    def earliest_time(self) -> int:
        """Return the time in ms before which the predicate is false for all records; -1 if there is none."""
        return max(-1, *(_interval(term, "timestamp").low for term in self._terms))


def _conjuncts(expression: pl.Expr) -> Iterator[pl.Expr]:
    """Yield the conditions that must all be true."""
    operands = expression.meta.pop()
    for a, b in _both_ways(operands):
        if (a & b).meta == expression:
            yield from _conjuncts(a)
            yield from _conjuncts(b)
            return
    yield expression


def _both_ways(operands: Sequence[pl.Expr]) -> Sequence[tuple[pl.Expr, pl.Expr]]:
    """Return two operands in both orders; `pop` does not document the order."""
    return ((operands[0], operands[1]), (operands[1], operands[0])) if len(operands) == 2 else ()


def _interval(expression: pl.Expr, column: str) -> _Interval:
    """Return an interval outside of which the expression is false; times are in milliseconds."""
    operands = expression.meta.pop()
    if len(operands) == 3:
        return _between(expression, operands, column)
    for a, b in _both_ways(operands):
        if (a & b).meta == expression:
            one, other = _interval(a, column), _interval(b, column)
            return _Interval(max(one.low, other.low), min(one.high, other.high))
        if (a | b).meta == expression:
            one, other = _interval(a, column), _interval(b, column)
            return _Interval(min(one.low, other.low), max(one.high, other.high))
        if _is_column(a, column) and (values := _values(b)):
            return _compared(expression, a, b, values)
    return _EVERYTHING


def _between(expression: pl.Expr, operands: Sequence[pl.Expr], column: str) -> _Interval:
    """Return the interval of `is_between` with two constants."""
    for of, a, b in permutations(operands):
        if _is_column(of, column) and any(expression.meta == of.is_between(a, b, closed) for closed in _CLOSED):
            low, high = _values(a), _values(b)
            return _Interval(min(low, default=_LEAST), max(high, default=_MOST))
    return _EVERYTHING


def _compared(expression: pl.Expr, column: pl.Expr, constant: pl.Expr, values: Sequence[int]) -> _Interval:
    """Return the interval of a comparison of a column with a constant, which has these values."""
    low, high = min(values), max(values)
    if expression.meta == column.is_in(constant):
        return _Interval(low, high)
    if len(values) > 1:
        return _EVERYTHING
    for comparison, interval in (
        (column == constant, _Interval(low, high)),
        (constant == column, _Interval(low, high)),
        (column >= constant, _Interval(low, _MOST)),
        (constant <= column, _Interval(low, _MOST)),
        # Not `low + 1`: a time with a fraction of a millisecond has been rounded up.
        (column > constant, _Interval(low, _MOST)),
        (constant < column, _Interval(low, _MOST)),
        (column <= constant, _Interval(_LEAST, high)),
        (constant >= column, _Interval(_LEAST, high)),
        (column < constant, _Interval(_LEAST, high)),
        (constant > column, _Interval(_LEAST, high)),
    ):
        if expression.meta == comparison:
            return interval
    return _EVERYTHING


def _is_column(expression: pl.Expr, column: str) -> bool:
    """Return whether the expression is the column, or for times the column in another unit."""
    if expression.meta == pl.col(column):
        return True
    casts = (pl.col(column).cast(kind, strict=strict) for kind in _TIME_TYPES for strict in (True, False))
    return column == "timestamp" and any(expression.meta == each for each in casts)


def _values(expression: pl.Expr) -> list[int]:
    """Return the values of a constant as numbers, times in milliseconds; an empty list if a value has another type."""
    if expression.meta.root_names():
        return []
    try:
        values = pl.select(expression).to_series()
        if values.dtype == pl.List:
            values = values.explode()
        found = values.to_list()
    except pl.exceptions.PolarsError:
        return []
    numbers = [_number(value) for value in found if value is not None]
    return [] if None in numbers else [number for number in numbers if number is not None]


def _number(value: object) -> int | None:
    if type(value) is int:
        return value
    if isinstance(value, datetime) and value.tzinfo is not None:
        return -((_EPOCH - value) // _MILLISECOND)  # the first millisecond at or after it
    return None
