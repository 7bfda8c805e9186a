"""Texts of errors for users."""

from __future__ import annotations

import re

from ...common.error_description import describe_error

_ADDRESS = r"attempting to bind on address \('?([^',]+)'?, (\d+)[^)]*\)"
_BIND = re.compile(rf"error while {_ADDRESS}: (.*)|(.*) \(while {_ADDRESS}\)")
"""Messages of event loops, and of socket.create_server."""


def reason(error: BaseException) -> str:
    """Return an error in one line: for a system error its object and its text, without its number."""
    inner = getattr(error, "reason", None)
    if isinstance(inner, OSError):
        return reason(inner)  # raised by urllib
    if isinstance(error, OSError) and error.strerror and (bound := _BIND.fullmatch(error.strerror)):
        host, port, why = bound.group(1, 2, 3) if bound[3] else bound.group(5, 6, 4)
        return f"cannot listen on {host}:{port}: {why.lower()}"
    return describe_error(error)
