"""How `barnabas consume` writes a record: kcat's format strings, or JSON, in colours on a terminal."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable

import typer

from ..fetched_records import ConsumerRecord
from .session import readable_time

_TOKEN = re.compile(rb"%(.)|([^%]+)", re.DOTALL)
_WHOLE_VALUE = b"%s\n"


def record_writer(output_format: str, *, as_json: bool) -> Callable[[ConsumerRecord], bytes]:
    """What makes the bytes of a record, for where standard output leads. Raises typer.BadParameter."""
    if not as_json:
        return formatter(output_format)
    return _coloured() if sys.stdout.isatty() else envelope


def _coloured() -> Callable[[ConsumerRecord], bytes]:
    from rich.console import Console
    from rich.highlighter import JSONHighlighter

    console, highlight = Console(soft_wrap=True, highlight=False), JSONHighlighter()

    def write(record: ConsumerRecord) -> bytes:
        with console.capture() as captured:
            console.print(highlight(envelope(record).decode()), end="")
        return captured.get().encode()

    return write


def formatter(text: str) -> Callable[[ConsumerRecord], bytes]:
    """A function that prints a record in a kcat format string. Raises ValueError for an unknown token."""
    raw = text.encode().decode("unicode_escape").encode("latin-1")
    pieces: list[Callable[[ConsumerRecord], bytes]] = []
    for token, literal in _TOKEN.findall(raw):
        if literal:
            pieces.append(_constant(literal))
        elif token in _TOKENS:
            pieces.append(_TOKENS[token])
        else:
            raise typer.BadParameter(f"%{token.decode(errors='replace')} is no format token")
    if raw == _WHOLE_VALUE:
        return lambda record: (record.value or b"") + b"\n"
    return lambda record: b"".join([piece(record) for piece in pieces])


def _constant(data: bytes) -> Callable[[ConsumerRecord], bytes]:
    return lambda record: data


def _size(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


_TOKENS: dict[bytes, Callable[[ConsumerRecord], bytes]] = {
    b"s": lambda record: record.value or b"",
    b"S": lambda record: _size(record.value),
    b"k": lambda record: record.key or b"",
    b"K": lambda record: _size(record.key),
    b"t": lambda record: record.topic.encode(),
    b"p": lambda record: b"%d" % record.partition,
    b"o": lambda record: b"%d" % record.offset,
    b"T": lambda record: b"%d" % record.timestamp,
    b"d": lambda record: readable_time(record.timestamp).encode(),
    b"h": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
    b"%": lambda record: b"%",
}


def envelope(record: ConsumerRecord) -> bytes:
    """A record as a line of JSON, with kcat's names; bytes that are no text as `{"base64": …}`."""
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": record.timestamp_type.name.lower(),
        "ts": record.timestamp,
        "headers": [[name, _text(value)] for name, value in record.headers],
        "key": _text(record.key),
        "payload": _text(record.value),
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
