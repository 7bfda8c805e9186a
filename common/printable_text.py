"""Text of clients and files, made safe for a terminal, a table or a log line."""

from __future__ import annotations

import json


def printable(text: str) -> str:
    """Return the text with every character that is not printable as an escape, such as `\\x1b` or `\\n`.

    That covers control characters, which move a terminal's cursor or begin another line, characters that reverse the
    direction of writing, and lone surrogates, which no encoding can print.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def printable_json(document: str) -> str:
    """Return a JSON document, as `json.dumps` with `ensure_ascii=False` writes it, with JSON escapes for unprintable
    characters. The document keeps its meaning and its line breaks.
    """
    if document.isprintable():
        return document
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in document)
