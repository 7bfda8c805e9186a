"""Decoding of keys and values inside the source: text, JSON by Arrow's own parser, Avro by fastavro if it is there.

With `schemaRegistry` what serializers wrote is read by the schema that each value names, whichever of the three kinds.

A value that cannot be read ends the query (`valueErrors=fail`, the default) or becomes null (`valueErrors=null`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pyarrow as pa
from pyarrow import compute
from pyarrow import json as arrow_json
from pyspark.sql.types import DataType, StringType

from ..registry.decoding import RegistryDecoder, as_json, decoder_at
from .arrow_columns import text_array
from .options import OptionReader

_CONFLUENT_HEADER = 5  # a schema registry puts magic 0 and the schema's number in front


@dataclass(frozen=True)
class ValueFormat:
    """How one column is decoded: `name` is string, json, avro, confluent-avro or registry.

    `avro_schema` is JSON, `registry` a URL.
    """

    name: str
    null_on_error: bool = False
    avro_schema: str | None = None
    registry: str | None = None

    @property
    def is_structured(self) -> bool:
        """Whether the user's schema says what comes out."""
        return self.name in ("json", "avro", "confluent-avro", "registry")

    def decode(self, binary: Any, kind: Any) -> Any:
        """A binary array as an array of `kind`. Raises ValueError."""
        if self.name == "string":
            return text_array(binary)
        if self.name == "json":
            return _from_json(binary, kind, null_on_error=self.null_on_error)
        if self.registry is not None:
            return self._from_registry(self.registry, binary, kind)
        return self._from_avro(binary, kind)

    def _from_registry(self, url: str, binary: Any, kind: Any) -> Any:
        """Each by its own schema; as text where the user's schema does not say what comes out."""
        decoder, is_text = decoder_at(url), pa.types.is_string(kind)

        def read(value: bytes) -> Any:
            decoded = decoder.decode(value)
            return as_json(decoded) if is_text else decoded

        return _one_by_one(binary, kind, read, null_on_error=self.null_on_error)

    def _from_avro(self, binary: Any, kind: Any) -> Any:
        fastavro = import_module("fastavro")
        schema = fastavro.parse_schema(json.loads(self.avro_schema or ""))

        skipped = _CONFLUENT_HEADER if self.name == "confluent-avro" else 0

        def read(value: bytes) -> Any:
            return fastavro.schemaless_reader(pa.BufferReader(value[skipped:]), schema)

        return _one_by_one(binary, kind, read, null_on_error=self.null_on_error)


def formats_of(options: Mapping[str, str]) -> dict[str, ValueFormat]:
    """`keyFormat`, `valueFormat` (binary, string, json, …), `avroSchema` and `valueErrors`. Raises ValueError."""
    read = OptionReader(options)
    null_on_error = read.choice("valueErrors", "fail", "null") == "null"
    found = {}
    for column in ("key", "value"):
        name = read.choice(f"{column}Format", "binary", "string", "json", "avro", "confluent-avro", "registry")
        if name == "binary":
            continue
        avro_schema = read.text(f"{column}AvroSchema") or read.text("avroSchema")
        if name.endswith("avro") and avro_schema is None:
            raise ValueError(f"{column}Format={name} needs avroSchema")
        registry = read.require("schemaRegistry") if name == "registry" else None
        if registry is not None:
            RegistryDecoder(registry)
        found[column] = ValueFormat(name, null_on_error, avro_schema, registry)
    return found


def formatted_type(decoder: ValueFormat | None, plain: DataType) -> DataType:
    """The Spark type of a column that is decoded so, when the user's schema does not say."""
    return plain if decoder is None else StringType()


def _from_json(binary: Any, kind: Any, *, null_on_error: bool) -> Any:
    if pa.types.is_string(kind):
        return text_array(binary)
    wanted = pa.schema([pa.field("value", kind)])
    # One document per record, wrapped so that any JSON value is an object to the parser; null stays null.
    documents = compute.binary_join_element_wise(
        pa.scalar(b'{"value":'), binary.fill_null(b"null"), pa.scalar(b"}\n"), pa.scalar(b"")
    )
    text = documents.buffers()[2]
    options = arrow_json.ParseOptions(
        explicit_schema=wanted, newlines_in_values=True, unexpected_field_behavior="ignore"
    )
    read_options = arrow_json.ReadOptions(use_threads=False, block_size=max(text.size, 1))
    try:
        table = arrow_json.read_json(pa.BufferReader(text), read_options, options)
    except pa.ArrowInvalid:
        return _one_by_one(binary, kind, json.loads, null_on_error=null_on_error)
    if table.num_rows != len(binary):
        return _one_by_one(binary, kind, json.loads, null_on_error=null_on_error)
    return table.column("value").combine_chunks()


def _one_by_one(binary: Any, kind: Any, read: Callable[[bytes], Any], *, null_on_error: bool) -> Any:
    """The slow way, for what Arrow has no parser for and to find the value that it stumbled over."""
    found = []
    for value in binary.to_pylist():
        try:
            found.append(None if value is None else pa.scalar(read(value), type=kind).as_py())
        except (ValueError, TypeError, EOFError, LookupError, pa.ArrowException) as error:
            if not null_on_error:
                raise ValueError(f"value {value[:100]!r} cannot be read: {error}") from error
            found.append(None)
    return pa.array(found, kind)
