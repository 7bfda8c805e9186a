"""How `barnabas consume` writes a record: kcat's format strings, or JSON, in colours on a terminal."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TypeAlias

import typer

from ..fetched_records import ConsumerRecord
from .session import readable_time

Text: TypeAlias = Callable[[bytes | None], object]
"""Makes of a key or a value what JSON can hold."""
_TOKEN = re.compile(rb"%(.)|([^%]+)", re.DOTALL)
_WHOLE_VALUE = b"%s\n"


def record_writer(
    output_format: str, *, as_json: bool, registry: str | None = None
) -> Callable[[ConsumerRecord], bytes]:
    """What makes the bytes of a record, for where standard output leads.

    Keys and values that were written with a schema are decoded by the registry at that URL, and written as JSON; what
    it does not know stays as it is. Raises typer.BadParameter, ValueError; the writer raises OSError.
    """
    decode = _decoder(registry) if registry else _text
    if as_json:
        return partial(_coloured() if sys.stdout.isatty() else envelope, text=decode)
    write = formatter(output_format)
    if not registry:
        return write
    return lambda record: write(record._replace(key=_decoded(record.key, decode), value=_decoded(record.value, decode)))


def _decoder(registry: str) -> Text:
    try:
        from ..registry.decoding import as_json, decoder_at

        import_module("fastavro")
    except ModuleNotFoundError as error:
        raise ValueError(f"a registry needs {error.name}: pip install 'barnabas[schema-registry]'") from None
    decoder = decoder_at(registry)

    def decode(data: bytes | None) -> object:
        try:
            return _text(None) if data is None else json.loads(as_json(decoder.decode(data)))
        except (LookupError, ValueError):
            return _text(data)

    return decode


def _decoded(data: bytes | None, decode: Text) -> bytes | None:
    """Text as it is, anything else as JSON; bytes that nobody could decode stay bytes."""
    if data is None or data[:1] != b"\0":
        return data
    found = decode(data)
    return data if found == _text(data) else json.dumps(found, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _coloured() -> Callable[..., bytes]:
    from rich.console import Console
    from rich.highlighter import JSONHighlighter

    console, highlight = Console(soft_wrap=True, highlight=False), JSONHighlighter()

    def write(record: ConsumerRecord, text: Text) -> bytes:
        with console.capture() as captured:
            console.print(highlight(envelope(record, text).decode()), end="")
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


def _text(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def envelope(record: ConsumerRecord, text: Text = _text) -> bytes:
    """A record as a line of JSON, with kcat's names; bytes that are no text as `{"base64": …}`."""
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": record.timestamp_type.name.lower(),
        "ts": record.timestamp,
        "headers": [[name, _text(value)] for name, value in record.headers],
        "key": text(record.key),
        "payload": text(record.value),
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"
