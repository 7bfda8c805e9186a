"""Output formats of `barnabas consume`: kcat's format strings, or JSON, in colours on a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module

import typer

from ...clients.fetched_records import ConsumerRecord
from ...common.printable_text import printable_json
from ..record_envelope import JsonOf, envelope, json_of_bytes
from .session import readable_time

_TOKEN = re.compile(rb"%(.)|([^%]+)", re.DOTALL)
_WHOLE_VALUE = b"%s\n"


def record_writer(
    output_format: str, *, as_json: bool, registry: str | None = None
) -> Callable[[ConsumerRecord], bytes]:
    """Return the function that formats a record, for the kind of standard output.

    Keys and values with a schema are decoded with the registry at that URL, and written as JSON; unknown ones are
    unchanged. Raises typer.BadParameter, ValueError; the function raises OSError.
    """
    decode = _decoder(registry) if registry else None
    if as_json:
        write_json = _coloured() if sys.stdout.isatty() else envelope
        return partial(
            write_json, json_of=json_of_bytes if decode is None else partial(_decoded_or_text, decode=decode)
        )
    write = formatter(output_format)
    if decode is None:
        return write

    def write_decoded(record: ConsumerRecord) -> bytes:
        key, value = (_decoded_or_bytes(data, decode) for data in (record.key, record.value))
        return write(record._replace(key=key, value=value))

    return write_decoded


def _decoder(registry: str) -> Callable[[bytes], str | None]:
    """Return the function that converts framed bytes to JSON, and other bytes to None."""
    try:
        from ...clients.decoding.registry_decoder import decoder_at

        import_module("fastavro")
    except ModuleNotFoundError as error:
        raise ValueError(f"a registry requires {error.name}: pip install 'barnabas[schema-registry]'") from None
    decoder = decoder_at(registry)

    def decode(data: bytes) -> str | None:
        try:
            return decoder.decode_text(data)
        except (LookupError, ValueError):
            return None

    return decode


def _decoded_or_text(data: bytes | None, decode: Callable[[bytes], str | None]) -> str:
    found = None if data is None else decode(data)
    return json_of_bytes(data) if found is None else found


def _decoded_or_bytes(data: bytes | None, decode: Callable[[bytes], str | None]) -> bytes | None:
    found = None if data is None else decode(data)
    return data if found is None else found.encode("utf-8", "backslashreplace")


def _coloured() -> Callable[..., bytes]:
    from rich.console import Console
    from rich.highlighter import JSONHighlighter

    console, highlight = Console(soft_wrap=True, highlight=False), JSONHighlighter()

    def write(record: ConsumerRecord, json_of: JsonOf) -> bytes:
        with console.capture() as captured:
            console.print(highlight(printable_json(envelope(record, json_of).decode().removesuffix("\n"))))
        return captured.get().encode()

    return write


def formatter(text: str) -> Callable[[ConsumerRecord], bytes]:
    """Return a function that prints a record in a kcat format string. Raises ValueError for an unknown token."""
    raw = text.encode().decode("unicode_escape").encode("latin-1")
    pieces: list[Callable[[ConsumerRecord], bytes]] = []
    for token, literal in _TOKEN.findall(raw):
        if literal:
            pieces.append(_constant(literal))
        elif token in _TOKENS:
            pieces.append(_TOKENS[token])
        else:
            raise typer.BadParameter(f"%{token.decode(errors='replace')}: unknown format token")
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
