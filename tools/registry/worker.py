"""The process that parses, writes and compares schemas: an untrusted schema may exhaust its time and memory, which ends
this process only. `schema_reader.py` sends the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from typing import Any

from ...clients.worker_process import serve
from .schemas import AVRO, JSON, PROTOBUF

_READERS = {
    AVRO: ("avro_schemas", "AvroSchema"),
    JSON: ("json_schemas", "JsonSchema"),
    PROTOBUF: ("protobuf_schemas", "ProtobufSchema"),
}
_REASON_CHARS = 500
"""Maximum length of an error or a difference, which quote names from untrusted schemas."""
_SMALL = 8 << 10
"""Maximum characters of cached schemas: two thousand smaller ones, and twenty larger ones."""


def main() -> None:
    """Handle requests until the input ends."""
    serve(answer)


def answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Handle one request of `SchemaReader`: return its result, or `error`, a text for the client."""
    try:
        schema = _read_as_asked(asked["schema"], is_new=bool(asked.get("is_new")))
        if "old" in asked:
            return {"found": _incompatibilities(asked["level"], schema, _read_as_asked(asked["old"], is_new=False))}
        if asked.get("serialized"):
            return {"text": schema.serialized()}
        return {"text": schema.text, "identity": sha256(schema.identity.encode("utf-8", "surrogatepass")).hexdigest()}
    except ModuleNotFoundError as error:
        return {"error": f"{asked['schema'][0]} needs {error.name}: pip install 'barnabas[schema-registry]'"}
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - libraries raise any exception for untrusted schemas
        return {"error": str(error)[:_REASON_CHARS] or type(error).__name__}


def _incompatibilities(level: str, new: Any, old: Any) -> list[str]:
    found = list[str]()
    if not level.startswith("FORWARD"):
        found += [f"BACKWARD: {one}" for one in new.cannot_read(old)]
    if not level.startswith("BACKWARD"):
        found += [f"FORWARD: {one}" for one in old.cannot_read(new)]
    return [one[:_REASON_CHARS] for one in found]


def _read_as_asked(asked: list[Any], *, is_new: bool) -> Any:
    kind, text, imported = asked
    size = len(text) + sum(len(other) for _, other in imported)
    texts = tuple((str(name), str(other)) for name, other in imported)
    how = {"is_new": is_new} if kind == AVRO else {}  # the others are parsed in one way, and cached
    return (_read_small if size <= _SMALL else _read_large)(kind, text, texts, **how)


def _read(kind: str, text: str, imported: tuple[tuple[str, str], ...], **how: bool) -> Any:
    """Return the parsed schema: it has a `text` to store, an `identity`, and `cannot_read`."""
    module, name = _READERS[kind]
    reader: Callable[..., Any] = getattr(import_module(f".{module}", __package__), name)
    return reader(text, dict(imported), **how)


_read_small, _read_large = lru_cache(maxsize=2000)(_read), lru_cache(maxsize=20)(_read)


if __name__ == "__main__":
    main()
