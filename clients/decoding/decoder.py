"""Keys and values decoded with their schemas.

Bytes that begin with a zero and a number (Confluent's wire format) have the schema with that id; bytes without it, or
with an unknown id, have the topic's schema, if there is one. A schema that makes the decoder crash or time out is not
used for a while, so that a hostile topic costs other topics little.
"""

from __future__ import annotations

import asyncio
import base64
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from ..host import beside_loop
from ..worker_process import WorkerFailedError, WorkerProcess
from .schemas import Schema, SchemaSource, first

Part = Literal["key", "value"]
MAX_DECODED_BYTES = 1 << 20
"""Maximum size of a key or value; larger bytes are not decoded."""
KEPT_SCHEMAS = 200
FRESH_SECONDS = 30.0
"""Seconds until a topic's schema or a missing schema is looked up again, or a failed schema is used again."""
MAX_LOOKUPS = 8
"""Maximum number of schema lookups per call: a writer of records can use any number of ids."""
LOOKUP_SECONDS = 15.0
DECODING_SECONDS = 2.0
"""Seconds for the records of one response."""
_WORKER = f"{__name__.rpartition('.')[0]}.worker"
_HEAD = 5
_NAMES = {"AVRO": "avro", "PROTOBUF": "protobuf", "DESCRIPTORS": "protobuf", "JSON": "json"}
_BATCH_BYTES = 1 << 20

_Where = int | tuple[str, Part]
"""The key of a schema: an id, or a topic's name."""
Frame = bool | None
"""Whether the bytes begin with an id; None if that may be chance."""


class Decoded(NamedTuple):
    """A decoded value: text, or the reason why it cannot be decoded."""

    kind: str
    text: str | None
    error: str | None = None
    is_cut: bool = False
    schema_id: int | None = None
    """The schema id at the beginning of the bytes. None without an id, or if a schema of the topic decodes them."""


class _Found(NamedTuple):
    schema: Schema | None
    error: str | None
    at: float


