"""What went wrong, in words for a person."""

from __future__ import annotations

import re

from ...protocol.in_words import in_words

_ADDRESS = r"attempting to bind on address \('?([^',]+)'?, (\d+)[^)]*\)"
_BIND = re.compile(rf"error while {_ADDRESS}: (.*)|(.*) \(while {_ADDRESS}\)")
"""As loops put it, and as socket.create_server does."""


def reason(error: BaseException) -> str:
    """An error in one line: of the system's, what it is about and its text, without its number."""
    inner = getattr(error, "reason", None)
    if isinstance(inner, OSError):
        return reason(inner)  # urllib's
    if isinstance(error, OSError) and error.strerror and (bound := _BIND.fullmatch(error.strerror)):
        host, port, why = bound.group(1, 2, 3) if bound[3] else bound.group(5, 6, 4)
        return f"cannot listen on {host}:{port}: {why.lower()}"
    return in_words(error)
