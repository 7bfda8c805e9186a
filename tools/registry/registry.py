"""The operations of the registry: each reads the state of the log, decides, writes, and returns after its record was
read back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ..connection_settings import ConnectionSettings
from . import records
from .errors import (
    RegistryCode,
    RegistryError,
    invalid_schema,
    no_schema,
)
from .schema_log import SchemaLog
from .schema_reader import ReadSchema, SchemaReader
from .schemas import (
    PROTOBUF,
    Reference,
    RegisteredSchema,
    Version,
)
from .subjects import LATEST, Subjects

DEFAULT_LEVEL = "BACKWARD"
LEVELS = ("NONE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE")
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
_READ_ONLY = frozenset({"READONLY", "READONLY_OVERRIDE"})
_MAX_NUMBER = 2**31 - 1
_MAX_DIFFERENCES = 100
"""Maximum number of reported incompatibilities of all versions together."""
_MAX_IDENTITIES = 20_000


class Registry:
    """The registry, used between `start` and `close` on one event loop. Changes are serialized."""

    def __init__(self, connection_settings: ConnectionSettings) -> None:
        self.subjects = Subjects()
        self._log = SchemaLog(connection_settings, self.subjects.apply)
        self._reader = SchemaReader(self._find_reference)
        self._identities: dict[RegisteredSchema, str | None] = {}
        """Cache of compared schemas; None for a schema that cannot be read."""
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Read the topic. Raises KafkaError, ValueError."""
        await self._log.start()

    async def close(self) -> None:
        """Release all resources."""
        await self._reader.close()
        await self._log.close()

    # -- schemas -----------------------------------------------------------------------------------------------------

    async def register(self, subject: str, body: Mapping[str, Any]) -> Version:
        """Return the version of the subject with this schema, registering it if necessary. Raises RegistryError."""
        if subject in ("", "__GLOBAL", "__EMPTY"):
            raise RegistryError(
                RegistryCode.INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid subject."
            )
        wanted_id, wanted_number = _whole(body.get("id")), _whole(body.get("version"))
        async with self._reader.request():
            schema, read = await self._kept(body, is_new=True)
        while True:
            before = self._compared_with(subject)
            async with self._reader.request():
                found = await self._find(subject, schema, read)
                if found is not None and wanted_id in (None, found.schema_id):
                    return found
                self._check_mode(subject, with_id=wanted_id is not None)
                if wanted_id is None:
                    await self._check_compatible(subject, schema)
            async with self._changing():
                if self._compared_with(subject) != before:
                    continue  # another request changed the subject while the schemas were compared
                self._check_mode(subject, with_id=wanted_id is not None)
                for reference in schema.references:
                    self._find_reference(reference)
                known = self.subjects.id_of(schema) if wanted_id is None else self._checked_id(wanted_id, schema)
                number = wanted_number or self.subjects.next_number(subject)
                if wanted_id is None and number != self.subjects.next_number(subject):
                    # Another version would be overwritten, and with it the only schema with its id.
                    raise invalid_schema("Version is not one more than previous version")
                version = Version(subject, number, known or self.subjects.last_id + 1, schema)
                await self._log.write([records.schema_record(version)])
                return version

    async def look_up(self, subject: str, body: Mapping[str, Any], *, deleted: bool = False) -> Version:
        """Return the version with this schema. Raises RegistryError."""
        self.subjects.versions(subject, deleted=deleted)
        async with self._reader.request():
            schema, read = await self._kept(body, is_new=False)
            found = await self._find(subject, schema, read, deleted=deleted)
        if found is None:
            raise no_schema()
        return found

    async def schema(self, schema_id: int, *, format: str = "") -> RegisteredSchema:  # noqa: A002 - the name in the API
        """Return a schema by its id; Protobuf as `serialized` is its base64 descriptor. Raises RegistryError."""
        versions = self.subjects.of_id(schema_id)
        if not versions:
            raise no_schema(schema_id)
        return await self.formatted(versions[0].schema, format)

    async def formatted(self, schema: RegisteredSchema, format: str) -> RegisteredSchema:  # noqa: A002
        """Return a version for a response. Raises RegistryError."""
        if format != "serialized" or schema.kind != PROTOBUF:
            return schema
        async with self._reader.request():
            return schema.with_text(await self._reader.serialized(schema))

    def version(self, subject: str, number: str, *, deleted: bool = False) -> Version:
        """Return a version by its number, `latest` or -1. Raises RegistryError."""
        return self.subjects.version(subject, _number(number), deleted=deleted)

    async def delete_version(self, subject: str, number: str, *, permanent: bool) -> int:
        """Soft-delete a version, or delete a soft-deleted version permanently. Raises RegistryError."""
        async with self._changing():
            self._check_mode(subject)
            version = self.subjects.version(subject, _number(number), deleted=permanent or _number(number) != LATEST)
            self._check_unused([version])
            name = f"Subject '{subject}' Version {version.number}"
            if permanent and not version.is_deleted:
                text = f"{name} was not deleted first before being permanently deleted"
                raise RegistryError(RegistryCode.VERSION_NOT_SOFT_DELETED, text)
            if not permanent and version.is_deleted:
                text = f"{name} was soft deleted.Set permanent=true to delete permanently"
                raise RegistryError(RegistryCode.VERSION_SOFT_DELETED, text)
            await self._log.write([_gone(version) if permanent else _hidden(version)])
            return version.number

    async def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Soft-delete all versions, or delete soft-deleted versions permanently. Raises RegistryError."""
        async with self._changing():
            self._check_mode(subject)
            versions = self.subjects.versions(subject, deleted=True)
            alive = [version for version in versions if not version.is_deleted]
            if permanent and alive:
                text = f"Subject '{subject}' was not deleted first before being permanently deleted"
                raise RegistryError(RegistryCode.SUBJECT_NOT_SOFT_DELETED, text)
            if not permanent and not alive:
                text = f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
                raise RegistryError(RegistryCode.SUBJECT_SOFT_DELETED, text)
            self._check_unused(versions)
            if permanent:
                settings = [records.config_record(subject, None), records.mode_record(subject, None)]
                await self._log.write([*map(_gone, versions), *settings])
                return [version.number for version in versions]
            await self._log.write([records.delete_subject_record(subject, alive[-1].number)])
            return [version.number for version in alive]

    async def incompatibilities(self, subject: str, number: str | None, body: Mapping[str, Any]) -> list[str]:
        """Return the incompatibilities of a schema as the next version, or with this version. Raises RegistryError."""
        async with self._reader.request():
            schema, _ = await self._kept(body, is_new=True)
            if number is not None:
                return await self._against(subject, schema, [self.version(subject, number)])
            versions = self.subjects.versions(subject) if self.subjects.has(subject) else []
            return await self._against(subject, schema, versions[::-1])

    # -- levels and modes --------------------------------------------------------------------------------------------

    def level(self, subject: str | None, *, or_global: bool = True) -> str:
        """Return the compatibility of a subject, or the global one. Raises RegistryError if only its own is requested
        and missing.
        """
        if subject is not None and subject not in self.subjects.levels and not or_global:
            text = f"Subject '{subject}' does not have subject-level compatibility configured"
            raise RegistryError(RegistryCode.NO_SUBJECT_COMPATIBILITY, text)
        return self.subjects.levels.get(subject, self.subjects.levels.get(None, DEFAULT_LEVEL))

    async def set_level(self, subject: str | None, said: object) -> str:
        """Set the compatibility. Raises RegistryError."""
        level = level_of(said)
        async with self._changing():
            self._check_mode(subject)
            await self._log.write([records.config_record(subject, level)])
        return level

    async def forget_level(self, subject: str | None) -> str:
        """Remove the compatibility, and return it. Raises RegistryError."""
        async with self._changing():
            self._check_mode(subject)
            before = self.level(subject, or_global=subject is None)
            await self._log.write([records.config_record(subject, None)])
        return before

    def mode(self, subject: str | None, *, or_global: bool = True) -> str:
        """Return the mode of a subject, or the global one. Raises RegistryError if only its own is requested and
        missing.
        """
        if subject is not None and subject not in self.subjects.modes and not or_global:
            text = f"Subject '{subject}' does not have subject-level mode configured"
            raise RegistryError(RegistryCode.NO_SUBJECT_MODE, text)
        return self.subjects.modes.get(subject, self.subjects.modes.get(None, MODES[0]))

    async def set_mode(self, subject: str | None, said: object, *, force: bool) -> str:
        """Set the mode. Import of schemas with their ids requires an empty registry, unless forced. Raises
        RegistryError.
        """
        mode = said.upper() if isinstance(said, str) else ""
        if mode not in MODES:
            raise RegistryError(RegistryCode.INVALID_MODE, f"Invalid mode. Valid values are {', '.join(MODES)}")
        async with self._changing():
            occupied = self.subjects.names() if subject is None else self.subjects.has(subject)
            if mode == "IMPORT" and occupied and not force and self.mode(subject) != mode:
                raise RegistryError(RegistryCode.NOT_PERMITTED, "Cannot import since found existing subjects")
            await self._log.write([records.mode_record(subject, mode)])
        return mode

    async def forget_mode(self, subject: str) -> str:
        """Remove the mode, and return it. Raises RegistryError."""
        async with self._changing():
            before = self.mode(subject, or_global=False)
            await self._log.write([records.mode_record(subject, None)])
        return before

    # -- internals --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Enter a serialized change after all written records have been read. Raises RegistryError."""
        async with self._lock:
            await self._log.settle()
            yield

    async def _kept(self, body: Mapping[str, Any], *, is_new: bool) -> tuple[RegisteredSchema, ReadSchema]:
        """Return a schema in its stored form: its canonical text, with the present references. Raises RegistryError."""
        schema = RegisteredSchema.from_json(body)
        pinned = [
            replace(one, version=self.subjects.version(one.subject, one.version).number)
            if one.version == LATEST
            else one
            for one in schema.references
        ]
        schema = replace(schema, references=tuple(pinned))
        read = await self._reader.read(schema, is_new=is_new)
        return schema.with_text(read.text), read

    def _compared_with(self, subject: str) -> tuple[Any, ...]:
        """Check whether a schema may become the subject's next version."""
        versions = self.subjects.versions(subject) if self.subjects.has(subject) else []
        return self.level(subject), versions

    def _find_reference(self, reference: Reference) -> RegisteredSchema:
        try:
            return self.subjects.version(reference.subject, reference.version, deleted=True).schema
        except RegistryError:
            text = f'No schema reference found for subject "{reference.subject}" and version {reference.version}'
            raise invalid_schema(text) from None

    async def _find(
        self, subject: str, schema: RegisteredSchema, read: ReadSchema, *, deleted: bool = False
    ) -> Version | None:
        """Return the newest version with this schema, also in an equivalent text: Protobuf is stored as sent, and other
        registries or earlier versions may have written another form. Raises RegistryError.
        """
        if not self.subjects.has(subject, deleted=deleted):
            return None
        versions = self.subjects.versions(subject, deleted=deleted)[::-1]
        for version in versions:
            if version.schema == schema:
                return version
        for version in versions:
            is_candidate = version.schema == schema.with_text(version.schema.text)
            if is_candidate and await self._identity(version.schema) == read.identity:
                return version
        return None

    async def _identity(self, schema: RegisteredSchema) -> str | None:
        if schema not in self._identities:
            if len(self._identities) >= _MAX_IDENTITIES:
                self._identities.clear()
            try:
                self._identities[schema] = (await self._reader.read(schema, is_new=False)).identity
            except RegistryError:
                self._identities[schema] = None
        return self._identities[schema]

    def _checked_id(self, schema_id: int, schema: RegisteredSchema) -> int:
        """Check that an imported id is unused, or belongs to this schema."""
        for version in self.subjects.of_id(schema_id):
            if version.schema != schema:
                text = f"Overwrite new schema with id {schema_id} is not permitted."
                raise RegistryError(RegistryCode.NOT_PERMITTED, text)
        return schema_id

    def _check_mode(self, subject: str | None, *, with_id: bool | None = None) -> None:
        """Check that the mode permits the change; for a schema, with or without its own id."""
        for_all = self.mode(None)
        mode = for_all if for_all == "READONLY_OVERRIDE" else self.mode(subject)
        if mode in _READ_ONLY:
            why = "is in read-only mode"
        elif with_id and mode != "IMPORT":
            why = "is not in import mode"
        elif with_id is False and mode == "IMPORT":
            why = "is not in read-write mode"
        else:
            return
        raise RegistryError(RegistryCode.NOT_PERMITTED, f"Subject {subject} {why}")

    async def _check_compatible(self, subject: str, schema: RegisteredSchema) -> None:
        versions = self.subjects.versions(subject) if self.subjects.has(subject) else []
        found = await self._against(subject, schema, versions[::-1])
        if found:
            text = f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
            text += f"[{', '.join(found)}, {{compatibility: '{self.level(subject)}'}}]"
            raise RegistryError(RegistryCode.INCOMPATIBLE, text)

    async def _against(self, subject: str, schema: RegisteredSchema, versions: Sequence[Version]) -> list[str]:
        """Return the incompatibilities of a schema with these versions, newest first; a transitive level compares
        all.
        """
        level, found = self.level(subject), list[str]()
        for version in versions if level != "NONE" else ():
            place = f"version {version.number}"
            if version.schema.kind != schema.kind:
                found.append(f"Incompatible because of different schema type, {place} is {version.schema.kind}")
            else:
                differences = await self._reader.incompatibilities(level, schema, version.schema)
                found += [f"{place}: {one}" for one in differences]
            if not level.endswith("_TRANSITIVE") or len(found) >= _MAX_DIFFERENCES:
                break
        return found[:_MAX_DIFFERENCES]

    def _check_unused(self, versions: Sequence[Version]) -> None:
        for version in versions:
            if self.subjects.referrers(version.subject, version.number):
                key = f"{{magic=1,keytype=SCHEMA,subject={version.subject},version={version.number}}}"
                text = f"One or more references exist to the schema {key}."
                raise RegistryError(RegistryCode.REFERENCE_EXISTS, text)


