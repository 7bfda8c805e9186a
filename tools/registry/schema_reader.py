"""Schemas parsed and compared in separate processes, with a limit of time and memory per request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ...clients.worker_process import WorkerFailedError, WorkerProcess
from .errors import RegistryCode, RegistryError, invalid_schema
from .schemas import Reference, RegisteredSchema

ANSWER_SECONDS = 20.0
"""Seconds to parse one schema, or to compare two."""
REQUEST_SECONDS = 60.0
"""Seconds for all parsing and comparing of one request, including waiting."""
MAX_CHARS = 4 << 20
"""Maximum characters of a schema with its references."""
_MAX_IMPORTED = 1000
_SMALL = 8 << 10
_WORKER = f"{__name__.rpartition('.')[0]}.worker"


@dataclass(frozen=True, slots=True)
class ReadSchema:
    """A parsed schema: its stored text, and a digest that is equal for equivalent texts."""

    text: str
    identity: str


class SchemaReader:
    """Two processes, one for small schemas, which do not wait for large ones. Used on one event loop.

    Cancelling a call ends its process, and with it the work.
    """

    def __init__(self, find: Callable[[Reference], RegisteredSchema]) -> None:
        """`find` returns referenced schemas; it raises RegistryError."""
        self._find = find
        self._small = WorkerProcess(_WORKER, ANSWER_SECONDS, "read")
        self._large = WorkerProcess(_WORKER, ANSWER_SECONDS, "read")

    async def close(self) -> None:
        """End the processes."""
        await asyncio.gather(self._small.close(), self._large.close())

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Limit the work of one request in these processes. Raises RegistryError."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                yield
        except TimeoutError:
            text = f"Parsing and comparing the schemas took longer than {REQUEST_SECONDS:g} seconds"
            raise RegistryError(RegistryCode.STORE_TIMEOUT, text) from None

    async def read(self, schema: RegisteredSchema, *, is_new: bool) -> ReadSchema:
        """Parse a schema; a new schema is checked more strictly than a registered one. Raises RegistryError."""
        said = await self._ask({"schema": self._resolved(schema), "is_new": is_new})
        return ReadSchema(said["text"], said["identity"])

    async def serialized(self, schema: RegisteredSchema) -> str:
        """Return the base64 descriptor of a Protobuf schema. Raises RegistryError."""
        return str((await self._ask({"schema": self._resolved(schema), "serialized": True}))["text"])

    async def incompatibilities(self, level: str, new: RegisteredSchema, old: RegisteredSchema) -> list[str]:
        """Return the incompatibilities of the new schema with the old one, of the same type. Raises RegistryError."""
        asked = {"schema": self._resolved(new), "old": self._resolved(old), "level": level}
        return list((await self._ask(asked))["found"])

    async def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        size = sum(_size(question[name]) for name in ("schema", "old") if name in question)
        try:
            said = await (self._small if size <= _SMALL else self._large).ask(question)
        except WorkerFailedError as error:
            raise invalid_schema(f"it is {error}") from None
        if "error" in said:
            raise invalid_schema(said["error"])
        return said

    def _resolved(self, schema: RegisteredSchema) -> list[Any]:
        return [schema.kind, schema.text, list(self._imported(schema).items())]

    def _imported(self, schema: RegisteredSchema) -> dict[str, str]:
        """Return the texts of all references, by name, in the order of their dependencies. Raises RegistryError."""
        found: dict[str, str] = {}
        left = MAX_CHARS - len(schema.text)

        def look(references: tuple[Reference, ...], above: frozenset[Reference]) -> None:
            nonlocal left
            for reference in references:
                if reference in above:
                    raise invalid_schema(f"references form a cycle at {reference.subject}")
                if reference.name not in found:
                    other = self._find(reference)
                    left -= len(other.text)
                    if left < 0 or len(found) + len(above) >= _MAX_IMPORTED:
                        raise invalid_schema(
                            f"the schema has references to more than {_MAX_IMPORTED} schemas or {MAX_CHARS} characters"
                        )
                    look(other.references, above | {reference})
                    found[reference.name] = other.text

        try:
            look(schema.references, frozenset())
        except RecursionError:
            raise invalid_schema("references are nested too deeply") from None
        return found


def _size(asked: list[Any]) -> int:
    return len(asked[1]) + sum(len(text) for _, text in asked[2])
