"""`barnabas produce`: lines or JSON from a pipe or a file into a topic, as kcat does."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

import typer

from ...clients.accumulator import RecordMetadata
from ...clients.producer import Producer
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.record import Headers
from . import completion
from .client_settings import DEFAULT_BOOTSTRAP, bootstrap_servers, client_arguments
from .session import Bootstrap, record_counter, run_fast

app = typer.Typer(add_completion=False)

_CHUNK = 1 << 20
_BATCH_SIZE = 1 << 18
_MAX_LINE = 64 * 1024 * 1024


class Line(NamedTuple):
    """A record from a line of JSON."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None = None


class LineFormat(NamedTuple):
    """Conversion of input lines to records."""

    key_separator: bytes | None
    key: bytes | None
    headers: Headers
    empty_is_null: bool
    is_json: bool

    def split(self, lines: list[bytes]) -> tuple[list[bytes | None] | None, list[bytes | None]]:
        """Return keys, None if there are none, and values."""
        keys: list[bytes | None] | None = None if self.key is None else [self.key] * len(lines)
        values: list[bytes | None] = list(lines)
        if self.key_separator is not None:
            parts = [line.partition(self.key_separator) for line in lines]
            keys = [before if separator else self.key for before, separator, _ in parts]
            values = [after if separator else before for before, separator, after in parts]
        if self.empty_is_null:
            keys = keys and [key or None for key in keys]
            values = [value or None for value in values]
        return keys, values


@app.command()
def produce(
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=completion.topics)],
    *,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="SEP", help="Separator between key and value in a line."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of all records.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="NAME=VALUE",
            help="Header of each record; may be repeated, also with the same name.",
        ),
    ] = None,
    codec: Annotated[str, typer.Option("--codec", "-z", help="Compression: none, gzip, snappy, lz4 or zstd.")] = "none",
    file: Annotated[Path | None, typer.Option("--file", "-l", help="Input file instead of standard input.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", help="Partition of all records.")] = None,
    delimiter: Annotated[str, typer.Option("--delimiter", "-D", help="Separator between records.")] = "\\n",
    empty_is_null: Annotated[bool, typer.Option("--null", "-Z", help="Treat empty keys and values as null.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", "-J", help="Read JSON lines in the format of `consume -J` or kcat -J.")
    ] = False,
    acks: Annotated[str, typer.Option("--acks", "-a", help="Acknowledgements to wait for: all, 1 or 0.")] = "all",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Read records from standard input, one per line, and produce them.

    seq 1000 | barnabas produce numbers
    """
    headers = [_header(pair) for pair in header or ()]
    separator = None if key_separator is None else _unescape("--key-separator", key_separator)
    end = _unescape("--delimiter", delimiter)
    line_format = LineFormat(separator, None if key is None else key.encode(), headers, empty_is_null, as_json)
    defaults: dict[str, Any] = {"compression": codec, "acks": acks, "batch_size": _BATCH_SIZE}

    async def work() -> int:
        async with Producer(bootstrap_servers(bootstrap), **defaults | client_arguments(Producer)) as producer:
            if file is None:
                return await _send_all(producer, topic, partition, line_format, _lines(_standard_input(), end))
            with file.open("rb", buffering=0) as stream:
                return await _send_all(producer, topic, partition, line_format, _lines(stream.read, end))

    count = run_fast(work())
    if sys.stderr.isatty():
        typer.echo(f"{count} records", err=True)


async def _send_all(
    producer: Producer, topic: str, partition: int | None, line_format: LineFormat, chunks: AsyncIterator[list[bytes]]
) -> int:
    """Send lines. Raises the first error of any record, with the next lines or at the end."""
    failed: list[BaseException] = []
    unchecked: set[asyncio.Future[RecordMetadata]] = set()

    def check(future: asyncio.Future[RecordMetadata]) -> None:
        unchecked.discard(future)
        if not failed and (error := future.exception()) is not None:
            failed.append(error)

    if partition is not None and partition not in (found := await producer.partitions_for(topic)):
        # A program may wait for the topic; a user at a terminal is informed immediately.
        reason = f"{topic} has {len(found)} partitions; partition {partition} does not exist"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    count = 0
    with record_counter("produced") as show:
        async for lines in chunks:
            futures = await _send(producer, topic, partition, line_format, lines, count + 1)
            unchecked.update(futures)
            for future in futures:
                future.add_done_callback(check)
            count += len(lines)
            show(count)
            if failed:
                break
        await producer.flush()
    if unchecked:  # errors of the last batches, which have not been reported yet
        await asyncio.wait(unchecked)
    if failed:
        raise failed[0]
    return count


async def _send(
    producer: Producer, topic: str, partition: int | None, line_format: LineFormat, lines: list[bytes], first: int
) -> list[asyncio.Future[RecordMetadata]]:
    """Send lines, the first with the number `first`. Raises ValueError for JSON that is not a record."""
    if not line_format.is_json:
        keys, values = line_format.split(lines)
        return await producer.send_many(topic, values, keys=keys, headers=line_format.headers, partition=partition)
    return [
        await producer.send(
            topic,
            record.value,
            key=record.key,
            headers=[*record.headers, *line_format.headers],
            partition=partition,
            timestamp_ms=record.timestamp_ms,
        )
        for record in [_from_json(line, number) for number, line in enumerate(lines, first)]
    ]


def _standard_input() -> Callable[[int], bytes]:
    """Return a reader of standard input, without Python's buffer if there is a descriptor."""
    try:
        return partial(os.read, sys.stdin.fileno())
    except (OSError, ValueError):  # a program that runs commands in its process may have replaced stdin
        return sys.stdin.buffer.read


