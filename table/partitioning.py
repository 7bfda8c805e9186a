"""Partitions of a table by a column or by the time in a column, such as `day(timestamp)`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import compute

UNITS = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
"""Units of time, and the format of their values."""
_FIRST, _LAST = pa.scalar(-62_135_596_800, pa.timestamp("s")), pa.scalar(253_402_300_799, pa.timestamp("s"))
"""The first second of the year 1, and the last one of the year 9999. Later years have no format that engines share."""
_FIELD = re.compile(rf"(?:({'|'.join(UNITS)})\((\w+)\)|(\w+))")


class PartitionTimeError(ValueError):
    """A time of a row that no partition can have."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True)
class PartitionField:
    """A column, and the unit of time to which its values are truncated; None for the values themselves.

    `alias` is the name of the partition if it is not the default name.
    """

    source: str
    unit: str | None = None
    alias: str | None = None

    @property
    def name(self) -> str:
        """Return the name of the partition: `timestamp_day`, or that of the column."""
        if self.alias is not None:
            return self.alias
        return self.source if self.unit is None else f"{self.source}_{self.unit}"

    def check(self, schema: Any) -> None:
        """Raise ValueError unless the schema has such a column."""
        index = schema.get_field_index(self.source)
        if index < 0:
            raise ValueError(
                f"partition by {self.source!r}: the table has no such column. It has {', '.join(schema.names)}"
            )
        kind = schema.field(index).type
        if self.unit is not None and not (
            pa.types.is_timestamp(kind) or (pa.types.is_date(kind) and self.unit != "hour")
        ):
            raise ValueError(f"partition by {self.unit}({self.source}): the column is not a time, but {kind}")
        if self.unit is None and not (
            pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind)
        ):
            raise ValueError(f"partition by {self.source!r}: a column of type {kind} is not supported")

    def values(self, array: Any) -> Any:
        """Return the value of each row: of the column, or the text of the time such as 2024-05-01.

        Raises PartitionTimeError for a time before the year 1 or after the year 9999.
        """
        if self.unit is None:
            return array
        if pa.types.is_date(array.type):
            array = array.cast(pa.timestamp("s"))
        # Seconds: the format of a fraction of a second would contain it.
        floor = compute.floor_temporal(array, unit=self.unit)
        seconds = floor.cast(pa.timestamp("s", tz=floor.type.tz), safe=False)
        self._check_years(seconds.cast(pa.timestamp("s")))
        return compute.strftime(seconds, format=UNITS[self.unit])

    def _check_years(self, seconds: Any) -> None:
        is_unfit = compute.or_(compute.less(seconds, _FIRST), compute.greater(seconds, _LAST))
        row = compute.index(is_unfit, pa.scalar(True)).as_py()
        if row >= 0:
            raise PartitionTimeError(
                row,
                f"partition by {self.unit}({self.source}): the time is {seconds[row].value} s, which is not in the "
                "years 1 to 9999",
            )


def parse_partitioning(text: str | None) -> tuple[PartitionField, ...]:
    """Parse fields separated by commas, such as `day(timestamp),carrier`. Raises ValueError."""
    found = []
    for part in (text or "").split(","):
        part = part.strip()
        if not part:
            continue
        match = _FIELD.fullmatch(part)
        if match is None:
            raise ValueError(
                f"partition by {part!r}: expected a column, or year(…), month(…), day(…) or hour(…) of a column"
            )
        found.append(PartitionField(match[2] or match[3], match[1]))
    if len({one.name for one in found}) < len(found):
        raise ValueError(f"partition by {text!r}: a field is repeated")
    return tuple(found)


def partition_field_of(name: str, schema: Any) -> PartitionField:
    """Return the field of a partition by its default name: a unit of a time, as `timestamp_day`, or a column."""
    source, _, unit = name.rpartition("_")
    is_text = name not in schema.names or pa.types.is_string(schema.field(name).type)
    is_time = unit in UNITS and source in schema.names and pa.types.is_temporal(schema.field(source).type)
    return PartitionField(source, unit) if is_text and is_time else PartitionField(name)


def split_batch(batch: Any, fields: Sequence[PartitionField]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the rows of each partition with its values; one pair for a table without partitions."""
    if not batch.num_rows:
        return
    if not fields:
        yield (), batch
        return
    columns = {str(i): field.values(batch.column(field.source)) for i, field in enumerate(fields)}
    values = pa.table(columns)
    found = values.group_by(list(columns), use_threads=False).aggregate([]).to_pylist()
    if len(found) == 1:
        yield tuple(found[0][name] for name in columns), batch
        return
    for one in found:
        mask = None
        for name in columns:
            value = pa.scalar(one[name], values[name].type)
            is_it = compute.is_null(values[name]) if not value.is_valid else compute.equal(values[name], value)
            is_it = compute.fill_null(is_it, False)
            mask = is_it if mask is None else compute.and_(mask, is_it)
        assert mask is not None
        yield tuple(one[name] for name in columns), batch.filter(mask.combine_chunks())
