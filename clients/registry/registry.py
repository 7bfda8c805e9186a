"""What the registry does: looks at what the log amounts to, decides, writes, and answers once it was read back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ..host import beside_loop
from ..reach import Reach
from . import formats, records
from .compatibility import DEFAULT_LEVEL, incompatibilities, level_of
from .errors import RegistryCode, RegistryError, invalid_schema, no_schema
from .schema_log import SchemaLog
from .schemas import PROTOBUF, Reference, RegisteredSchema, Version
from .subjects import LATEST, Subjects

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
_READ_ONLY = frozenset({"READONLY", "READONLY_OVERRIDE"})
_MOST_NUMBER = 2**31 - 1


class Registry:
    """Use between `start` and `close`, from one loop. Whatever changes something takes its turn."""

    def __init__(self, reach: Reach) -> None:
        self.subjects = Subjects()
        self._log = SchemaLog(reach, self.subjects.apply)
        self._turn = asyncio.Lock()
        self._reading = asyncio.Lock()

    async def start(self) -> None:
        """Read what is there. Raises KafkaError, ValueError."""
        await self._log.start()

    async def close(self) -> None:
        """Give everything back."""
        await self._log.close()

    # -- schemas -----------------------------------------------------------------------------------------------------

    async def register(self, subject: str, body: Mapping[str, Any]) -> Version:
        """The version that a schema is of the subject, made if it is none yet. Raises RegistryError."""
        schema = await self._kept(RegisteredSchema.from_json(body))
        async with self._changing():
            if subject in ("", "__GLOBAL", "__EMPTY"):
                raise RegistryError(
                    RegistryCode.INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid subject."
                )
            wanted_id, wanted_number = _whole(body.get("id")), _whole(body.get("version"))
            found = self._find(subject, schema)
            if found is not None and wanted_id in (None, found.schema_id):
                return found
            self._check_mode(subject, with_id=wanted_id is not None)
            if wanted_id is None:
                self._check_compatible(subject, schema)
            known = self.subjects.id_of(schema) if wanted_id is None else self._checked_id(wanted_id, schema)
            number = wanted_number or self.subjects.next_number(subject)
            if wanted_id is None and number != self.subjects.next_number(subject):
                # Another one would be written over, and with it the only schema of its id.
                raise invalid_schema("Version is not one more than previous version")
            version = Version(subject, number, known or self.subjects.last_id + 1, schema)
            await self._log.write([records.schema_record(version)])
            return version

    async def look_up(self, subject: str, body: Mapping[str, Any], *, deleted: bool = False) -> Version:
        """The version that a schema is. Raises RegistryError."""
        self.subjects.versions(subject, deleted=deleted)
        found = self._find(subject, await self._kept(RegisteredSchema.from_json(body)), deleted=deleted)
        if found is None:
            raise no_schema()
        return found

    def schema(self, schema_id: int, *, format: str = "") -> RegisteredSchema:  # noqa: A002 - the API's word
        """By its id; Protobuf as `serialized` is its descriptor in base64. Raises RegistryError."""
        versions = self.subjects.of_id(schema_id)
        if not versions:
            raise no_schema(schema_id)
        return self.formatted(versions[0].schema, format)

    def formatted(self, schema: RegisteredSchema, format: str) -> RegisteredSchema:  # noqa: A002
        """As an answer is to have it."""
        if format != "serialized" or schema.kind != PROTOBUF:
            return schema
        return schema.with_text(formats.read(schema, self._find_reference).serialized())

    def version(self, subject: str, number: str, *, deleted: bool = False) -> Version:
        """By its number, `latest` or -1. Raises RegistryError."""
        return self.subjects.version(subject, _number(number), deleted=deleted)

    async def delete_version(self, subject: str, number: str, *, permanent: bool) -> int:
        """Softly, or what was deleted softly for good. Raises RegistryError."""
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
        """All its versions, softly, or if that is done, for good. Raises RegistryError."""
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
        """What speaks against a schema as the next version, or against it beside this one. Raises RegistryError."""
        schema = await self._kept(RegisteredSchema.from_json(body))
        if number is not None:
            return self._against(subject, schema, [self.version(subject, number)])
        versions = self.subjects.versions(subject) if self.subjects.has(subject) else []
        return self._against(subject, schema, versions[::-1])

    # -- levels and modes --------------------------------------------------------------------------------------------

    def level(self, subject: str | None, *, or_global: bool = True) -> str:
        """The compatibility of a subject, or of all. Raises RegistryError if it has none and only its own will do."""
        if subject is not None and subject not in self.subjects.levels and not or_global:
            text = f"Subject '{subject}' does not have subject-level compatibility configured"
            raise RegistryError(RegistryCode.NO_SUBJECT_COMPATIBILITY, text)
        return self.subjects.levels.get(subject, self.subjects.levels.get(None, DEFAULT_LEVEL))

    async def set_level(self, subject: str | None, said: object) -> str:
        """Raises RegistryError."""
        level = level_of(said)
        async with self._changing():
            self._check_mode(subject)
            await self._log.write([records.config_record(subject, level)])
        return level

    async def forget_level(self, subject: str | None) -> str:
        """What it was. Raises RegistryError."""
        async with self._changing():
            self._check_mode(subject)
            before = self.level(subject, or_global=subject is None)
            await self._log.write([records.config_record(subject, None)])
        return before

    def mode(self, subject: str | None, *, or_global: bool = True) -> str:
        """Of a subject, or of all. Raises RegistryError if it has none and only its own will do."""
        if subject is not None and subject not in self.subjects.modes and not or_global:
            text = f"Subject '{subject}' does not have subject-level mode configured"
            raise RegistryError(RegistryCode.NO_SUBJECT_MODE, text)
        return self.subjects.modes.get(subject, self.subjects.modes.get(None, MODES[0]))

    async def set_mode(self, subject: str | None, said: object, *, force: bool) -> str:
        """Schemas with ids of their own are imported into what is empty, unless it is forced. Raises RegistryError."""
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
        """What it was. Raises RegistryError."""
        async with self._changing():
            before = self.mode(subject, or_global=False)
            await self._log.write([records.mode_record(subject, None)])
        return before

    # -- inside ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """A turn, at which all is known that was written: who decides what is next has to. Raises RegistryError."""
        async with self._turn:
            await self._log.settle()
            yield

    async def _kept(self, schema: RegisteredSchema) -> RegisteredSchema:
        """As it is kept: read, in its own words, with the references it has now. Raises RegistryError."""
        pinned = [
            replace(one, version=self.subjects.version(one.subject, one.version).number)
            if one.version == LATEST
            else one
            for one in schema.references
        ]
        schema = replace(schema, references=tuple(pinned))
        kept = schema.with_text((await self._read_beside(schema)).text)
        await self._read_beside(kept)  # which is known then where the loop compares it
        return kept

    async def _read_beside(self, schema: RegisteredSchema) -> Any:
        """Beside the loop, one at a time: what a stranger sends may take half a minute. Raises RegistryError."""
        texts = formats.imported(schema, self._find_reference)
        async with self._reading:
            return await beside_loop(lambda: formats.read_with(schema, texts))

    def _read(self, schema: RegisteredSchema) -> Any:
        return formats.read(schema, self._find_reference)

    def _find_reference(self, reference: Reference) -> RegisteredSchema:
        try:
            return self.subjects.version(reference.subject, reference.version, deleted=True).schema
        except RegistryError:
            text = f'No schema reference found for subject "{reference.subject}" and version {reference.version}'
            raise invalid_schema(text) from None

    def _find(self, subject: str, schema: RegisteredSchema, *, deleted: bool = False) -> Version | None:
        """The newest version that is this schema; Protobuf may be the same in other words."""
        if not self.subjects.has(subject, deleted=deleted):
            return None
        for version in reversed(self.subjects.versions(subject, deleted=deleted)):
            if version.schema == schema:
                return version
            alike = schema.kind == PROTOBUF and version.schema == schema.with_text(version.schema.text)
            if alike and self._read(version.schema).identity == self._read(schema).identity:
                return version
        return None

    def _checked_id(self, schema_id: int, schema: RegisteredSchema) -> int:
        """An imported id is free, or this schema's already."""
        for version in self.subjects.of_id(schema_id):
            if version.schema != schema:
                text = f"Overwrite new schema with id {schema_id} is not permitted."
                raise RegistryError(RegistryCode.NOT_PERMITTED, text)
        return schema_id

    def _check_mode(self, subject: str | None, *, with_id: bool | None = None) -> None:
        """Whether it may be changed; a schema, with an id of its own or without."""
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

    def _check_compatible(self, subject: str, schema: RegisteredSchema) -> None:
        versions = self.subjects.versions(subject) if self.subjects.has(subject) else []
        found = self._against(subject, schema, versions[::-1])
        if found:
            text = f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
            text += f"[{', '.join(found)}, {{compatibility: '{self.level(subject)}'}}]"
            raise RegistryError(RegistryCode.INCOMPATIBLE, text)

    def _against(self, subject: str, schema: RegisteredSchema, versions: Sequence[Version]) -> list[str]:
        new = self._read(schema)
        compared = incompatibilities(
            self.level(subject), new, schema.kind, versions, lambda version: self._read(version.schema)
        )
        return list(compared)

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


def _number(said: str) -> int:
    """A version's number or LATEST. Raises RegistryError."""
    if said == "latest" or said == "-1":
        return LATEST
    if said.isascii() and said.isdecimal() and 1 <= int(said[:12]) <= _MOST_NUMBER:
        return int(said)
    text = f"The specified version '{said}' is not a valid version id. "
    text += 'Allowed values are between [1, 2^31-1] and the string "latest"'
    raise RegistryError(RegistryCode.INVALID_VERSION, text)


def _whole(said: object) -> int | None:
    """An id or a number that a request may have; what is below 1 is none."""
    if isinstance(said, bool) or not isinstance(said, int) or said < 1:
        return None
    if said > _MOST_NUMBER:
        raise invalid_schema(f"{said} is no id")
    return said
