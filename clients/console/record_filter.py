"""Which records are wanted: by key, by text, by what is at a path in their JSON. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_MISSING = object()
_JSON_BYTES = 1 << 20

Wanted = Callable[[bytes | None, bytes | None], bool]
"""Of key and value."""


def record_filter(*, key: str = "", text: str = "", path: str = "") -> Wanted:
    """All of these have to hold. The key is equal, text is anywhere in key or value, and a path is `$.a.b[0]`, which is
    there, or `$.a.b = text`, which is that. Raises ValueError for a path that is none.
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
            raise ValueError(f"{path!r} is no path like $.user.ids[0] or $.user.name = Ann")
        steps.append(match[1] if match[2] is None else int(match[2]))
        at = match.end()
    return steps, expected.strip() if equals else None


def _holds(value: bytes | None, steps: list[str | int], expected: str | None) -> bool:
    if value is None or len(value) > _JSON_BYTES:
        return False
    try:
        found: Any = json.loads(value)
    except (ValueError, RecursionError):
        return False
    for step in steps:
        if isinstance(found, dict):
            found = found.get(str(step), _MISSING)
        elif isinstance(found, list) and isinstance(step, int):
            found = found[step] if step < len(found) else _MISSING
        else:
            return False
    if found is _MISSING:
        return False
    return expected is None or expected == (found if isinstance(found, str) else json.dumps(found, ensure_ascii=False))
