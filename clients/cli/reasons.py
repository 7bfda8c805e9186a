"""What went wrong, in words for a person."""

from __future__ import annotations

import re

_BIND = re.compile(r"error while attempting to bind on address \('?([^',]+)'?, (\d+)[^)]*\): (.*)")


def reason(error: BaseException) -> str:
    """An error in one line: of the system's, what it is about and its text, without its number."""
    inner = getattr(error, "reason", None)
    if isinstance(inner, OSError):
        return reason(inner)  # urllib's
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    if bound := _BIND.fullmatch(error.strerror):
        return f"cannot listen on {bound[1]}:{bound[2]}: {bound[3]}"
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
