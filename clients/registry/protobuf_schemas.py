"""Protobuf: what was registered as text, or as a descriptor in base64 as Python's clients do it, and is compared.

The rules are those of Confluent's `SchemaDiff`: fields are known by their numbers, and may come and go; a type may
become one that is written the same way.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from functools import lru_cache

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from .compiler import compile_text

_Kind = FieldDescriptorProto.Type
_ALIKE = (
    {_Kind.TYPE_INT32, _Kind.TYPE_UINT32, _Kind.TYPE_INT64, _Kind.TYPE_UINT64, _Kind.TYPE_BOOL, _Kind.TYPE_ENUM},
    {_Kind.TYPE_SINT32, _Kind.TYPE_SINT64},
    {_Kind.TYPE_STRING, _Kind.TYPE_BYTES},
    {_Kind.TYPE_FIXED32, _Kind.TYPE_SFIXED32},
    {_Kind.TYPE_FIXED64, _Kind.TYPE_SFIXED64},
)
"""Types that are the same on the wire."""
_NAMED = {_Kind.TYPE_MESSAGE, _Kind.TYPE_GROUP}
_LENGTHS = {_Kind.TYPE_STRING, _Kind.TYPE_BYTES, *_NAMED}
_REPEATED, _REQUIRED = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.LABEL_REQUIRED


class ProtobufSchema:
    """A schema that was read."""

    def __init__(self, text: str, imported: Mapping[str, str]) -> None:
        """`imported` are texts of what it imports, by name. Raises ValueError."""
        self.text = text
        self.descriptor = _descriptor(text, tuple(imported.items()))

    @property
    def identity(self) -> str:
        """The same for the same schema, as text or as a descriptor."""
        bare = FileDescriptorProto()
        bare.CopyFrom(self.descriptor)
        for name in ("name", "source_code_info"):
            bare.ClearField(name)
        for message in bare.message_type:
            _forget_json_names(message)
        return base64.b64encode(bare.SerializeToString(deterministic=True)).decode()

    def serialized(self) -> str:
        """The descriptor in base64."""
        return base64.b64encode(self.descriptor.SerializeToString()).decode()

    def cannot_read(self, written: ProtobufSchema) -> list[str]:
        """Why data of the other one cannot be read by this one."""
        return list(_differences(self.descriptor, written.descriptor))


def _descriptor(text: str, imported: tuple[tuple[str, str], ...]) -> FileDescriptorProto:
    """Raises ValueError."""
    try:
        decoded = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return _compiled(text, imported)
    if not decoded.message_type and not decoded.enum_type:
        raise ValueError("the descriptor has no message")
    return decoded


@lru_cache(maxsize=1000)
def _compiled(text: str, imported: tuple[tuple[str, str], ...]) -> FileDescriptorProto:
    return FileDescriptorSet.FromString(compile_text(text, dict(imported))).file[-1]


def _forget_json_names(message: DescriptorProto) -> None:
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        _forget_json_names(nested)


def _differences(reader: FileDescriptorProto, writer: FileDescriptorProto) -> Iterator[str]:
    read = {message.name: message for message in reader.message_type}
    for message in writer.message_type:
        if message.name in read:
            yield from _of_message(read[message.name], message, f"#/{message.name}")
        else:
            yield f"MESSAGE_REMOVED at #/{message.name}"


def _of_message(reader: DescriptorProto, writer: DescriptorProto, at: str) -> Iterator[str]:
    read = {message.name: message for message in reader.nested_type}
    for message in writer.nested_type:
        if message.name in read:
            yield from _of_message(read[message.name], message, f"{at}/{message.name}")
        elif not message.options.map_entry:
            yield f"MESSAGE_REMOVED at {at}/{message.name}"
    written = {field.number: field for field in writer.field}
    here = {field.number: field for field in reader.field}
    for number, field in here.items():
        place = f"{at}/{number}"
        if number in written:
            yield from _of_field(field, written[number], place)
        elif field.label == _REQUIRED:
            yield f"REQUIRED_FIELD_ADDED at {place}"
    for number, field in written.items():
        if number not in here:
            if field.label == _REQUIRED:
                yield f"REQUIRED_FIELD_REMOVED at {at}/{number}"
            if _choice(field) is not None and _names_choice(reader, writer.oneof_decl[field.oneof_index].name):
                yield f"ONEOF_FIELD_REMOVED at {at}/{number}"
    yield from _moved_into_choices(reader, writer, at)


def _moved_into_choices(reader: DescriptorProto, writer: DescriptorProto, at: str) -> Iterator[str]:
    """Fields that could be set together and now cannot."""
    before = {field.number: _choice(field) for field in writer.field}
    old = {one.name for one in writer.oneof_decl}
    for index, choice in enumerate(reader.oneof_decl):
        numbers = [field.number for field in reader.field if _choice(field) == index]
        moved = [number for number in numbers if number in before and before[number] is None]
        if moved and choice.name in old:
            yield f"FIELD_MOVED_TO_EXISTING_ONEOF at {at}/{choice.name}"
        elif len(moved) > 1:
            yield f"MULTIPLE_FIELDS_MOVED_TO_ONEOF at {at}/{choice.name}"


def _choice(field: FieldDescriptorProto) -> int | None:
    """The oneof it is in, but that of an `optional` of proto3."""
    return field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None


def _names_choice(message: DescriptorProto, name: str) -> bool:
    return any(one.name == name for one in message.oneof_decl)


def _of_field(reader: FieldDescriptorProto, writer: FieldDescriptorProto, at: str) -> Iterator[str]:
    if (reader.label == _REQUIRED) != (writer.label == _REQUIRED):
        yield f"REQUIRED_FIELD_{'ADDED' if reader.label == _REQUIRED else 'REMOVED'} at {at}"
    if (reader.label == _REPEATED) != (writer.label == _REPEATED) and reader.type not in _LENGTHS:
        yield f"FIELD_NUMERIC_LABEL_CHANGED at {at}"
    if reader.type in _NAMED and writer.type in _NAMED:
        if reader.type_name.rpartition(".")[2] != writer.type_name.rpartition(".")[2]:
            yield f"FIELD_NAMED_TYPE_CHANGED at {at}"
    elif reader.type in _NAMED or writer.type in _NAMED:
        yield f"FIELD_KIND_CHANGED at {at}"
    elif reader.type != writer.type and not any({reader.type, writer.type} <= alike for alike in _ALIKE):
        yield f"FIELD_SCALAR_KIND_CHANGED at {at}"
