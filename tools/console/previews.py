"""Keys and values for display: text, JSON or bytes, short, and without active characters.

Pages put all of this into text nodes, so that markup remains text. The exceptions are characters that change the
display of others: control characters become their symbols, direction marks their numbers.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from ...clients.json_text import parse_text, pieces, truncate_pieces

if TYPE_CHECKING:
    from ...clients.decoding.decoder import Decoded

LIST_CHARS = 300
"""Maximum length of a value in a list of records."""
SHOWN_BYTES = 64 << 10
"""Maximum length of a single value; the rest is available as a file."""
_JSON_BYTES = 256 << 10
_HEX_BYTES = 4096
_HEX_WIDTH = 16
_MAX_UNPRINTABLE = 0.1
_PICTURES = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    **{
        code: f"\\u{code:04x}"
        for code in (*range(0x80, 0xA0), 0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
    },
    # Lone surrogates, which JSON can contain and UTF-8 cannot.
    **{code: f"\\u{code:04x}" for code in range(0xD800, 0xE000)},
}


def printable(text: str) -> str:
    """Replace control characters and direction marks by symbols."""
    return text.translate(_PICTURES)


def preview(data: bytes | None) -> dict[str, Any]:
    """Return a list preview: `kind` (null, empty, text, json or hex), `size` in bytes, `text`, and whether it was
    `cut`.
    """
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
    """Return a preview with the decoded value, if there is one, instead of the bytes."""
    if what is None or what.text is None:
        return shown
    text = what.text[:LIST_CHARS].translate(_PICTURES)
    return {**shown, "kind": what.kind, "text": text, "cut": what.is_cut or len(what.text) > LIST_CHARS}


def with_form(shown: dict[str, Any], what: Decoded | None) -> dict[str, Any]:
    """Return all forms, first the decoded value, or the reason why it is not decoded."""
    if what is None:
        return shown
    if what.text is None:
        return {**shown, "trouble": f"{what.kind}: {what.error}".translate(_PICTURES)}
    return {**shown, "forms": {what.kind: what.text.translate(_PICTURES), **shown["forms"]}}


def brief(data: bytes | None) -> dict[str, Any]:
    """Return a list preview, and `raw` if it is complete: for a form."""
    shown = preview(data)
    return {**shown, "raw": _as_text(data, is_cut=False) if data is not None and not shown["cut"] else None}


def full(data: bytes | None) -> dict[str, Any]:
    """Return all forms of a single record, each up to a limit, and its content for a form."""
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
    """Decode UTF-8 with few control characters; a character split by the limit is omitted."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(data) - 3:
            return None
        text = data[: error.start].decode()
    controls = sum(not (char.isprintable() or char.isspace()) for char in text)
    return text if controls <= _MAX_UNPRINTABLE * len(text) else None


def _pretty(data: bytes) -> str | None:
    """Indent JSON up to a size; names and numbers are unchanged."""
    if len(data) > _JSON_BYTES or data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return truncate_pieces(pieces(parse_text(data), indent=2), SHOWN_BYTES)[0]
    except (ValueError, RecursionError):
        return None


def hex_dump(data: bytes) -> str:
    """Return lines of offset, bytes and printable characters."""
    lines = []
    for start in range(0, len(data), _HEX_WIDTH):
        row = data[start : start + _HEX_WIDTH]
        printable = "".join(chr(byte) if 0x20 <= byte < 0x7F else "·" for byte in row)
        lines.append(f"{start:06x}  {row.hex(' '):<{3 * _HEX_WIDTH - 1}}  {printable}")
    return "\n".join(lines)
