"""What the records of `_schemas` amount to: versions by subject, ids, levels and modes. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...protocol.room_logger import room_logger
from . import records
from .errors import RegistryError, no_subject, no_version
from .schemas import RegisteredSchema, Version

logger = room_logger("clients")
LATEST = -1


class Subjects:
    """Grows record by record. One thread."""

    def __init__(self) -> None:
        self.levels: dict[str | None, str] = {}
        """Compatibility by subject; None is everybody's."""
        self.modes: dict[str | None, str] = {}
        self.last_id = 0
        self._versions: dict[str, dict[int, Version]] = {}
        self._ids: dict[RegisteredSchema, int] = {}

    # -- reading -----------------------------------------------------------------------------------------------------

    def names(self, *, deleted: bool = False) -> list[str]:
        """Of all subjects that have a version."""
        return sorted(name for name in self._versions if self.has(name, deleted=deleted))

    def has(self, subject: str, *, deleted: bool = False) -> bool:
        """Whether there is a version of it, of those `deleted` softly too."""
        return any(deleted or not version.is_deleted for version in self._versions.get(subject, {}).values())

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """In their order. Raises RegistryError if there is none."""
        found = [one for _, one in sorted(self._versions.get(subject, {}).items()) if deleted or not one.is_deleted]
        if not found:
            raise no_subject(subject)
        return found

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        """One, or the LATEST. Raises RegistryError."""
        found = self.versions(subject, deleted=deleted)
        if number == LATEST:
            return found[-1]
        for version in found:
            if version.number == number:
                return version
        raise no_version(number)

    def next_number(self, subject: str) -> int:
        """What the next version will be called, which no version was."""
        return max(self._versions.get(subject, {}), default=0) + 1

    def all_versions(self, *, deleted: bool = False) -> Iterator[Version]:
        """Of all subjects."""
        for subject in self.names(deleted=deleted):
            yield from self.versions(subject, deleted=deleted)

    def of_id(self, schema_id: int) -> list[Version]:
        """Which versions it is; deleted ones too, as records that were written with it are still read."""
        return [version for version in self.all_versions(deleted=True) if version.schema_id == schema_id]

    def id_of(self, schema: RegisteredSchema) -> int | None:
        """Under which id it goes already, in whatever subject."""
        return self._ids.get(schema)

    def referrers(self, subject: str, number: int) -> list[Version]:
        """Versions that refer to this one."""
        return [
            version
            for version in self.all_versions()
            if any((one.subject, one.version) == (subject, number) for one in version.schema.references)
        ]

    # -- what the log says -------------------------------------------------------------------------------------------

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """One record. What makes no sense is passed over with a warning, as another's mistake must stop nobody."""
        try:
            what = json.loads(key or b"null")
            said = None if value is None else json.loads(value)
            if isinstance(what, Mapping) and (said is None or isinstance(said, Mapping)):
                self._apply(what, said)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError, RegistryError) as error:
            logger.warning("a record of %s is passed over: %s", records.TOPIC, error)

    def _apply(self, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        kind, subject = key.get("keytype"), key.get("subject")
        if kind == records.SCHEMA:
            self._apply_schema(str(subject), int(key["version"]), value)
        elif kind == records.DELETE_SUBJECT and value is not None:
            for number, version in self._versions.get(str(subject), {}).items():
                if number <= int(value["version"]):
                    self._versions[str(subject)][number] = replace(version, is_deleted=True)
        elif kind == records.CONFIG:
            _set(self.levels, subject, None if value is None else value["compatibilityLevel"])
        elif kind == records.MODE:
            _set(self.modes, subject, None if value is None else value["mode"])

    def _apply_schema(self, subject: str, number: int, value: Mapping[str, Any] | None) -> None:
        version = None if value is None else _version(subject, number, value)
        numbers = self._versions.setdefault(subject, {})
        gone = numbers.pop(number, None)
        if version is not None:
            numbers[number] = version
            self._ids.setdefault(version.schema, version.schema_id)
            self.last_id = max(self.last_id, version.schema_id)
        elif gone is not None and not self.of_id(gone.schema_id):
            self._ids.pop(gone.schema, None)
        if not numbers:
            del self._versions[subject]


def _version(subject: str, number: int, value: Mapping[str, Any]) -> Version:
    schema = RegisteredSchema.from_json(value)
    return Version(subject, number, int(value["id"]), schema, bool(value.get("deleted")))


def _set(settings: dict[str | None, str], subject: str | None, value: str | None) -> None:
    if value is None:
        settings.pop(subject, None)
    else:
        settings[subject] = str(value)
