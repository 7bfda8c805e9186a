"""The options of keys and values: `keyFormat`, `valueFormat`, their schemas, and the treatment of unreadable values."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import DataType, StringType

from ..arrow.value_formats import ValueFormat, parse_avro_schema
from ..clients.decoding.registry_decoder import RegistryDecoder
from .options import OptionReader


def nulls_on_error(options: Mapping[str, str]) -> bool:
    """Return whether `valueErrors` replaces unreadable values by null. Raises ValueError."""
    return OptionReader(options).choice("valueErrors", "fail", "null") == "null"


def formats_of(options: Mapping[str, str]) -> dict[str, ValueFormat]:
    """Parse `keyFormat`, `valueFormat` (binary, string, json, …), `avroSchema` and `valueErrors`. Raises ValueError."""
    read = OptionReader(options)
    null_on_error = nulls_on_error(options)
    found = {}
    for column in ("key", "value"):
        name = read.choice(f"{column}Format", "binary", "string", "json", "avro", "confluent-avro", "registry")
        if name == "binary":
            continue
        avro_schema = read.text(f"{column}AvroSchema") or read.text("avroSchema")
        if name.endswith("avro") and avro_schema is None:
            raise ValueError(f"{column}Format={name} needs avroSchema")
        if name.endswith("avro"):
            parse_avro_schema(avro_schema or "")
        registry = read.require("schemaRegistry") if name == "registry" else None
        if registry is not None:
            RegistryDecoder(registry)
        found[column] = ValueFormat(name, null_on_error, avro_schema, registry)
    return found


def formatted_type(decoder: ValueFormat | None, plain: DataType) -> DataType:
    """Return the Spark type of a decoded column without a type in the user's schema."""
    return plain if decoder is None else StringType()
