"""Whether a regular expression is one to Java (`java.util.regex`), found out with Python's own.

What only Java knows is put in Python's words, or replaced by something that stands in the same places, before Python
is asked. Nothing is ever matched against that.
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
    """Whether `Pattern.compile` would take the text, as far as can be told without Java."""
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
        raise ValueError(f"not known to Java: {text}")
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
