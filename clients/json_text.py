"""JSON text with the document's own numbers, repeated names and order: no number is converted to a float.

Values that a library decoded, for example from Avro, are encoded with the words of Java's encoders for numbers outside
of JSON: "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

_PIECE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)
_NOT_JSON = {"NaN": '"NaN"', "Infinity": '"Infinity"', "-Infinity": '"-Infinity"'}
"""Numbers that Python's serializers write although JSON does not have them."""


class JsonText(str):
    """A document in its original text."""

    __slots__ = ()


def parse_text(data: bytes | str) -> JsonText:
    """Check that the text is one JSON document. Raises ValueError, RecursionError."""
    text = data if isinstance(data, str) else data.decode(json.detect_encoding(data), "surrogatepass")
    text = text.removeprefix("\ufeff")
    json.loads(text, parse_int=str, parse_float=str)  # Python's int accepts at most 4300 digits
    return JsonText(text)


def pieces(value: Any, indent: int | None = None) -> Iterator[str]:
    """Return the text of a JsonText, or of a decoded value, with the spaces of `json.dumps`."""
    if isinstance(value, JsonText):
        return _respaced(value, indent)
    return json.JSONEncoder(indent=indent, ensure_ascii=False, default=_plain).iterencode(_finite(value))


def one_line(value: Any) -> str:
    """Return the text on one line."""
    return "".join(pieces(value))


def compact(text: JsonText) -> str:
    """Return the document without spaces."""
    return "".join(_plain_escapes(match[0]) for match in _PIECE.finditer(text))


def _plain_escapes(piece: str) -> str:
    """Encode a string with the escapes that JSON requires, and no others."""
    if piece[0] != '"' or "\\" not in piece:
        return piece
    return json.dumps(json.loads(piece, strict=False), ensure_ascii=False)


def _respaced(text: str, indent: int | None) -> Iterator[str]:
    depth, is_opened = 0, False
    for match in _PIECE.finditer(text):
        piece = match[0]
        closes = piece in ("}", "]")
        depth -= closes
        if indent is not None and is_opened != closes:
            yield "\n" + " " * (indent * depth)
        is_opened = piece in ("{", "[")
        depth += is_opened
        if piece == ",":
            # The next line begins with the next part.
            yield ", " if indent is None else ","
            is_opened = indent is not None
        elif piece == ":":
            yield ": "
        else:
            yield _NOT_JSON.get(piece, _plain_escapes(piece))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value


def _plain(value: object) -> str:
    """Convert Avro types without a JSON equivalent; bytes to hex."""
    if isinstance(value, bytes):
        return value.hex()
    isoformat = getattr(value, "isoformat", None)
    return str(value if isoformat is None else isoformat())


def truncate_pieces(pieces: Iterable[str], most: int) -> tuple[str, bool]:
    """Return the first `most` characters of a text that is produced in parts, and whether it is longer.

    Later parts are not produced: deeply nested values would consist of megabytes of indentation.
    """
    taken, left = list[str](), most
    for piece in pieces:
        taken.append(piece[:left])
        if len(piece) > left:
            return "".join(taken), True
        left -= len(piece)
    return "".join(taken), False
