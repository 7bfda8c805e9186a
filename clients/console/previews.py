"""Keys and values as a page can show them: text, JSON or bytes, short, and without characters that act.

Pages put all of this into text nodes, so that markup in it is text. What is left are characters that change how others
are shown: controls become their pictures, marks of direction their numbers.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from .decoding.beginning import beginning

if TYPE_CHECKING:
    from .decoding.decoder import Decoded

LIST_CHARS = 300
"""Of a value in a list of records."""
SHOWN_BYTES = 64 << 10
"""Of a value that is looked at alone; the rest is to be had as a file."""
_JSON_BYTES = 256 << 10
_HEX_BYTES = 4096
_HEX_WIDTH = 16
_MOST_UNPRINTABLE = 0.1
_PICTURES = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    **{
        code: f"\\u{code:04x}"
        for code in (*range(0x80, 0xA0), 0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
    },
    # Halves of characters, which JSON can name and no UTF-8 can carry.
    **{code: f"\\u{code:04x}" for code in range(0xD800, 0xE000)},
}
_INDENTED = json.JSONEncoder(indent=2, ensure_ascii=False)


def preview(data: bytes | None) -> dict[str, Any]:
    """For a list: `kind` (null, empty, text, json or hex), `size` in bytes, `text`, whether it was `cut`."""
    if data is None:
        return {"kind": "null", "size": -1, "text": "", "cut": False}
    head = data[: 4 * LIST_CHARS]
    text = _as_text(head, is_cut=len(head) < len(data))
    if text is None:
        shown = head[: LIST_CHARS // 3]
        return {"kind": "hex", "size": len(data), "text": shown.hex(" "), "cut": len(shown) < len(data)}
    kind = "json" if text.lstrip()[:1] in ("{", "[") else "text" if data else "empty"
    cut = len(head) < len(data) or len(text) > LIST_CHARS
    return {"kind": kind, "size": len(data), "text": text[:LIST_CHARS].translate(_PICTURES), "cut": cut}


def decoded(shown: dict[str, Any], what: Decoded | None) -> dict[str, Any]:
    """A preview with what a schema makes of the same bytes in place of them, if it makes anything of them."""
    if what is None or what.text is None:
        return shown
    text = what.text[:LIST_CHARS].translate(_PICTURES)
    return {**shown, "kind": what.kind, "text": text, "cut": what.is_cut or len(what.text) > LIST_CHARS}


def with_form(shown: dict[str, Any], what: Decoded | None) -> dict[str, Any]:
    """All there is to see, and first what a schema makes of it, or why it makes nothing."""
    if what is None:
        return shown
    if what.text is None:
        return {**shown, "trouble": f"{what.kind}: {what.error}".translate(_PICTURES)}
    return {**shown, "forms": {what.kind: what.text.translate(_PICTURES), **shown["forms"]}}


def brief(data: bytes | None) -> dict[str, Any]:
    """As in a list, and `raw` if that is all of it: for a form."""
    shown = preview(data)
    return {**shown, "raw": _as_text(data, is_cut=False) if data is not None and not shown["cut"] else None}


def full(data: bytes | None) -> dict[str, Any]:
    """For a record alone: all forms that it has, each up to a bound, and what a form for producing can hold of it."""
    forms: dict[str, str] = {}
    shown: dict[str, Any] = {**preview(data), "forms": forms, "raw": None, "base64": None}
    if data is None:
        return shown
    head = data[:SHOWN_BYTES]
    text = _as_text(head, is_cut=len(head) < len(data))
    pretty = _pretty(data)
    if pretty is not None:
        forms["json"] = pretty.translate(_PICTURES)
    if text is not None:
        forms["text"] = text.translate(_PICTURES)
    forms["hex"] = hex_dump(data[:_HEX_BYTES])
    shown["cut"] = len(head) < len(data)
    if not shown["cut"]:
        shown["raw"] = text
        shown["base64"] = base64.b64encode(data).decode()
    return shown


def _as_text(data: bytes, *, is_cut: bool) -> str | None:
    """UTF-8 with few controls in it; a character that a cut has split is left out."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(data) - 3:
            return None
        text = data[: error.start].decode()
    controls = sum(not (char.isprintable() or char.isspace()) for char in text)
    return text if controls <= _MOST_UNPRINTABLE * len(text) else None


def _pretty(data: bytes) -> str | None:
    """JSON of some size with indents, as much of it as is shown; keys keep their order."""
    if len(data) > _JSON_BYTES or data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return beginning(_INDENTED.iterencode(json.loads(data)), SHOWN_BYTES)[0]
    except (ValueError, RecursionError):
        return None


def hex_dump(data: bytes) -> str:
    """Lines of offset, bytes and what of them is printable."""
    lines = []
    for start in range(0, len(data), _HEX_WIDTH):
        row = data[start : start + _HEX_WIDTH]
        printable = "".join(chr(byte) if 0x20 <= byte < 0x7F else "·" for byte in row)
        lines.append(f"{start:06x}  {row.hex(' '):<{3 * _HEX_WIDTH - 1}}  {printable}")
    return "\n".join(lines)
