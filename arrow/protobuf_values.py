"""Messages of Protobuf as values of Arrow's types: which type a message has, and how its fields are read.

Scalars have the type of the same name, enums are their names, maps and lists keep their elements. `Timestamp` is a
timestamp in microseconds, `Duration` a duration, wrappers such as `StringValue` are nullable scalars, `Struct`, `Value`
and `ListValue` are JSON. A field that can be absent (`optional`, in a `oneof`, a message) is null if it is.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa

from ..clients.decoding.schemas import Schema
from ..clients.decoding.worker import descriptors_of

_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_JSON = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_TYPES = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), pa.int32()),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), pa.int64()),
    **dict.fromkeys(("uint32", "fixed32"), pa.uint32()),
    **dict.fromkeys(("uint64", "fixed64"), pa.uint64()),
    **dict.fromkeys(("string", "enum"), pa.string()),
    "float": pa.float32(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "bytes": pa.binary(),
}
_KINDS = (
    *("", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message"),
    *("bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""Names of the numbers in `FieldDescriptorProto.Type`."""

_Read = Callable[[Any], Any]


class MessageType:
    """A message type of Protobuf: `type` is its struct, `read` decodes a value."""

    def __init__(self, message_class: Any, *, skip: Callable[[bytes], int] | None = None) -> None:
        """Raises ValueError for a message type that contains itself, which Arrow cannot represent.

        `skip` returns the number of bytes in front of a message.
        """
        self._class = message_class
        self._skip = skip
        self.type = arrow_type(message_class.DESCRIPTOR)
        self._read = reader_of(message_class.DESCRIPTOR)

    def read(self, value: bytes) -> Any:
        """Decode one message. Raises the library's DecodeError."""
        message = self._class()
        message.ParseFromString(value if self._skip is None else value[self._skip(value) :])
        return self._read(message)


def message_class_of(schema: Schema, name: str | None) -> Any:
    """Return the class of a message of a schema, by its full name or by the last part of it; the first by default.

    Raises ValueError if there is none, and the library's exceptions for an invalid schema.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    is_set = schema.kind == "DESCRIPTORS"
    data = base64.b64decode(schema.text) if is_set else descriptors_of(schema.text, schema.references)
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(data).file
    for file in files:
        pool.Add(file)
    package = files[-1].package
    names = [f"{package}.{each.name}".lstrip(".") for each in files[-1].message_type]
    found = names[:1] if name is None else [each for each in names if each == name or each.endswith(f".{name}")]
    if not found and name is not None:
        try:
            return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        except KeyError:
            pass
    if not found:
        raise ValueError(f"the schema has no message {name or ''}. It has {', '.join(names)}".replace("  ", " "))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(found[0]))


def read_any_message(message: Any) -> Any:
    """Return a message of any type as the values that `value_conversion` accepts."""
    return reader_of(message.DESCRIPTOR)(message)


def arrow_type(descriptor: Any, above: tuple[str, ...] = ()) -> Any:
    """Return the type of a message. Raises ValueError if it contains itself."""
    name = descriptor.full_name
    if name == _TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    if name == _DURATION:
        return pa.duration("us")
    if name in _WRAPPERS:
        return _TYPES[_KINDS[descriptor.fields_by_name["value"].type]]
    if name in _JSON:
        return pa.string()
    if name in above:
        raise ValueError(f"message {name} contains itself, which Arrow cannot represent. Read it as a string of JSON")
    return pa.struct([pa.field(field.name, _field_type(field, (*above, name))) for field in descriptor.fields])


def _field_type(field: Any, above: tuple[str, ...]) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
        return pa.map_(_field_type(key, above), _field_type(value, above))
    is_message = field.message_type is not None
    one = arrow_type(field.message_type, above) if is_message else _TYPES[_KINDS[field.type]]
    return pa.list_(one) if _is_repeated(field) else one


def _is_repeated(field: Any) -> bool:
    # `label` is deprecated in later versions of the library, and `is_repeated` is missing in earlier ones.
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


_readers: dict[int, tuple[Any, _Read]] = {}
"""Complete readers by the identity of their descriptor, which the entry keeps alive. Any thread may add entries."""
_KEPT_READERS = 256


def reader_of(descriptor: Any) -> _Read:
    """Return the function that converts messages of a type, which may contain itself."""
    known = _readers.get(id(descriptor))
    if known is not None:
        return known[1]
    made: dict[int, tuple[Any, _Read]] = {}
    read = _new_reader(descriptor, made)
    if len(_readers) >= _KEPT_READERS:
        _readers.clear()
    _readers.update(made)
    return read


def _new_reader(descriptor: Any, made: dict[int, tuple[Any, _Read]]) -> _Read:
    if id(descriptor) in made:
        return made[id(descriptor)][1]
    special = _special_reader(descriptor)
    if special is not None:
        return special
    fields: list[tuple[str, bool, _Read]] = []

    def read(message: Any) -> Any:
        return {
            name: None if can_be_absent and not message.HasField(name) else convert(getattr(message, name))
            for name, can_be_absent, convert in fields
        }

    made[id(descriptor)] = descriptor, read  # before its fields: one of them may be of the same type
    fields += [(field.name, field.has_presence, _field_reader(field, made)) for field in descriptor.fields]
    return read


def _special_reader(descriptor: Any) -> _Read | None:
    name = descriptor.full_name
    if name == _TIMESTAMP:
        return lambda message: datetime(1970, 1, 1, tzinfo=UTC) + _duration(message)
    if name == _DURATION:
        return _duration
    if name in _WRAPPERS:
        return lambda message: message.value
    if name in _JSON:
        from google.protobuf import json_format

        return partial(json_format.MessageToJson, indent=None, ensure_ascii=False)
    return None


def _duration(message: Any) -> timedelta:
    return timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def _field_reader(field: Any, made: dict[int, tuple[Any, _Read]]) -> _Read:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = _one_reader(field.message_type.fields_by_name["value"], made)
        return lambda items: {key: value(items[key]) for key in items}
    one = _one_reader(field, made)
    if _is_repeated(field):
        return lambda items: [one(item) for item in items]
    return one


def _one_reader(field: Any, made: dict[int, tuple[Any, _Read]]) -> _Read:
    if field.message_type is not None:
        return _new_reader(field.message_type, made)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    return lambda value: value
