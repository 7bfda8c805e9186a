"""Filters of records: by key, by text, by a path in their JSON. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_JSON_BYTES = 1 << 20

Wanted = Callable[[bytes | None, bytes | None], bool]
"""Whether key and value match."""


def record_filter(*, key: str = "", text: str = "", path: str = "") -> Wanted:
    """A conjunction. The key is equal, the text is in key or value, and a path is `$.a.b[0]`, which exists, or `$.a.b =
    text`, which is equal. Raises ValueError for an invalid path.
    """
    steps, expected = _parse(path) if path else ([], None)
    key_bytes, text_bytes = key.encode(), text.encode()

    def wanted(of_key: bytes | None, value: bytes | None) -> bool:
        if key and of_key != key_bytes:
            return False
        if text and text_bytes not in (value or b"") and text_bytes not in (of_key or b""):
            return False
        return not path or _holds(value, steps, expected)

    return wanted


def _parse(path: str) -> tuple[list[str | int], str | None]:
    where, equals, expected = path.partition("=")
    where, at, steps = where.strip().removeprefix("$"), 0, list[str | int]()
    while at < len(where):
        match = _STEP.match(where, at)
        if match is None:
            raise ValueError(f"{path!r}: invalid path. Expected a path such as $.user.ids[0] or $.user.name = Ann")
        steps.append(match[1] if match[2] is None else int(match[2]))
        at = match.end()
    return steps, expected.strip() if equals else None


class _JsonObject(list[tuple[str, Any]]):
    """Names and values in order; a name may be repeated."""


def _number(text: str) -> Any:
    """Parse exactly, so that 1.10 equals 1.1 and 12345678901234567.89 equals no other number."""
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of more than eighteen digits
        return text


_DECODER = json.JSONDecoder(object_pairs_hook=_JsonObject, parse_int=_number, parse_float=_number, parse_constant=str)


def _holds(value: bytes | None, steps: list[str | int], expected: str | None) -> bool:
    if value is None or len(value) > _JSON_BYTES:
        return False
    try:
        document = _DECODER.decode(value.decode(json.detect_encoding(value), "surrogatepass").removeprefix("\ufeff"))
        found = list(_at(document, steps))
        return bool(found) and (expected is None or any(_is_equal(one, expected) for one in found))
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
