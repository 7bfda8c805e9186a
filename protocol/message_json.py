"""Messages as JSON values, in the form of Kafka's generated JsonConverter classes."""

from __future__ import annotations

import base64
from typing import Any
from uuid import UUID

from ..common.uuid_text import uuid_text
from .schema import Field, fields_of, is_struct

_OTHER_NAMES = {"kraft_version": "kRaftVersion", "kraft_version_feature": "kRaftVersionFeature"}


def message_json(message: Any, version: int) -> dict[str, Any]:
    """Return the fields of a message that a version has. Tagged fields with their default are omitted."""
    found = {}
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if version in field.versions and (field.tag is None or value != field.default()):
            found[_json_name(field.name)] = _json_value(field, value, version)
    return found


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return _OTHER_NAMES.get(name) or first + "".join(map(str.title, others))


def _json_value(field: Field, value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [message_json(one, version) if is_struct(field.element) else _json_item(one) for one in value]
    if value is not None and is_struct(field.element):
        return message_json(value, version)
    return _json_item(value)


def _json_item(value: Any) -> Any:
    if isinstance(value, UUID):
        return uuid_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return value
