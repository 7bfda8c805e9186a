"""Decoding of keys and values inside the source: text, JSON by Arrow's own parser, Avro by fastavro if it is installed.

With `schemaRegistry`, the values of serializers are decoded with the schema whose id they contain, of any type.

An unreadable value fails the query (`valueErrors=fail`, the default) or becomes null (`valueErrors=null`). That
includes any exception of a library for untrusted bytes; an unreachable registry and a missing package fail the query in
either case.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import compute
from pyarrow import json as arrow_json

from ..clients.decoding.registry_decoder import RegistryDecoder
from .field_names import Names, renamer
from .protobuf_values import MessageType, read_any_message
from .value_conversion import (
    Convert,
    converter,
    is_plain,
    parse_json,
)

Failures: TypeAlias = dict[int, str]
"""Row of an unreadable value -> the reason."""
_CONFLUENT_HEADER = 5  # a schema registry's values begin with 0 and the schema's id


@dataclass(frozen=True)
class ValueFormat:
    """The decoding of one column: `name` is string, json, avro, confluent-avro or registry.

    `avro_schema` is JSON, `registry` a URL, `protobuf` a message type. `names` has the earlier names of the fields of
    values of a registry.
    """

    name: str
    null_on_error: bool = False
    avro_schema: str | None = None
    registry: str | None = None
    protobuf: MessageType | None = None
    names: Names = field(default_factory=dict)

    @property
    def is_structured(self) -> bool:
        """Whether the user's schema sets the type."""
        return self.name in ("json", "avro", "confluent-avro", "registry")

    def decode(self, binary: Any, kind: Any, failures: Failures | None = None) -> Any:
        """Return a binary array as an array of `kind`. Raises UnreadableValueError.

        With `failures` an unreadable value is null, and the dict receives the reason by row.
        """
        if failures is None and self.null_on_error:
            failures = {}
        if self.name == "string":
            return _texts(binary, failures=failures)
        if self.name == "json":
            return _from_json(binary, kind, failures=failures)
        read: Callable[[bytes], Any]
        if self.protobuf is not None:
            read = self.protobuf.read
        elif self.registry is not None:
            read = self._registry_reader(self.registry, kind)
        else:
            read = self._avro_reader()
        is_text = self.registry is not None and pa.types.is_string(kind)
        return _one_by_one(binary, kind, read, _as_it_is if is_text else converter(kind), failures=failures)

    def _registry_reader(self, url: str, kind: Any) -> Callable[[bytes], Any]:
        """Decode each value with its own schema; to JSON if the user's schema does not set the type."""
        is_text = pa.types.is_string(kind)
        decoder = _decoder_at(url, is_text=is_text)
        rename = None if is_text else renamer(kind, self.names)

        def read(value: bytes) -> Any:
            if is_text:
                return decoder.decode_text(value)
            found = decoder.decode(value, parse_json)
            return rename(found) if rename is not None and isinstance(found, dict | list) else found

        return read

    def _avro_reader(self) -> Callable[[bytes], Any]:
        read_value = import_module("fastavro").schemaless_reader
        schema = parse_avro_schema(self.avro_schema or "")
        skipped = _CONFLUENT_HEADER if self.name == "confluent-avro" else 0

        def read(value: bytes) -> Any:
            if len(value) < skipped:
                raise ValueError("it is shorter than the header of a schema registry")
            return read_value(pa.BufferReader(value[skipped:]), schema)

        return read


