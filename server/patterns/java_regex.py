"""Checks whether a regular expression is valid in Java (`java.util.regex`), with Python's `re`.

Constructs that exist only in Java are replaced by Python's equivalents, or by placeholders that are valid in the same
positions, and Python compiles the result. The result is never used for matching.
"""

from __future__ import annotations

import re
import warnings

_ANY = r"\w"
_ESCAPE = re.compile(
    r"\\(?:[pP](?:\{[\w=]{1,64}\}|[A-Z])|x\{[0-9A-Fa-f]{1,8}\}|c.|[zGhHvVRXe]|(?P<other>.))", re.DOTALL
)
_NAMED = re.compile(r"\(\?<(?![=!])")
_PART = re.compile(
    r"""
      (?P<quoted>\\Q.*?(?:\\E|\Z))
    | \\k<(?P<backward>[A-Za-z][A-Za-z0-9]*)>
    | (?P<number>\\[1-9])
    | (?P<escape>\\[pP]\{[\w=]{1,64}\}|\\[pPc].|\\x\{[0-9A-Fa-f]{1,8}\}|\\.)
    | (?P<characters>\[\^?+\]?+(?:\\.|\[[^\]]*+\]|[^\]\\\[])*+\])
    | \(\?<(?P<named>[A-Za-z][A-Za-z0-9]*)>
    | \(\?<(?P<behind>[=!])
    | \(\?[idmsuxU]*(?:-[idmsuxU]*)?(?P<flags>[:)])
    | (?P<empty>(?:\A|(?<=[(|^$]))\{\d+(?:,\d*)?\})
    | (?P<unknown>\(\?(?![=!>])|\{(?!\d+(?:,\d*)?\})|\[)
    """,
    re.DOTALL | re.VERBOSE,
)


def is_java_regex(text: str) -> bool:
    """Return whether `Pattern.compile` would accept the text, as far as this can be determined without Java."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(_PART.sub(_part, text))
    except (ValueError, re.error, RecursionError, OverflowError):
        return False
    return True


def is_read_alike(text: str) -> bool:
    """Whether others than Java take the text for the same: there sets of characters are nested and intersected."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            re.compile(_NAMED.sub("(?P<", text))
    except (ValueError, re.error, RecursionError, OverflowError, FutureWarning):
        return False
    return True


def _part(part: re.Match[str]) -> str:
    kind, text = part.lastgroup, part[0]
    if kind == "unknown":
        raise ValueError(f"unknown to Java: {text}")
    if kind == "empty":
        return ""
    if kind == "number":
        return _ANY
    if kind == "quoted":
        return re.escape(text.removeprefix(r"\Q").removesuffix(r"\E"))
    if kind == "backward":
        return f"(?P={part[kind]})"
    if kind == "named":
        return f"(?P<{part[kind]}>"
    if kind == "behind":
        return f"(?{part[kind]}"
    if kind == "flags":
        return "(?:" if part[kind] == ":" else ""
    return _ESCAPE.sub(lambda escape: escape[0] if escape["other"] else _ANY, text)
