"""The ends of a read as users write them: offsets, times, durations, distances from an end, committed offsets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from ..protocol.special_timestamps import EARLIEST, LATEST
from ..protocol.topic_partition import TopicPartition

Position: TypeAlias = "int | str | datetime | timedelta | Mapping[int, int | str | datetime | timedelta]"
"""An offset; a time; a duration before now; `earliest`, `latest`, `earliest+100`, `latest-100`, a time in ISO 8601, a
duration before now such as `-15m`, `committed:GROUP`; or one of these by partition, with none for other partitions.
"""
_AROUND = re.compile(r"(earliest|latest)(?:\s*([+-])\s*(\d+))?")
_DURATION = re.compile(r"-\s*(\d+)\s*(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_COMMITTED = "committed:"
_EXPECTED = "an offset, a time, a duration such as -15m, earliest, latest, latest-100, or committed:GROUP"


@dataclass(frozen=True)
class ParsedPosition:
    """One end of the read of a partition: `offset`, or if it is None the offset of a timestamp in ms or of a special
    timestamp, plus `distance`; or the committed offset of `group`.
    """

    offset: int | None = None
    timestamp: int = 0
    distance: int = 0
    group: str | None = None


@dataclass(frozen=True)
class OffsetLookups:
    """The questions that an end of a read may need."""

    by_time: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]
    """The first offset at or after a time in ms, -1 without one; or the offset of a special timestamp."""
    committed: Callable[[str, list[TopicPartition]], Mapping[TopicPartition, int]]
    """Committed offsets of a group, as far as it has some."""


def parse_position(value: object, name: str, now_ms: Callable[[], int]) -> ParsedPosition:
    """Parse one position of the parameter `name`. Raises ValueError."""
    if isinstance(value, bool):
        raise ValueError(f"{name}: invalid value {value!r}. Expected {_EXPECTED}")
    if isinstance(value, int):
        if not 0 <= value < 2**63:
            raise ValueError(f"{name}: {value} is not an offset. Expected {_EXPECTED}")
        return ParsedPosition(offset=value)
    if isinstance(value, datetime):
        return ParsedPosition(timestamp=_milliseconds(value, name))
    if isinstance(value, timedelta):
        return ParsedPosition(timestamp=max(0, now_ms() - value // timedelta(milliseconds=1)))
    if isinstance(value, str):
        return _parse_text(value.strip(), name, now_ms)
    raise ValueError(f"{name}: invalid value {value!r}. Expected {_EXPECTED}")


def _parse_text(text: str, name: str, now_ms: Callable[[], int]) -> ParsedPosition:
    if (around := _AROUND.fullmatch(text)) is not None:
        distance = int(around[3] or 0) * (-1 if around[2] == "-" else 1)
        return ParsedPosition(timestamp=EARLIEST if around[1] == "earliest" else LATEST, distance=distance)
    if (duration := _DURATION.fullmatch(text)) is not None:
        return ParsedPosition(timestamp=max(0, now_ms() - int(duration[1]) * _UNIT_MS[duration[2]]))
    if text.startswith(_COMMITTED) and len(text) > len(_COMMITTED):
        return ParsedPosition(group=text.removeprefix(_COMMITTED))
    if text.isdecimal():
        return parse_position(int(text), name, now_ms)
    try:
        return ParsedPosition(timestamp=_milliseconds(datetime.fromisoformat(text), name))
    except ValueError:
        raise ValueError(f"{name}: invalid value {text!r}. Expected {_EXPECTED}") from None


def _milliseconds(time: datetime, name: str) -> int:
    if time.tzinfo is None:
        raise ValueError(f"{name}: {time} has no time zone. Set tzinfo, for example to datetime.UTC")
    # A record at the time itself is at or after it; a fraction of a millisecond is rounded up for the same reason.
    milliseconds = -(-round(time.timestamp() * 1_000_000) // 1000)
    if milliseconds < 0:
        raise ValueError(f"{name}: {time} is before 1970")
    return milliseconds


def resolve_positions(
    position: Position,
    partitions: Iterable[TopicPartition],
    lookups: OffsetLookups,
    *,
    name: str,
    default: str,
    now_ms: Callable[[], int],
) -> dict[TopicPartition, int]:
    """Return the offset of each partition; `default` is the position without a committed offset or a given partition.

    A time after the last record is the end of the partition. Raises ValueError, and the errors of the lookups.
    """
    wanted = list(partitions)
    now = now_ms()  # one time for all partitions
    places: dict[TopicPartition, ParsedPosition] = {}
    for tp in wanted:
        given = position
        if isinstance(position, Mapping):
            given = position.get(tp.partition, default)
        places[tp] = parse_position(given, name, lambda: now)
    if isinstance(position, Mapping):
        extra = set(position) - {tp.partition for tp in wanted}
        if extra:
            raise ValueError(f"{name}: partition {min(extra)} is not one of the partitions to read")
    found: dict[TopicPartition, int] = {}
    for group in {place.group for place in places.values() if place.group is not None}:
        of_group = [tp for tp, place in places.items() if place.group == group]
        found.update(lookups.committed(group, of_group))
    uncommitted = [tp for tp, place in places.items() if place.group is not None and tp not in found]
    for tp in uncommitted:
        places[tp] = parse_position(default, name, lambda: now)
    asked = {tp: place.timestamp for tp, place in places.items() if place.offset is None and tp not in found}
    found.update(lookups.by_time(asked) if asked else {})
    late = [tp for tp in asked if found[tp] < 0]
    found.update(lookups.by_time(dict.fromkeys(late, LATEST)) if late else {})
    return {
        tp: place.offset if place.offset is not None else max(0, found[tp] + place.distance)
        for tp, place in places.items()
    }
