"""Formats of keys and values, and the types of their columns."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import pyarrow as pa

from ..clients.decoding.schemas import Schema, SchemaNotFoundError, SchemaRegistry
from ..common.error_description import describe_error
from ..protocol.errors import ProtocolError
from ..protocol.varint import decode_varint
from .avro_types import avro_type
from .earlier_names import earlier_names
from .field_names import Names, merge_names
from .protobuf_values import MessageType, arrow_type, message_class_of
from .value_conversion import converter
from .value_formats import ValueFormat, parse_avro_schema

_FRAME_BYTES = 5
_SIMPLE_AVRO = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
"""Names that are a schema, and not JSON text."""


@dataclass(frozen=True)
class Json:
    """JSON documents. `type` is a type of Arrow, or a schema for objects; text without it."""

    type: Any = None


@dataclass(frozen=True)
class Avro:
    """Values of a schema of Avro, as JSON text or parsed. `type` is derived from it if it is None.

    `framed` values begin with the five bytes of a schema registry.
    """

    schema: str | Mapping[str, Any] | Sequence[Any]
    type: Any = None
    framed: bool = False


@dataclass(frozen=True)
class Protobuf:
    """Messages of Protobuf. `schema` is the text or the path of a `.proto` file, a serialized `FileDescriptorSet`, or a
    generated class. `message` is the name of a message, the first of the file if it is None.

    `framed` values begin with the five bytes and the message index of a schema registry.
    """

    schema: Any
    message: str | None = None
    type: Any = None
    framed: bool = False


@dataclass(frozen=True)
class RegistryValues:
    """Values of a schema registry's serializers, each decoded with the schema whose id it contains.

    `type` is derived from the latest schema of `subject`, which is `TOPIC-key` or `TOPIC-value` if it is None.
    `pa.string()` reads values of all schemas as JSON.
    """

    url: str
    subject: str | None = None
    type: Any = None


Format: TypeAlias = str | Json | Avro | Protobuf | RegistryValues
"""`binary`, `string`, `json` (JSON text), or one of the classes."""


class ColumnFormat(NamedTuple):
    """The type of a column, and its decoding; None for bytes as they are."""

    type: Any
    format: ValueFormat | None


def column_formats(
    key: Format, value: Format, topics: Sequence[str]
) -> tuple[dict[str, pa.DataType], dict[str, ValueFormat]]:
    """Return the types of both columns, and the format of each decoded column. Raises as `format_of`."""
    found = {name: format_of(given, name, topics) for name, given in (("key", key), ("value", value))}
    types = {name: one.type for name, one in found.items()}
    return types, {name: one.format for name, one in found.items() if one.format is not None}


def format_of(given: Format, column: str, topics: Sequence[str]) -> ColumnFormat:
    """Return the format of a column. Raises ValueError, OSError if a registry does not respond, ModuleNotFoundError."""
    if given == "binary":
        return ColumnFormat(pa.binary(), None)
    if given == "string":
        return ColumnFormat(pa.string(), ValueFormat("string"))
    if given == "json":
        given = Json()
    match given:
        case Json():
            found = ColumnFormat(pa.string(), ValueFormat("json"))
        case Avro():
            is_text = isinstance(given.schema, str) and given.schema not in _SIMPLE_AVRO
            text = str(given.schema) if is_text else json.dumps(given.schema)
            parsed = parse_avro_schema(text)
            name = "confluent-avro" if given.framed else "avro"
            found = ColumnFormat(avro_type(parsed), ValueFormat(name, avro_schema=text))
        case Protobuf():
            message = MessageType(_message_class(given), skip=_frame_size if given.framed else None)
            found = ColumnFormat(message.type, ValueFormat("protobuf", protobuf=message))
        case RegistryValues():
            names: Names = {}
            kind = given.type
            if kind is None:
                kind, names = _registered_type(given, column, topics)
            found = ColumnFormat(kind, ValueFormat("registry", registry=given.url, names=names))
        case _:
            raise ValueError(
                f"{column}: unknown format {given!r}. Expected binary, string, json, or a Json, Avro, Protobuf or "
                "RegistryValues"
            )
    if given.type is not None:
        kind = pa.struct(list(given.type)) if isinstance(given.type, pa.Schema) else given.type
        found = ColumnFormat(kind, found.format)
    try:
        converter(found.type)
    except ValueError as error:
        raise ValueError(f"{column}: {error}") from None
    return found


def _message_class(given: Protobuf) -> Any:
    if hasattr(given.schema, "DESCRIPTOR"):
        return given.schema
    if isinstance(given.schema, bytes):
        return message_class_of(Schema("DESCRIPTORS", base64.b64encode(given.schema).decode()), given.message)
    text = str(given.schema)
    if isinstance(given.schema, Path) or (text.endswith(".proto") and "\n" not in text):
        text = Path(text).read_text()
    try:
        return message_class_of(Schema("PROTOBUF", text), given.message)
    except (ValueError, ModuleNotFoundError):
        raise
    except Exception as error:  # noqa: BLE001 - the library raises any exception for an invalid schema
        raise ValueError(f"invalid schema of Protobuf: {' '.join(str(error).split())}") from None


def _frame_size(value: bytes) -> int:
    """Return the size of a registry's frame with the message index, which is not compared. Raises ValueError."""
    if len(value) < _FRAME_BYTES or value[0] != 0:
        raise ValueError("the value has no frame of a schema registry")
    try:
        count, at = decode_varint(value, _FRAME_BYTES)
        for _ in range(count):
            _, at = decode_varint(value, at)
    except ProtocolError:
        raise ValueError("the message index is missing") from None
    return at


def _registered_type(given: RegistryValues, column: str, topics: Sequence[str]) -> tuple[Any, Names]:
    """Return the type of the latest schema, and the earlier names of its fields; all topics must have the same type."""
    subjects = [given.subject] if given.subject is not None else [f"{topic}-{column}" for topic in topics]
    found = {subject: _type_of_subject(given.url, subject) for subject in subjects}
    first = next((kind for kind, _ in found.values()), pa.string())
    names: Names = {}
    for subject, (kind, others) in found.items():
        if kind != first:
            raise ValueError(f"{column}: the schemas of {subjects[0]} and {subject} have different types. Set type")
        names = merge_names(names, others)
    return first, names


def _type_of_subject(url: str, subject: str) -> tuple[Any, Names]:
    try:
        schema = SchemaRegistry(url).latest(subject)
        match schema.kind:
            case "AVRO" if not schema.references:
                kind = avro_type(parse_avro_schema(schema.text))
            case "PROTOBUF":
                kind = arrow_type(message_class_of(schema, None).DESCRIPTOR)
            case _:
                return pa.string(), {}  # JSON, and Avro with types of other subjects: each value as JSON
        return kind, earlier_names(url, subject, schema)
    except SchemaNotFoundError:
        raise ValueError(f"the schema registry has no subject {subject!r}. Set subject or type") from None
    except OSError as error:
        cause = getattr(error, "reason", error)  # raised by urllib
        reason = describe_error(cause) if isinstance(cause, OSError) else cause
        raise OSError(f"schema registry {urlsplit(url).netloc.rpartition('@')[2]}: {reason}") from None
