"""Records of `_schemas`, in the encoding of Confluent's SchemaKey, SchemaValue, ConfigKey, ModeKey and
DeleteSubjectKey.
"""

from __future__ import annotations

import json
from typing import Any

from .schemas import Version

TOPIC = "_schemas"
SCHEMA, CONFIG, MODE, DELETE_SUBJECT = "SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT"
Record = tuple[bytes, bytes | None]


def schema_record(version: Version) -> Record:
    """Return the record of a version, soft-deleted or not."""
    value = {**version.to_json(), "deleted": version.is_deleted}
    return schema_key(version.subject, version.number), _json(value)


def schema_key(subject: str, number: int) -> bytes:
    """Return the key of a version; a record without a value deletes the version permanently."""
    return _json({"keytype": SCHEMA, "subject": subject, "version": number, "magic": 1})


def config_record(subject: str | None, level: str | None) -> Record:
    """Return the record of a compatibility level, of a subject or global; None removes it."""
    value = None if level is None else {**_of(subject), "compatibilityLevel": level}
    return _json({"keytype": CONFIG, "subject": subject, "magic": 0}), None if value is None else _json(value)


def mode_record(subject: str | None, mode: str | None) -> Record:
    """Return the record of a mode, of a subject or global; None removes it."""
    value = None if mode is None else {**_of(subject), "mode": mode}
    return _json({"keytype": MODE, "subject": subject, "magic": 0}), None if value is None else _json(value)


def delete_subject_record(subject: str, last: int) -> Record:
    """Soft deletion of all versions up to the last."""
    return (
        _json({"keytype": DELETE_SUBJECT, "subject": subject, "magic": 0}),
        _json({"subject": subject, "version": last}),
    )


def _of(subject: str | None) -> dict[str, Any]:
    return {} if subject is None else {"subject": subject}


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
