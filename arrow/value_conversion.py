"""Conversion of decoded values to the types of a user's schema, by the rules of Spark's `from_json` and `from_avro`.

A value that does not fit its type is an error: values are not truncated, wrapped around or rounded to a whole number.
That is stricter than `from_json`, which wraps: 128 as a tinyint is -128 there, and so are seconds too large for a
timestamp.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa

Convert = Callable[[Any], Any]
"""Converts a parsed value, not None, to a value that Arrow accepts for the type. Raises any exception."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MICROS_PER_S = 1_000_000
_LARGEST_FLOAT32 = 3.4028235677973366e38
_SPECIAL_FLOATS = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "+INF": math.inf,
    "-Infinity": -math.inf,
    "-INF": -math.inf,
}
_MOST_PRECISE = Context(prec=76, rounding=ROUND_HALF_UP)
"""A precision above that of all of Spark's decimals: longer numbers do not fit, and use no memory."""
_MEMBER = re.compile(r"member\d+")
_DAY = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?", re.ASCII)
_TIME = re.compile(r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?", re.ASCII)
_ZONE_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?", re.ASCII)


class JsonNumber(str):
    """A number in its original JSON text, so that no digit is lost before its type is known."""

    __slots__ = ()


def parse_json(document: str) -> Any:
    """Parse the first value of a JSON document; as in `from_json`, None for a blank one, and the rest is ignored.

    Raises ValueError, RecursionError.
    """
    text = document.lstrip(" \t\r\n")
    return _JSON.raw_decode(text)[0] if text else None


_JSON = json.JSONDecoder(parse_int=JsonNumber, parse_float=JsonNumber)


def converter(kind: Any) -> Convert:
    """Return the conversion to an Arrow type. Raises ValueError for an unsupported type."""
    types = pa.types
    if types.is_struct(kind):
        return _struct(kind)
    if types.is_list(kind):
        return _list(converter(kind.value_type))
    if types.is_map(kind):
        return _map(converter(kind.key_type), converter(kind.item_type))
    if types.is_integer(kind):
        return _whole(kind.bit_width, is_signed=types.is_signed_integer(kind))
    if types.is_floating(kind) and kind.bit_width >= 32:
        return _floating(kind.bit_width)
    if types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if types.is_timestamp(kind) and kind.unit == "us":
        return _zoned if kind.tz is not None else _unzoned
    for is_kind, convert in (
        (types.is_string, _text),
        (types.is_binary, _bytes),
        (types.is_boolean, _boolean),
        (types.is_date32, _days),
        (types.is_time, _time_of_day),
        (types.is_duration, _duration),
        (types.is_null, _nothing),
    ):
        if is_kind(kind):
            return convert
    raise ValueError(f"values cannot be read as {kind}")


def is_plain(kind: Any) -> bool:
    """Return whether Arrow's JSON parser reads this type exactly as `from_json`, except for values that it rejects."""
    types = pa.types
    if types.is_struct(kind):
        return all(is_plain(field.type) for field in kind)
    if types.is_list(kind):
        return is_plain(kind.value_type)
    if types.is_timestamp(kind):
        return kind.tz is not None
    is_kinds = (types.is_string, types.is_boolean, types.is_signed_integer, types.is_floating, types.is_decimal)
    return any(is_kind(kind) for is_kind in is_kinds)


def _mismatch(value: Any, wanted: str) -> ValueError:
    kind = "number" if isinstance(value, JsonNumber) else type(value).__name__
    return ValueError(f"{str(value)[:100]!r} ({kind}) is not {wanted}")


def _optional(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _struct(kind: Any) -> Convert:
    fields = [(field.name, converter(field.type)) for field in kind]
    # `from_avro` reads a union of several types as a struct with one member for each.
    is_union = bool(fields) and all(_MEMBER.fullmatch(name) for name, _ in fields)

    def convert(value: Any) -> Any:
        if is_union and not (isinstance(value, dict) and set(value) <= {name for name, _ in fields}):
            return _member(value)
        if not isinstance(value, dict):
            raise _mismatch(value, "an object")
        return {name: _optional(of, value.get(name)) for name, of in fields}

    # The records of a union are known by their fields; a member may have fewer fields than the record.
    records = [field for field in kind if pa.types.is_struct(field.type)] if is_union else []
    known_by = {field.name: {inner.name for inner in field.type} for field in records}

    def _member(value: Any) -> Any:
        exact = [(name, of) for name, of in fields if isinstance(value, dict) and known_by.get(name) == set(value)]
        for name, of in [*exact, *fields]:
            try:
                return {name: of(value)}
            except (ValueError, ArithmeticError):
                continue
        raise _mismatch(value, f"one of {', '.join(name for name, _ in fields)}")

    return convert


def _list(of: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise _mismatch(value, "an array")
        return [_optional(of, item) for item in value]

    return convert


def _map(of_key: Convert, of: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(value, "an object")
        return [(of_key(key), _optional(of, item)) for key, item in value.items()]

    return convert


def _whole(bits: int, *, is_signed: bool = True) -> Convert:
    most = (1 << (bits - is_signed)) - 1
    least = -most - 1 if is_signed else 0

    def convert(value: Any) -> int:
        if isinstance(value, JsonNumber) and value.removeprefix("-").isdecimal():
            number = int(value)
        elif type(value) is int:
            number = value
        elif type(value) is time:
            # Avro has the time of a day as an int of milliseconds or a long of microseconds, and so has `from_avro`.
            micros = _micros_of_day(value)
            number = micros // 1000 if bits <= 32 else micros
        else:
            raise _mismatch(value, "a whole number")
        if not least <= number <= most:
            unsigned = "" if is_signed else " without a sign"
            raise ValueError(f"{str(value)[:100]} does not fit into {bits} bits{unsigned}")
        return number

    return convert


def _floating(bits: int) -> Convert:
    def convert(value: Any) -> float:
        if isinstance(value, JsonNumber):
            return float(value)
        if isinstance(value, str) and value in _SPECIAL_FLOATS:
            return _SPECIAL_FLOATS[value]
        if type(value) not in (int, float, Decimal):
            raise _mismatch(value, "a number")
        number = float(value)
        if bits <= 32 and _LARGEST_FLOAT32 < abs(number) < math.inf:
            raise ValueError(f"{number} does not fit into a float")
        return number

    return convert


def _decimal(precision: int, scale: int) -> Convert:
    unit, most = Decimal(1).scaleb(-scale), Decimal(1).scaleb(precision - scale)

    def convert(value: Any) -> Decimal:
        if isinstance(value, str) and value == value.strip() and "_" not in value:
            number = _MOST_PRECISE.create_decimal(value)
        elif type(value) in (int, float, Decimal):
            number = _MOST_PRECISE.create_decimal(repr(value) if type(value) is float else value)
        else:
            raise _mismatch(value, "a number")
        if not number.is_finite():
            raise _mismatch(value, "a number")
        rounded = number.quantize(unit, context=_MOST_PRECISE)
        # Numbers in JSON are rounded, as by `from_json`. A decimal of Avro has a scale, which the type must hold.
        if rounded.copy_abs() >= most or (type(value) is Decimal and rounded != number):
            raise ValueError(f"{str(value)[:100]} does not fit into decimal({precision},{scale})")
        return rounded

    return convert


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _mismatch(value, "a boolean")
    return value


def _nothing(value: Any) -> None:
    raise _mismatch(value, "null")


def _text(value: Any) -> str:
    """Return text as it is, and any other JSON value as JSON, its numbers as they are written."""
    if type(value) is JsonNumber:
        return str(value)
    if isinstance(value, UUID):
        return str(value)
    text = value if isinstance(value, str) else None
    if isinstance(value, bool | int | float | dict | list):
        text = _json_text(value)
    if text is None:
        raise _mismatch(value, "text")
    if not text.isascii():
        text.encode()  # raises UnicodeEncodeError, a ValueError, for half a surrogate pair
    return text


def _json_text(value: Any) -> str:
    if isinstance(value, JsonNumber):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json_text(key)}:{_json_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _bytes(value: Any) -> bytes:
    """Return bytes as they are, and text in JSON as the base64 that `from_json` expects."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str) or isinstance(value, JsonNumber) or len(value) % 4 != 0:
        raise _mismatch(value, "base64")
    # Groups that end in padding may follow each other: each group of four characters is decoded separately.
    ends = [match.end() for match in re.finditer("=+", value)]
    parts = [value[a:b] for a, b in zip([0, *ends], [*ends, len(value)], strict=True)]
    return b"".join(base64.b64decode(part, validate=True) for part in parts)


def _micros_of_day(value: time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * _MICROS_PER_S + value.microsecond


def _time_of_day(value: Any) -> time:
    if not isinstance(value, time):
        raise _mismatch(value, "a time of a day")
    return value


def _duration(value: Any) -> timedelta:
    if not isinstance(value, timedelta):
        raise _mismatch(value, "a duration")
    return value


def _zoned(value: Any) -> int:
    """Return microseconds since 1970: of a point in time, of seconds in JSON, or of text, in UTC by default."""
    if isinstance(value, JsonNumber) and value.removeprefix("-").isdecimal():
        micros = int(value) * _MICROS_PER_S
        if not -(2**63) <= micros < 2**63:
            raise ValueError(f"{value} seconds do not fit into a timestamp")
        return micros
    if isinstance(value, str) and not isinstance(value, JsonNumber):
        moment, micros = _moment(value)
        return (moment - _EPOCH) // _MICROSECOND + micros
    return _micros_of(value)


def _unzoned(value: Any) -> int:
    """Return microseconds since 1970 on a clock without a time zone."""
    if isinstance(value, str) and not isinstance(value, JsonNumber):
        moment, micros = _moment(value, zone=False)
        return (moment - _EPOCH) // _MICROSECOND + micros
    return _micros_of(value)


def _micros_of(value: Any) -> int:
    if not isinstance(value, datetime):
        raise _mismatch(value, "a timestamp")
    return ((value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def _moment(text: str, *, zone: bool = True) -> tuple[datetime, int]:
    """Return the second that a text such as `2024-01-02T03:04:05.678+01:00` names, and the microseconds after it."""
    text = text.strip()
    day = _DAY.match(text)
    if day is None:
        raise _mismatch(text, "a timestamp")
    year, month, of_month = (int(part or 1) for part in day.groups())
    rest, hours, minutes, seconds, fraction = text[day.end() :], 0, 0, 0, ""
    if rest[:1] in ("T", " ") and day[3] is not None and (clock := _TIME.match(rest, 1)) is not None:
        hours, minutes, seconds = (int(part or 0) for part in clock.groups()[:3])
        fraction, rest = clock[4] or "", rest[clock.end() :]
        rest = rest.strip()
    elif rest:
        raise _mismatch(text, "a timestamp")
    if rest and not zone:
        raise _mismatch(text, "a timestamp without a time zone")
    moment = datetime(year, month, of_month, hours, minutes, seconds, tzinfo=_zone(rest))
    return moment, int(fraction[:6].ljust(6, "0"))


def _zone(name: str) -> tzinfo:
    if name in ("", "Z", "UTC", "GMT"):
        return UTC
    offset = _ZONE_OFFSET.fullmatch(name)
    if offset is None:
        try:
            return ZoneInfo(name)
        except Exception:  # noqa: BLE001 - the name is untrusted, and the lookup opens files by it
            raise ValueError(f"unknown time zone {name[:100]!r}") from None
    hours, minutes, seconds = (int(part or 0) for part in offset.groups()[1:])
    if hours > 18 or minutes > 59 or seconds > 59:
        raise ValueError(f"unknown time zone {name!r}")
    away = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return timezone(-away if offset[1] == "-" else away)


def _days(value: Any) -> int:
    """Return days since 1970: of a date, of text that begins with one, or of a number of days as text."""
    if isinstance(value, str) and not isinstance(value, JsonNumber):
        text = value.strip()
        day = _DAY.match(text)
        if day is not None and (not (rest := text[day.end() :]) or (day[3] is not None and rest[0] in "T ")):
            year, month, of_month = (int(part or 1) for part in day.groups())
            return (date(year, month, of_month) - _EPOCH.date()).days
        if text.removeprefix("-").isdecimal() and len(text) < 4:
            return int(text)  # Spark 1.5 wrote dates so
    if isinstance(value, date) and not isinstance(value, datetime):
        return (value - _EPOCH.date()).days
    raise _mismatch(value, "a date")