class UnreadableValueError(ValueError):
    """An unreadable value; `row` is its index in the decoded array."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


@lru_cache(maxsize=16)
def _decoder_at(url: str, *, is_text: bool) -> RegistryDecoder:
    """Return the decoder of that registry, to text or to typed values. Raises ValueError.

    Two threads may look up the same schema twice; each operation on the decoder's caches is atomic.
    """
    read_message = None if is_text else read_any_message
    return RegistryDecoder(url, check_avro=_check_registered_avro, read_message=read_message)


def _check_registered_avro(text: str) -> None:
    """Raise ValueError for a schema whose values may cost more than their size; types in references have a size."""
    _least_size(json.loads(text), {}, set())


@lru_cache(maxsize=16)
def parse_avro_schema(text: str) -> Any:
    """Parse a schema. Raises ValueError if it is invalid, or if its values may cost more than their size."""
    fastavro = import_module("fastavro")
    try:
        schema = fastavro.parse_schema(json.loads(text))
    except Exception as error:  # noqa: BLE001 - the library raises any exception for an invalid schema
        raise ValueError(f"avroSchema: {text[:100]!r} is not a valid Avro schema: {error}") from None
    _least_size(schema, {}, set())
    return schema


_SIZE_OF_PRIMITIVE = {"null": 0, "float": 4, "double": 8}


def _least_size(schema: Any, sizes: dict[str, int], open_names: set[str]) -> int:
    """Return the minimum number of bytes of a value. `sizes` contains named types, `open_names` the enclosing types.

    Raises ValueError for a recursive type, as `from_avro` does: fastavro recurses in C, and some thousand levels end
    the process. The items of an array must have a size, since a count of 2^60 costs 9 bytes.
    """
    if isinstance(schema, list):
        for branch in schema:
            _least_size(branch, sizes, open_names)
        return 1
    if isinstance(schema, str):
        # The last part of a name is enough: at worst a type is rejected because an enclosing type has the same name.
        name = schema.rpartition(".")[2]
        if name in open_names:
            raise ValueError(f"Avro type {schema!r} contains itself, which Spark does not support")
        return sizes.get(name, _SIZE_OF_PRIMITIVE.get(schema, 1))
    kind = schema["type"]
    name = schema.get("name", "").rpartition(".")[2]
    if kind in ("record", "error"):
        sizes[name] = sum(_least_size(field["type"], sizes, {*open_names, name}) for field in schema["fields"])
        return sizes[name]
    if kind == "array":
        if _least_size(schema["items"], sizes, open_names) == 0:
            raise ValueError(
                "avroSchema: the items of an array have no size, so a few bytes could represent any number of items"
            )
        return 1
    if kind == "map":
        _least_size(schema["values"], sizes, open_names)
        return 1
    if kind in ("enum", "fixed"):
        sizes[name] = schema["size"] if kind == "fixed" else 1
        return sizes[name]
    return _least_size(kind, sizes, open_names)


def _texts(binary: Any, *, failures: Failures | None) -> Any:
    """Return bytes as text; bytes that are not UTF-8 are unreadable."""
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        return _one_by_one(binary, pa.string(), _decoded, _as_it_is, failures=failures)


def _decoded(value: bytes) -> str:
    return value.decode()


def _as_it_is(value: Any) -> Any:
    return value


def _from_json(binary: Any, kind: Any, *, failures: Failures | None) -> Any:
    if pa.types.is_string(kind):
        return _texts(binary, failures=failures)
    found = _by_arrow(binary, kind) if is_plain(kind) else None
    if found is not None:
        return found
    return _one_by_one(binary, kind, lambda value: parse_json(value.decode()), converter(kind), failures=failures)


def _by_arrow(binary: Any, kind: Any) -> Any:
    """Return the documents as Arrow's parser reads them; None unless it reads every one of them."""
    # One document per record, wrapped so that any JSON value is an object to the parser; null remains null. No document
    # can extend into the next one, since after its closing brace the next opening brace ends any object or array, and a
    # line end any string. So as many objects as documents are one object each.
    documents = compute.binary_join_element_wise(
        pa.scalar(b'{"value":'), binary.fill_null(b"null"), pa.scalar(b"}\n"), pa.scalar(b"")
    )
    text = documents.buffers()[2]
    options = arrow_json.ParseOptions(
        explicit_schema=pa.schema([pa.field("value", kind)]),
        newlines_in_values=True,
        unexpected_field_behavior="ignore",
    )
    read_options = arrow_json.ReadOptions(use_threads=False, block_size=max(text.size, 1))
    try:
        binary.cast(pa.string())  # the parser does not check that strings are UTF-8
        table = arrow_json.read_json(pa.BufferReader(text), read_options, options)
        table.validate(full=True)  # nor whether decimals have more digits than their type
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    return table.column("value").combine_chunks() if table.num_rows == len(binary) else None


def _one_by_one(
    binary: Any, kind: Any, read: Callable[[bytes], Any], convert: Convert, *, failures: Failures | None
) -> Any:
    """Decode value by value, for types without a parser in Arrow and to find the value that it rejected."""
    found: list[Any] = []
    for row, value in enumerate(binary.to_pylist()):
        try:
            decoded = None if value is None else read(value)
            found.append(None if decoded is None else convert(decoded))
        except (OSError, ImportError):
            raise  # the registry does not respond, or a package is missing: the value may be valid
        except Exception as error:  # libraries raise any exception for untrusted bytes, including MemoryError
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error) or type(error).__name__
            message = f"value {value[:100]!r} cannot be read: {' '.join(reason.split())}"
            if failures is None:
                raise UnreadableValueError(row, message) from error
            failures[row] = message
            found.append(None)
    return pa.array(found, kind)
