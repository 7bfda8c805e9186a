"""The three kinds of schemas, each read by its own library, which is loaded when the first of its kind comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

from .errors import invalid_schema
from .schemas import AVRO, JSON, PROTOBUF, Reference, RegisteredSchema

_READERS = {
    AVRO: ("avro_schemas", "AvroSchema"),
    JSON: ("json_schemas", "JsonSchema"),
    PROTOBUF: ("protobuf_schemas", "ProtobufSchema"),
}
_MOST_IMPORTED = 1000
_SMALL = 8 << 10
"""Characters: so many times two thousand are kept as they were read, and few that are larger."""


def imported(schema: RegisteredSchema, find: Callable[[Reference], RegisteredSchema]) -> dict[str, str]:
    """Texts of all that a schema refers to, by name, each behind those that it refers to. Raises RegistryError."""
    found: dict[str, str] = {}

    def look(references: tuple[Reference, ...], above: frozenset[Reference]) -> None:
        for reference in references:
            if reference in above or len(found) > _MOST_IMPORTED:
                raise invalid_schema(f"references go round at {reference.subject}")
            if reference.name not in found:
                other = find(reference)
                look(other.references, above | {reference})
                found[reference.name] = other.text

    look(schema.references, frozenset())
    return found


def read(schema: RegisteredSchema, find: Callable[[Reference], RegisteredSchema]) -> Any:
    """The schema, read: it has a `text` to be kept, an `identity`, and `cannot_read`. Raises RegistryError."""
    return read_with(schema, imported(schema, find))


def read_with(schema: RegisteredSchema, texts: Mapping[str, str]) -> Any:
    """The same, by `imported` texts; any thread may. Raises RegistryError."""
    size = len(schema.text) + sum(map(len, texts.values()))
    return (_read_small if size <= _SMALL else _read_large)(schema.kind, schema.text, tuple(texts.items()))


def _read(kind: str, text: str, texts: tuple[tuple[str, str], ...]) -> Any:
    module, name = _READERS[kind]
    try:
        reader: Callable[[str, Mapping[str, str]], Any] = getattr(import_module(f".{module}", __package__), name)
        return reader(text, dict(texts))
    except ModuleNotFoundError as error:
        raise invalid_schema(f"{kind} needs {error.name}: pip install 'barnabas[schema-registry]'") from None
    except ValueError as error:
        raise invalid_schema(str(error)) from None


_read_small, _read_large = lru_cache(maxsize=2000)(_read), lru_cache(maxsize=20)(_read)
