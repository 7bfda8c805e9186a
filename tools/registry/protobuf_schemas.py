"""Protobuf schemas, registered as text, or as a base64 descriptor as by Python's clients, and compared.

The rules equal Confluent's `SchemaDiff`: fields are identified by their numbers, and may be added and removed; a type
may become another with the same encoding; the message type of a field is identified by its full name within its
package, independent of its place of definition, and its fields are compared, too.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from ...clients.decoding.worker import descriptors_of, registered_descriptor

_Kind = FieldDescriptorProto.Type
_ALIKE = (
    {_Kind.TYPE_INT32, _Kind.TYPE_UINT32, _Kind.TYPE_INT64, _Kind.TYPE_UINT64, _Kind.TYPE_BOOL, _Kind.TYPE_ENUM},
    {_Kind.TYPE_SINT32, _Kind.TYPE_SINT64},
    {_Kind.TYPE_STRING, _Kind.TYPE_BYTES},
    {_Kind.TYPE_FIXED32, _Kind.TYPE_SFIXED32},
    {_Kind.TYPE_FIXED64, _Kind.TYPE_SFIXED64},
)
"""Types with the same encoding."""
_NAMED = {_Kind.TYPE_MESSAGE, _Kind.TYPE_GROUP}
_LENGTHS = {_Kind.TYPE_STRING, _Kind.TYPE_BYTES, *_NAMED}
_REPEATED, _REQUIRED = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.LABEL_REQUIRED
_MAX_DIFFERENCES = 100


@dataclass(frozen=True, slots=True)
class _Message:
    """A message with the package of its file, and its name in the package."""

    package: str
    local_name: str
    descriptor: DescriptorProto


class ProtobufSchema:
    """A parsed schema."""

    def __init__(self, text: str, imported: Mapping[str, str]) -> None:
        """`imported` are texts of the imports, by name. Raises ValueError."""
        self.text = text
        self._files = list(FileDescriptorSet.FromString(descriptors_of(text, imported.items())).file)
        self.descriptor: FileDescriptorProto = self._files[-1]
        is_empty = not self.descriptor.message_type and not self.descriptor.enum_type
        if is_empty and registered_descriptor(text) is not None:
            # Many words are base64 of an empty descriptor.
            raise ValueError("the descriptor has no message")

    @property
    def identity(self) -> str:
        """Return a digest that is equal for the text and for the descriptor."""
        bare = FileDescriptorProto()
        bare.CopyFrom(self.descriptor)
        for name in ("name", "source_code_info"):
            bare.ClearField(name)
        for message in bare.message_type:
            _forget_json_names(message)
        return base64.b64encode(bare.SerializeToString(deterministic=True)).decode()

    def serialized(self) -> str:
        """Return the descriptor in base64."""
        return base64.b64encode(self.descriptor.SerializeToString()).decode()

    def cannot_read(self, written: ProtobufSchema) -> list[str]:
        """Return the reasons why this schema cannot read data of the other; at most a hundred."""
        return _ProtobufComparison(self, written).differences()

    @cached_property
    def messages(self) -> dict[str, _Message]:
        """Return messages of the schema and of all its imports, by their full names."""
        return {
            f"{file.package}.{name}" if file.package else name: _Message(file.package, name, message)
            for file in self._files
            for name, message in _with_nested(file.message_type, "")
        }


def _with_nested(messages: Iterator[DescriptorProto], prefix: str) -> Iterator[tuple[str, DescriptorProto]]:
    for message in messages:
        yield prefix + message.name, message
        yield from _with_nested(message.nested_type, f"{prefix}{message.name}.")


def _forget_json_names(message: DescriptorProto) -> None:
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        _forget_json_names(nested)


class _ProtobufComparison:
    """The comparison of a reader's schema with a writer's, each pair of messages once."""

    def __init__(self, reader: ProtobufSchema, writer: ProtobufSchema) -> None:
        self._reader = reader
        self._writer = writer
        self._pairs: list[tuple[str, str]] = []
        """Full names of messages to compare, which may refer to each other in chains that are too long for
        recursion.
        """
        self._known: set[tuple[str, str]] = set()
        self._found: list[str] = []

    def differences(self) -> list[str]:
        """Return the unreadable parts."""
        reader, writer = self._reader.descriptor, self._writer.descriptor
        if reader.package != writer.package:
            self._found.append("PACKAGE_CHANGED at #/")
        prefixes = tuple(f"{file.package}." if file.package else "" for file in (reader, writer))
        read = {message.name for message in reader.message_type}
        for message in writer.message_type:
            if message.name in read:
                self._add(prefixes[0] + message.name, prefixes[1] + message.name)
            else:
                self._found.append(f"MESSAGE_REMOVED at #/{message.name}")
        for pair in self._pairs:  # entries are added during the loop
            if len(self._found) >= _MAX_DIFFERENCES:
                break
            self._compare_messages(*pair)
        return self._found[:_MAX_DIFFERENCES]

    def _add(self, reader_name: str, writer_name: str) -> None:
        pair = (reader_name, writer_name)
        if pair not in self._known:
            self._known.add(pair)
            self._pairs.append(pair)

    def _compare_messages(self, reader_name: str, writer_name: str) -> None:
        found = self._found
        mine, others = self._reader.messages[reader_name], self._writer.messages[writer_name]
        reader, writer, at = mine.descriptor, others.descriptor, f"#/{mine.local_name.replace('.', '/')}"
        nested = {message.name for message in reader.nested_type}
        for message in writer.nested_type:
            if message.options.map_entry:
                continue  # the field that is a map is compared instead
            if message.name in nested:
                self._add(f"{reader_name}.{message.name}", f"{writer_name}.{message.name}")
            else:
                found.append(f"MESSAGE_REMOVED at {at}/{message.name}")
        read, written = ({field.number: field for field in message.field} for message in (reader, writer))
        gone = _deleted_oneofs(reader, writer)
        for number in sorted(read.keys() | written.keys()):
            place = f"{at}/{number}"
            if number not in written:
                if read[number].label == _REQUIRED:
                    found.append(f"REQUIRED_FIELD_ADDED at {place}")
            elif number in read:
                self._compare_fields(read[number], written[number], place)
            elif written[number].label == _REQUIRED:
                found.append(f"REQUIRED_FIELD_REMOVED at {place}")
            elif (oneof := _oneof(writer, written[number])) is not None and oneof not in gone:
                found.append(f"ONEOF_FIELD_REMOVED at {at}/{oneof}/{number}")
        found += _made_exclusive(reader, writer, at)

    def _compare_fields(self, reader: FieldDescriptorProto, writer: FieldDescriptorProto, at: str) -> None:
        found = self._found
        if (reader.label == _REQUIRED) != (writer.label == _REQUIRED):
            found.append(f"REQUIRED_FIELD_{'ADDED' if reader.label == _REQUIRED else 'REMOVED'} at {at}")
        # Confluent's parser has no label for a proto3 field without one, so it accepts a number that becomes a list;
        # that is not readable, and is rejected here.
        if (reader.label == _REPEATED) != (writer.label == _REPEATED) and reader.type not in _LENGTHS:
            found.append(f"FIELD_NUMERIC_LABEL_CHANGED at {at}")
        if reader.type in _NAMED and writer.type in _NAMED:
            self._compare_types(reader.type_name.removeprefix("."), writer.type_name.removeprefix("."), at)
        elif reader.type in _NAMED or writer.type in _NAMED:
            found.append(f"FIELD_KIND_CHANGED at {at}")
        elif reader.type != writer.type and not any({reader.type, writer.type} <= alike for alike in _ALIKE):
            found.append(f"FIELD_SCALAR_KIND_CHANGED at {at}")

    def _compare_types(self, reader_name: str, writer_name: str, at: str) -> None:
        found = self._found
        mine, others = self._reader.messages.get(reader_name), self._writer.messages.get(writer_name)
        if mine is None or others is None:
            if reader_name != writer_name:
                found.append(f"FIELD_NAMED_TYPE_CHANGED at {at}")
            return
        is_map = mine.descriptor.options.map_entry
        if is_map != others.descriptor.options.map_entry:
            found.append(f"FIELD_KIND_CHANGED at {at}")
        elif is_map:
            for read, written in zip(mine.descriptor.field, others.descriptor.field, strict=False):
                self._compare_fields(read, written, at)
        elif mine.local_name != others.local_name:
            found.append(f"FIELD_NAMED_TYPE_CHANGED at {at}")
        else:
            self._add(reader_name, writer_name)  # reported by the comparison of the messages


def _oneof(message: DescriptorProto, field: FieldDescriptorProto) -> str | None:
    """Return the name of a field's oneof, none for an `optional` of proto3."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return None
    return str(message.oneof_decl[field.oneof_index].name)


def _oneofs(message: DescriptorProto) -> dict[str, list[int]]:
    """Return numbers of fields by the names of their oneofs."""
    found: dict[str, list[int]] = {}
    for field in message.field:
        name = _oneof(message, field)
        if name is not None:
            found.setdefault(name, []).append(field.number)
    return found


def _deleted_oneofs(reader: DescriptorProto, writer: DescriptorProto) -> set[str]:
    """Return oneofs that are removed with all their fields, which is compatible."""
    left, kept = {field.number for field in reader.field}, _oneofs(reader)
    return {name for name, numbers in _oneofs(writer).items() if name not in kept and left.isdisjoint(numbers)}


def _made_exclusive(reader: DescriptorProto, writer: DescriptorProto, at: str) -> Iterator[str]:
    """Yield fields that could be set together before."""
    before = {field.number: _oneof(writer, field) for field in writer.field}
    for name, numbers in _oneofs(reader).items():
        known = [number for number in numbers if number in before]
        alone = [number for number in known if before[number] is None]
        if len({before[number] for number in known} - {None}) + len(alone) > 1:
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(alone) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            yield f"{kind} at {at}/{name}"
