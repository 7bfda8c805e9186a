"""The state of the records of `_schemas`: versions by subject, ids, levels and modes. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...common.room_logger import room_logger
from . import records
from .errors import RegistryError, no_subject, no_version
from .schemas import RegisteredSchema, Version

logger = room_logger("registry")
LATEST = -1


class Subjects:
    """Updated record by record, on one thread."""

    def __init__(self) -> None:
        self.levels: dict[str | None, str] = {}
        """Compatibility by subject; None is the global one."""
        self.modes: dict[str | None, str] = {}
        self.last_id = 0
        self._versions: dict[str, dict[int, Version]] = {}
        self._ids: dict[RegisteredSchema, int] = {}
        self._of_id: dict[int, dict[tuple[str, int], Version]] = {}
        """Versions by their id, then by subject and number."""
        self._referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}
        """The versions with a reference to each version, by subject and number, including deleted ones."""

    # -- reading -----------------------------------------------------------------------------------------------------

    def names(self, *, deleted: bool = False) -> list[str]:
        """Return all subjects with a version."""
        return sorted(name for name in self._versions if self.has(name, deleted=deleted))

    def has(self, subject: str, *, deleted: bool = False) -> bool:
        """Return whether the subject has a version, including soft-deleted ones if `deleted`."""
        return any(deleted or not version.is_deleted for version in self._versions.get(subject, {}).values())

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Return the versions in order. Raises RegistryError if there is none."""
        found = [one for _, one in sorted(self._versions.get(subject, {}).items()) if deleted or not one.is_deleted]
        if not found:
            raise no_subject(subject)
        return found

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        """Return one version, or the LATEST. Raises RegistryError."""
        if number == LATEST:
            return self.versions(subject, deleted=deleted)[-1]
        version = self._versions.get(subject, {}).get(number)
        if version is not None and (deleted or not version.is_deleted):
            return version
        if not self.has(subject, deleted=deleted):
            raise no_subject(subject)
        raise no_version(number)

    def next_number(self, subject: str) -> int:
        """Return the number of the next version, which no version has had."""
        return max(self._versions.get(subject, {}), default=0) + 1

    def all_versions(self, *, deleted: bool = False) -> Iterator[Version]:
        """Yield the versions of all subjects."""
        for subject in self.names(deleted=deleted):
            yield from self.versions(subject, deleted=deleted)

    def of_id(self, schema_id: int) -> list[Version]:
        """Return the versions with an id, including deleted ones, since records written with them still exist."""
        return [version for _, version in sorted(self._of_id.get(schema_id, {}).items())]

    def id_of(self, schema: RegisteredSchema) -> int | None:
        """Return the id of a schema in any subject."""
        return self._ids.get(schema)

    def referrers(self, subject: str, number: int) -> list[Version]:
        """Return the versions with a reference to this one."""
        found = (self._versions[name][at] for name, at in sorted(self._referrers.get((subject, number), ())))
        return [version for version in found if not version.is_deleted]

    # -- records -----------------------------------------------------------------------------------------------------

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record. An invalid record is skipped with a warning, so that an error of another program does not
        stop the registry.
        """
        try:
            what = json.loads(key or b"null")
            said = None if value is None else json.loads(value)
            if isinstance(what, Mapping) and (said is None or isinstance(said, Mapping)):
                self._apply(what, said)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError, RegistryError) as error:
            logger.warning("skipped a record of %s: %s", records.TOPIC, error)

    def _apply(self, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        kind, subject = key.get("keytype"), key.get("subject")
        if kind == records.SCHEMA:
            self._apply_schema(str(subject), int(key["version"]), value)
        elif kind == records.DELETE_SUBJECT and value is not None:
            for number, version in list(self._versions.get(str(subject), {}).items()):
                if number <= int(value["version"]):
                    self._put(replace(version, is_deleted=True))
        elif kind == records.CONFIG:
            _set(self.levels, subject, None if value is None else value["compatibilityLevel"])
        elif kind == records.MODE:
            _set(self.modes, subject, None if value is None else value["mode"])

    def _apply_schema(self, subject: str, number: int, value: Mapping[str, Any] | None) -> None:
        version = None if value is None else _version(subject, number, value)
        gone = self._versions.get(subject, {}).get(number)
        if gone is not None:
            self._take_out(gone)
            if gone.schema_id not in self._of_id:
                self._ids.pop(gone.schema, None)
        if version is not None:
            self._put(version)
            self.last_id = max(self.last_id, version.schema_id)

    def _put(self, version: Version) -> None:
        place = (version.subject, version.number)
        self._versions.setdefault(version.subject, {})[version.number] = version
        self._of_id.setdefault(version.schema_id, {})[place] = version
        self._ids.setdefault(version.schema, version.schema_id)
        for one in version.schema.references:
            self._referrers.setdefault((one.subject, one.version), set()).add(place)

    def _take_out(self, version: Version) -> None:
        place = (version.subject, version.number)
        _remove(self._versions, version.subject, version.number)
        _remove(self._of_id, version.schema_id, place)
        for one in version.schema.references:
            places = self._referrers.get((one.subject, one.version), set())
            places.discard(place)
            if not places:
                self._referrers.pop((one.subject, one.version), None)


def _remove(outer: dict[Any, dict[Any, Version]], key: Any, inner: Any) -> None:
    del outer[key][inner]
    if not outer[key]:
        del outer[key]


def _version(subject: str, number: int, value: Mapping[str, Any]) -> Version:
    schema = RegisteredSchema.from_json(value)
    return Version(subject, number, int(value["id"]), schema, bool(value.get("deleted")))


def _set(settings: dict[str | None, str], subject: str | None, value: str | None) -> None:
    if value is None:
        settings.pop(subject, None)
    else:
        settings[subject] = str(value)
