"""Java's .properties format, read as `java.util.Properties.load` reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_NATURAL_LINE = re.compile(r"\r\n|\n|\r")
_BLANK = " \t\f"
_NAMED_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPECIAL_IN_KEYS, _SPECIAL_IN_VALUES = re.compile(r"[^!-~]|[=:#!\\]"), re.compile(r"[^ -~]|\\|^ ")
_PLAIN_ESCAPES = {escaped: name for name, escaped in _NAMED_ESCAPES.items()} | {one: one for one in " =:#!\\"}
_HEX_DIGITS = re.compile(r"[0-9a-fA-F]{4}")


class PropertiesError(ValueError):
    """A text that Java's parser rejects: a `\\u` without four hexadecimal digits."""


def parse_properties(text: str) -> dict[str, str]:
    """Return the keys and values of a properties text in order. The last value of a repeated key is used.

    Comments start with `#` or `!`; an odd number of backslashes at the end of a line joins it with the next; key and
    value are separated by the first `=`, `:` or blank that has no backslash before it. Blanks after a value belong
    to it. Java decodes such files as ISO-8859-1; other characters are written `\\uXXXX`.
    """
    properties = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        properties[_unescape(key)] = _unescape(value)
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """Return an ASCII text that `parse_properties` reads back to the same keys and values."""
    return "".join(
        f"{_SPECIAL_IN_KEYS.sub(_escaped, key)}={_SPECIAL_IN_VALUES.sub(_escaped, value)}\n"
        for key, value in properties.items()
    )


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in _PLAIN_ESCAPES:
        return f"\\{_PLAIN_ESCAPES[character]}"
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    *lines, last = _NATURAL_LINE.split(text)
    for natural in lines:
        line = natural.lstrip(_BLANK)
        # A backslash alone on a line does not continue it: the next line may be a comment.
        if not pending and line[:1] in ("", "#", "!"):
            continue
        line = pending + line
        pending = line[:-1] if _ends_in_escape(line) else ""
        if not pending and line != "\\":
            yield line
    line = pending + last.lstrip(_BLANK)
    if line and (pending or line[0] not in "#!"):
        yield line[:-1] if _ends_in_escape(line) else line


def _ends_in_escape(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANK:
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while (escape := text.find("\\", position)) >= 0:
        parts.append(text[position:escape])
        character = text[escape + 1 : escape + 2]
        position = escape + 2
        if character == "u":
            digits = text[position : position + 4]
            if not _HEX_DIGITS.fullmatch(digits):
                raise PropertiesError(f"Malformed \\uxxxx encoding: \\u{digits}")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_NAMED_ESCAPES.get(character, character))
    parts.append(text[position:])
    # Characters beyond the basic plane are written as two escapes, a surrogate pair.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
