"""`barnabas produce`: lines or JSON from a pipe or a file into a topic, as kcat does it."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

import typer

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.record import Headers
from ..accumulator import RecordMetadata
from ..producer import Producer
from . import completion
from .client_settings import DEFAULT_BOOTSTRAP, bootstrap_servers, client_arguments, parse_settings
from .session import Bootstrap, record_counter, run_fast

app = typer.Typer(add_completion=False)

_CHUNK = 1 << 20
_BATCH_SIZE = 1 << 18
_MAX_LINE = 64 * 1024 * 1024


class Line(NamedTuple):
    """One record to be, of a line of JSON."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None = None


class LineFormat(NamedTuple):
    """How lines of input become records."""

    key_separator: bytes | None
    key: bytes | None
    headers: Headers
    empty_is_null: bool
    is_json: bool

    def split(self, lines: list[bytes]) -> tuple[list[bytes | None] | None, list[bytes | None]]:
        """Keys, None if there are none, and values."""
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
        typer.Option("--key-separator", "-K", metavar="SEP", help="Key and value of a line stand around it."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of all records.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="Added to each record.")
    ] = None,
    codec: Annotated[str, typer.Option("--codec", "-z", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    file: Annotated[Path | None, typer.Option("--file", "-l", help="Read this instead of standard input.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", help="Only into this one.")] = None,
    delimiter: Annotated[str, typer.Option("--delimiter", "-D", help="What ends a record.")] = "\\n",
    empty_is_null: Annotated[bool, typer.Option("--null", "-Z", help="Empty keys and values are null.")] = False,
    as_json: Annotated[bool, typer.Option("--json", "-J", help="Lines are what `consume -J` prints.")] = False,
    acks: Annotated[str, typer.Option("--acks", "-a", help="all, 1 or 0.")] = "all",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Read records from standard input, one a line, and produce them.

    seq 1000 | barnabas produce numbers
    """
    headers = [(name, value.encode()) for name, value in parse_settings(header or ()).items()]
    separator = None if key_separator is None else _unescape("--key-separator", key_separator)
    end = _unescape("--delimiter", delimiter)
    line_format = LineFormat(separator, None if key is None else key.encode(), headers, empty_is_null, as_json)
    defaults: dict[str, Any] = {"compression": codec, "acks": acks, "batch_size": _BATCH_SIZE}

    async def work() -> int:
        async with Producer(bootstrap_servers(bootstrap), **defaults | client_arguments(Producer)) as producer:
            with sys.stdin.buffer if file is None else file.open("rb") as stream:
                return await _send_all(producer, topic, partition, line_format, _lines(stream, end))

    count = run_fast(work())
    if sys.stderr.isatty():
        typer.echo(f"{count} records", err=True)


async def _send_all(
    producer: Producer, topic: str, partition: int | None, line_format: LineFormat, chunks: AsyncIterator[list[bytes]]
) -> int:
    """Raises the first error of any record, when the next lines are sent or at the end."""
    failed: list[BaseException] = []
    unchecked: set[asyncio.Future[RecordMetadata]] = set()

    def check(future: asyncio.Future[RecordMetadata]) -> None:
        unchecked.discard(future)
        if not failed and (error := future.exception()) is not None:
            failed.append(error)

    if partition is not None and partition not in (found := await producer.partitions_for(topic)):
        # A program may wait for it to come; who has typed it is told at once.
        reason = f"{topic} has {len(found)} partitions, and no {partition}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    count = 0
    with record_counter("produced") as show:
        async for lines in chunks:
            futures = await _send(producer, topic, partition, line_format, lines)
            unchecked.update(futures)
            for future in futures:
                future.add_done_callback(check)
            count += len(lines)
            show(count)
            if failed:
                break
        await producer.flush()
    if unchecked:  # those of the last batches, which nobody has been told of yet
        await asyncio.wait(unchecked)
    if failed:
        raise failed[0]
    return count


async def _send(
    producer: Producer, topic: str, partition: int | None, line_format: LineFormat, lines: list[bytes]
) -> list[asyncio.Future[RecordMetadata]]:
    if not line_format.is_json:
        keys, values = line_format.split(lines)
        return await producer.send_many(topic, values, keys=keys, headers=line_format.headers, partition=partition)
    return [
        await producer.send(
            topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=partition,
            timestamp_ms=record.timestamp_ms,
        )
        for record in map(_from_json, lines)
    ]


async def _lines(stream: BinaryIO, delimiter: bytes) -> AsyncIterator[list[bytes]]:
    """The pieces between delimiters, as they come. Reading waits on a thread: an idle pipe must not hold up batches."""
    loop = asyncio.get_running_loop()
    read = getattr(stream, "read1", stream.read)
    rest = b""
    while chunk := await loop.run_in_executor(None, read, _CHUNK):
        *lines, rest = (rest + chunk).split(delimiter)
        if len(rest) > _MAX_LINE:
            raise ValueError(f"a line of more than {_MAX_LINE} bytes; what ends a record is set with --delimiter")
        if lines:
            yield lines
    if rest:
        yield [rest]


def _from_json(line: bytes) -> Line:
    """Raises ValueError for a line that is not the JSON it should be."""
    try:
        envelope: dict[str, Any] = json.loads(line)
        headers = [(name, _bytes(value)) for name, value in envelope.get("headers") or ()]
        return Line(_bytes(envelope.get("key")), _bytes(envelope.get("payload")), headers, envelope.get("ts"))
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"no envelope as `consume -J` prints it: {error}") from error


def _bytes(value: str | dict[str, str] | None) -> bytes | None:
    """Text, or `{"base64": …}` for bytes that are no text."""
    if value is None:
        return None
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value.encode()


def _unescape(option: str, text: str) -> bytes:
    """Text with escapes as `\\t`. Raises typer.BadParameter."""
    try:
        found = text.encode().decode("unicode_escape").encode("latin-1")
    except UnicodeError:
        found = b""
    if not found:
        raise typer.BadParameter(f"{option} {text}: text is expected, with escapes such as \\t; a backslash is \\\\")
    return found
