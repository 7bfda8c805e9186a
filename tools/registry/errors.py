"""Errors of the registry, with the codes of Confluent's `rest.exceptions.Errors`: the status is their first digits."""

from __future__ import annotations

from enum import IntEnum


class RegistryCode(IntEnum):
    """An error code of the API."""

    INCOMPATIBLE = 409
    SUBJECT_NOT_FOUND = 40401
    VERSION_NOT_FOUND = 40402
    SCHEMA_NOT_FOUND = 40403
    SUBJECT_SOFT_DELETED = 40404
    SUBJECT_NOT_SOFT_DELETED = 40405
    VERSION_SOFT_DELETED = 40406
    VERSION_NOT_SOFT_DELETED = 40407
    NO_SUBJECT_COMPATIBILITY = 40408
    NO_SUBJECT_MODE = 40409
    INVALID_SCHEMA = 42201
    INVALID_VERSION = 42202
    INVALID_COMPATIBILITY = 42203
    INVALID_MODE = 42204
    NOT_PERMITTED = 42205
    REFERENCE_EXISTS = 42206
    ID_DOES_NOT_MATCH = 42207
    INVALID_SUBJECT = 42208
    STORE_ERROR = 50001
    STORE_TIMEOUT = 50002


class RegistryError(Exception):
    """A rejected request."""

    def __init__(self, code: RegistryCode, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(self.code) if self.code < 1000 else int(self.code) // 100


def no_subject(subject: str) -> RegistryError:
    """The subject does not exist."""
    return RegistryError(RegistryCode.SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def no_version(version: int) -> RegistryError:
    """The version does not exist."""
    return RegistryError(RegistryCode.VERSION_NOT_FOUND, f"Version {version} not found.")


def no_schema(schema_id: int | None = None) -> RegistryError:
    """The schema does not exist, by its id or by its text."""
    return RegistryError(
        RegistryCode.SCHEMA_NOT_FOUND, "Schema not found" if schema_id is None else f"Schema {schema_id} not found"
    )


def invalid_schema(why: str) -> RegistryError:
    """The schema is invalid."""
    return RegistryError(RegistryCode.INVALID_SCHEMA, f"Invalid schema: {why}")