async def _lines(read: Callable[[int], bytes], delimiter: bytes) -> AsyncIterator[list[bytes]]:
    """Yield the parts between delimiters as they arrive. Raises OSError, and ValueError for a part beyond
    `_MAX_LINE`.
    """
    rest = b""
    async for chunk in _chunks(read):
        *lines, rest = (rest + chunk).split(delimiter)
        if len(rest) > _MAX_LINE:
            raise ValueError(f"a line has more than {_MAX_LINE} bytes; set the separator of records with --delimiter")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _chunks(read: Callable[[int], bytes]) -> AsyncIterator[bytes]:
    """Yield the contents of a file or a pipe until its end. Raises OSError.

    A daemon thread reads, without Python's buffered streams, so that an idle pipe delays neither the pending batches
    nor the end of an interrupted process: an executor waits for its threads, and so does the lock of `sys.stdin`.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(2)  # chunks that were read and not used yet

    def read_all() -> None:
        chunk: bytes | OSError = b"\0"
        while chunk and not isinstance(chunk, OSError):
            room.acquire()
            try:
                chunk = read(_CHUNK)
            except OSError as error:
                chunk = error
            try:
                loop.call_soon_threadsafe(queue.put_nowait, chunk)
            except RuntimeError:
                return  # the loop is closed: the command has ended

    threading.Thread(target=read_all, name="input", daemon=True).start()
    while chunk := await queue.get():
        if isinstance(chunk, OSError):
            raise chunk
        yield chunk
        room.release()


def _header(pair: str) -> tuple[str, bytes]:
    """Parse a `NAME=VALUE` option. Raises typer.BadParameter."""
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{pair!r}: expected NAME=VALUE", param_hint="--header")
    return name, value.encode("utf-8", "surrogateescape")


def _from_json(line: bytes, number: int) -> Line:
    """Parse a line printed by `consume -J`, `consume -J -r` or `kcat -J`.

    `payload` is required: a line without it would become a tombstone. `key`, `headers` and `ts` are optional; all other
    fields, such as `topic` and `offset`, are ignored. Raises ValueError with the invalid field.
    """
    try:
        parsed = json.loads(
            line,
            parse_float=_Number,
            parse_int=_Number,
            parse_constant=_refuse_constant,
            object_pairs_hook=_Object,
        )
        if not isinstance(parsed, _Object):
            raise ValueError("expected a JSON object as `consume -J` prints it")
        envelope = dict(parsed)
        if "payload" not in envelope:
            raise ValueError("payload: missing; null makes a tombstone")
        return Line(
            _bytes("key", envelope.get("key")),
            _bytes("payload", envelope["payload"]),
            _headers(envelope.get("headers")),
            _timestamp(envelope.get("ts")),
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"line {number}: not JSON: {error}") from None
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None
    except RecursionError:
        raise ValueError(f"line {number}: nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class _Object(list[tuple[str, object]]):
    """Parse a JSON object as names and values in order: a payload may have a name twice."""


class _Number(float):
    """A JSON number with its original digits."""

    text: str

    def __new__(cls, text: str) -> _Number:
        number = super().__new__(cls, text)
        number.text = text
        return number


def _headers(value: object) -> Headers:
    """Parse headers in the format of `consume -J`, a list of [name, value], or of kcat, names and values in turn."""
    if value is None:
        return []
    if not isinstance(value, list) or isinstance(value, _Object):
        raise ValueError("headers: expected a list")
    pairs: list[Any] = value
    if not all(isinstance(pair, list) for pair in value):
        if len(value) % 2:
            raise ValueError("headers: a name without a value")
        pairs = list(zip(value[::2], value[1::2], strict=True))
    headers = []
    for pair in pairs:
        if len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError("headers: expected a name and a value")
        headers.append((_utf8("headers", pair[0]).decode(), _bytes("headers", pair[1])))
    return headers


def _timestamp(value: object) -> int | None:
    """Return milliseconds; None for a missing field, null and -1, which is printed for a record without a timestamp."""
    if value is None:
        return None
    text = value.text if isinstance(value, _Number) else ""
    if not text.lstrip("-").isdecimal() or not -1 <= int(text) < 1 << 63:
        raise ValueError("ts: expected milliseconds since 1970")
    return None if int(text) == -1 else int(text)


def _bytes(field: str, value: object) -> bytes | None:
    """Parse text, null, or `{"base64": …}` for bytes that are not UTF-8; any other JSON value is stored as JSON.

    `consume -r` prints the latter for a record with a schema. Raises ValueError.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _utf8(field, value)
    if isinstance(value, _Object) and len(value) == 1 and value[0][0] == "base64" and isinstance(value[0][1], str):
        try:
            return base64.b64decode(value[0][1], validate=True)
        except ValueError:
            raise ValueError(f"{field}: not valid base64") from None
    return _utf8(field, _json_text(value))


def _utf8(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{field}: a lone surrogate cannot be stored as UTF-8") from None


def _json_text(value: object) -> str:
    """Encode a JSON value as compact JSON, with its numbers as they were written."""
    if isinstance(value, _Number):
        return value.text
    if isinstance(value, _Object):
        return "{" + ",".join(f"{_json_text(name)}:{_json_text(item)}" for name, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _unescape(option: str, text: str) -> bytes:
    """Decode text with escapes such as `\\t`. Raises typer.BadParameter."""
    try:
        found = text.encode().decode("unicode_escape").encode("latin-1")
    except UnicodeError:
        found = b""
    if not found:
        raise typer.BadParameter(f"{option} {text}: expected text with escapes such as \\t; a backslash is \\\\")
    return found