class Decoder:
    """The decoder of one console, used on one event loop."""

    def __init__(self, sources: Sequence[SchemaSource]) -> None:
        self._sources = tuple(sources)
        self._process = WorkerProcess(_WORKER, DECODING_SECONDS, "decoded")
        self._found: OrderedDict[_Where, asyncio.Task[_Found]] = OrderedDict()
        self._failed: dict[Schema, tuple[str, float]] = {}

    async def close(self) -> None:
        """Stop the process."""
        for task in self._found.values():
            task.cancel()
        await asyncio.gather(*self._found.values(), return_exceptions=True)
        await self._process.close()

    async def decode(
        self, topic: str, part: Part, data: Sequence[bytes | None], *, most: int, indent: int | None = None
    ) -> list[Decoded | None]:
        """Decode each value, to at most `most` characters; None without a schema."""
        found: list[Decoded | None] = [None] * len(data)
        if not self._sources:
            return found
        for schema, at in (await self._by_schema(topic, part, data, found)).items():
            await self._apply(schema, [(index, data[index] or b"", frame) for index, frame in at], found, most, indent)
        return found

    async def _by_schema(
        self, topic: str, part: Part, data: Sequence[bytes | None], found: list[Decoded | None]
    ) -> dict[Schema, list[tuple[int, Frame]]]:
        """Return which values have a schema, and whether they have a frame."""
        numbers = {i: int.from_bytes(one[1:_HEAD]) for i, one in enumerate(data) if one and _is_framed(one)}
        wanted: dict[_Where, None] = {(topic, part): None, **dict.fromkeys(numbers.values())}
        await self._look_up(list(wanted))
        of_topic = self._known((topic, part))
        groups: dict[Schema, list[tuple[int, Frame]]] = {}
        for index, one in enumerate(data):
            if not one or len(one) > MAX_DECODED_BYTES:
                continue
            of_number = self._known(numbers[index]) if index in numbers else None
            if of_number is not None and of_number.schema is not None:
                groups.setdefault(of_number.schema, []).append((index, True))
            elif of_topic is not None and of_topic.schema is not None:
                groups.setdefault(of_topic.schema, []).append((index, None if index in numbers else False))
            else:
                error = next((one.error for one in (of_number, of_topic) if one is not None and one.error), None)
                found[index] = None if error is None else Decoded("schema", None, error, schema_id=numbers.get(index))
        return groups

    async def _look_up(self, wanted: list[_Where]) -> None:
        now = asyncio.get_running_loop().time()
        asked = 0
        tasks = []
        for where in wanted:
            task = self._found.get(where)
            if task is None or (task.done() and self._is_stale(where, task.result(), now)):
                if asked == MAX_LOOKUPS:
                    continue
                asked += 1
                task = asyncio.get_running_loop().create_task(self._find(where))
                self._found[where] = task
            self._found.move_to_end(where)
            tasks.append(task)
        for task in tasks:
            await asyncio.shield(task)
        old = [where for where, task in self._found.items() if task.done()]
        for where in old[: max(0, len(self._found) - KEPT_SCHEMAS)]:
            del self._found[where]

    @staticmethod
    def _is_stale(where: _Where, found: _Found, now: float) -> bool:
        """Return whether a result must be looked up again; the schema of an id never changes."""
        return (not isinstance(where, int) or found.schema is None) and now - found.at > FRESH_SECONDS

    def _known(self, where: _Where) -> _Found | None:
        task = self._found.get(where)
        return task.result() if task is not None and task.done() and not task.cancelled() else None

    async def _find(self, where: _Where) -> _Found:
        schema = error = None
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                schema = await beside_loop(lambda: first(self._sources, lambda source: _ask(source, where)))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as failure:
            error = str(failure) or "the schema registry does not respond"
        return _Found(schema, error, asyncio.get_running_loop().time())

    async def _apply(
        self,
        schema: Schema,
        of_schema: list[tuple[int, bytes, Frame]],
        found: list[Decoded | None],
        most: int,
        indent: int | None,
    ) -> None:
        kind, loop = _NAMES.get(schema.kind, "schema"), asyncio.get_running_loop()
        while of_schema:
            batch, of_schema = _split(of_schema)
            reason, since = self._failed.get(schema, ("", -FRESH_SECONDS))
            if loop.time() - since < FRESH_SECONDS:
                answer: dict[str, Any] = {"error": reason}
            else:
                rows = [(base64.b64encode(one).decode(), frame) for _, one, frame in batch]
                asked = {"schema": schema._asdict(), "data": rows, "most": most, "indent": indent}
                try:
                    answer = await self._process.ask(asked)
                except WorkerFailedError as error:
                    answer = {"error": str(error)}
                    self._failed = {s: f for s, f in self._failed.items() if loop.time() - f[1] < FRESH_SECONDS}
                    self._failed[schema] = str(error), loop.time()
            told = answer.get("rows") or [(None, answer["error"], False)] * len(batch)
            for (index, data, frame), (text, reason, is_cut) in zip(batch, told, strict=True):
                schema_id = int.from_bytes(data[1:_HEAD]) if frame else None
                found[index] = Decoded(kind, text, reason, is_cut, schema_id)


def _is_framed(data: bytes) -> bool:
    return len(data) >= _HEAD and data[0] == 0


def _ask(source: SchemaSource, where: _Where) -> Schema | None:
    return source.by_number(where) if isinstance(where, int) else source.by_subject(*where)


def _split(
    rows: list[tuple[int, bytes, Frame]],
) -> tuple[list[tuple[int, bytes, Frame]], list[tuple[int, bytes, Frame]]]:
    """Split the values into one batch for the process and the rest."""
    size = 0
    for count, (_, data, _) in enumerate(rows, 1):
        size += len(data)
        if size > _BATCH_BYTES:
            return rows[:count], rows[count:]
    return rows, []
