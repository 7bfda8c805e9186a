"""Texts of errors for log lines and the command line."""

from __future__ import annotations


def describe_error(error: BaseException) -> str:
    """Return the error as one line: for an OSError the file name and the system's message, without its number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
