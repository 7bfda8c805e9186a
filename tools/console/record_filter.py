"""Filters of records: by key, by text, by header, by a path in their JSON. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from operator import ge, gt, le, lt
from typing import Any, NamedTuple

_STEP = re.compile(r"""\.?([^.\[\]=<>!~"\s]+)|\[(\d+)\]|\.?\["([^"]*)"\]""")
_OPERATOR = re.compile(r"==|!=|<=|>=|=|<|>")
_JSON_BYTES = 1 << 20
_EXPECTED = (
    "expected a path such as $.user.ids[0], or a comparison such as $.user.name = Ann or $.price >= 10 "
    '(=, !=, <, <=, >, >=). A name with blanks or signs is written as $["the name"]'
)

Wanted = Callable[[bytes | None, bytes | None], bool]
"""Whether key and value match."""
Headers = Sequence[tuple[str, bytes | None]]


class Condition(NamedTuple):
    """A path, and a comparison of its values: `operator` is empty if the path only has to exist."""

    steps: list[str | int]
    operator: str
    expected: str


def record_filter(*, key: str = "", text: str = "", path: str = "") -> Wanted:
    """Return a filter that requires all given terms: an equal key, a text in the key or the value, and a condition on
    the JSON of the value, as in `parse_condition`.

    Raises ValueError for an invalid path.
    """
    condition = parse_condition(path) if path else None
    key_bytes, text_bytes = key.encode(), text.encode()

    def wanted(of_key: bytes | None, value: bytes | None) -> bool:
        if key and of_key != key_bytes:
            return False
        if text and text_bytes not in (value or b"") and text_bytes not in (of_key or b""):
            return False
        return condition is None or _holds(value, condition)

    return wanted


def header_filter(text: str) -> Callable[[Headers], bool]:
    """Return a filter for `name`, a header with this name, or `name = value`, a header with this name and value."""
    name, equals, value = (part.strip() for part in text.partition("="))
    value_bytes = value.encode()

    def wanted(headers: Headers) -> bool:
        return any(key == name and (not equals or found == value_bytes) for key, found in headers)

    return wanted


def parse_condition(text: str) -> Condition:
    """Parse a path that must exist, such as `$.a.b[0]`, or a comparison, such as `$.a = text`, with one of
    `=`, `!=`, `<`, `<=`, `>` and `>=`. `$["a.b"]` is a name with dots or blanks. Raises ValueError.
    """
    where = text.strip()
    at, steps = 1 if where.startswith("$") else 0, list[str | int]()
    while match := _STEP.match(where, at):
        name, index, quoted = match.groups()
        steps.append(int(index) if index is not None else quoted if quoted is not None else name)
        at = match.end()
    rest = where[at:].strip()
    if not rest:
        return Condition(steps, "", "")
    operator = _OPERATOR.match(rest)
    if operator is None:
        raise ValueError(f"{text!r}: {_EXPECTED}")
    expected = rest[operator.end() :].strip()
    if not expected and operator[0] not in ("=", "==", "!="):
        raise ValueError(f"{text!r}: a value is missing after {operator[0]}; {_EXPECTED}")
    return Condition(steps, "=" if operator[0] == "==" else operator[0], expected)


class _JsonObject(list[tuple[str, Any]]):
    """Names and values in order; a name may be repeated."""


def _number(text: str) -> Any:
    """Parse exactly, so that 1.10 equals 1.1 and 12345678901234567.89 equals no other number."""
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of more than eighteen digits
        return text


_DECODER = json.JSONDecoder(object_pairs_hook=_JsonObject, parse_int=_number, parse_float=_number, parse_constant=str)


def _holds(value: bytes | None, condition: Condition) -> bool:
    if value is None or len(value) > _JSON_BYTES:
        return False
    try:
        document = _DECODER.decode(value.decode(json.detect_encoding(value), "surrogatepass").removeprefix("\ufeff"))
        found = list(_at(document, condition.steps))
        match condition.operator:
            case "":
                return bool(found)
            case "=":
                return any(_is_equal(one, condition.expected) for one in found)
            case "!=":
                return bool(found) and not any(_is_equal(one, condition.expected) for one in found)
            case operator:
                return any(_is_ordered(one, operator, condition.expected) for one in found)
    except (ValueError, RecursionError):
        return False


def _at(value: Any, steps: list[str | int]) -> Iterator[Any]:
    """Yield the values at the path, including all with repeated names."""
    if not steps:
        yield value
    elif isinstance(value, _JsonObject):
        for name, one in value:
            if name == str(steps[0]):
                yield from _at(one, steps[1:])
    elif isinstance(value, list) and isinstance(steps[0], int) and steps[0] < len(value):
        yield from _at(value[steps[0]], steps[1:])


def _is_equal(found: Any, expected: str) -> bool:
    if isinstance(found, str):
        return found == expected
    try:
        wanted = _DECODER.decode(expected)
    except (ValueError, RecursionError):
        return False
    return type(found) is type(wanted) and bool(found == wanted)


def _is_ordered(found: Any, operator: str, expected: str) -> bool:
    """Compare numbers by value, and texts, such as times in ISO 8601, by their characters."""
    if isinstance(found, str):
        return _ORDERS[operator](found, expected)
    if not isinstance(found, Decimal):
        return False
    try:
        return _ORDERS[operator](found, Decimal(expected))
    except InvalidOperation:  # the expected text is not a number
        return False


_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
