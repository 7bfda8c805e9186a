"""What went wrong, in words for a person."""

from __future__ import annotations


def in_words(error: BaseException) -> str:
    """An error in one line: of the system's, what it is about and its text, without its number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