def _gone(version: Version) -> records.Record:
    return records.schema_key(version.subject, version.number), None


def _hidden(version: Version) -> records.Record:
    return records.schema_record(replace(version, is_deleted=True))


def level_of(said: object) -> str:
    """Raise RegistryError for an invalid level."""
    if isinstance(said, str) and said.upper() in LEVELS:
        return said.upper()
    *most, last = (level.lower() for level in LEVELS)
    text = f"Invalid compatibility level. Valid values are {', '.join(most)}, and {last}"
    raise RegistryError(RegistryCode.INVALID_COMPATIBILITY, text)


def _number(said: str) -> int:
    """Parse a version's number or LATEST. Raises RegistryError."""
    if said == "latest" or said == "-1":
        return LATEST
    if said.isascii() and said.isdecimal() and 1 <= int(said[:12]) <= _MAX_NUMBER:
        return int(said)
    text = f"The specified version '{said}' is not a valid version id. "
    text += 'Allowed values are between [1, 2^31-1] and the string "latest"'
    raise RegistryError(RegistryCode.INVALID_VERSION, text)


def _whole(said: object) -> int | None:
    """Parse an id or a number of a request; values below 1 mean none."""
    if isinstance(said, bool) or not isinstance(said, int) or said < 1:
        return None
    if said > _MAX_NUMBER:
        raise invalid_schema(f"{said}: invalid id")
    return said
