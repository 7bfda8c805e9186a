"""Where schemas are found: a registry, by the number in front of a record, or files, by number or topic. It blocks.

A file is `17.avsc` for the schema of that number, `orders-value.avsc` or `orders-key.avsc` for a topic's, and
`orders.avsc` for its values. Avro is `.avsc`, Protobuf `.proto` or a set of descriptors as `.desc` (`protoc
--include_imports --descriptor_set_out`); what a `.proto` imports lies in the same folder.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote, urlsplit

from ...http import fetch

MOST_SCHEMA_BYTES = 1 << 20
"""With everything that it refers to."""
MOST_REFERENCES = 100
_KINDS = {".avsc": "AVRO", ".proto": "PROTOBUF", ".desc": "DESCRIPTORS", ".json": "JSON"}


class Schema(NamedTuple):
    """A schema as it was found; `kind` is AVRO, PROTOBUF, DESCRIPTORS (text is base64) or JSON."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Others that it needs, by name, those that they need first."""


class SchemaSource(Protocol):
    """Methods block; None for what is not there. Raises OSError, ValueError."""

    def by_number(self, number: int) -> Schema | None: ...

    def by_subject(self, topic: str, part: str) -> Schema | None: ...


def schema_source(where: str) -> SchemaSource:
    """A registry for a URL, files for a path. Raises ValueError."""
    if where.startswith(("http://", "https://")):
        return SchemaRegistry(where)
    path = Path(where)
    if not path.exists():
        raise ValueError(f"{where}: neither a URL of a schema registry nor a folder or file of schemas")
    return SchemaFiles(path)


class SchemaFiles:
    """A folder, or one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def by_number(self, number: int) -> Schema | None:
        """As a registry's."""
        return self._find(str(number))

    def by_subject(self, topic: str, part: str) -> Schema | None:
        """For who has no registry."""
        return self._find(f"{topic}-{part}") or (self._find(topic) if part == "value" else None)

    def _find(self, stem: str) -> Schema | None:
        for path in [self._path] if self._path.is_file() else sorted(self._path.iterdir()):
            if path.stem == stem and path.suffix in _KINDS:
                return self._read(path)
        return None

    def _read(self, path: Path) -> Schema:
        room, data = _room(), path.read_bytes() if path.stat().st_size <= MOST_SCHEMA_BYTES else None
        if data is None:
            raise ValueError(f"{path.name}: {_TOO_LARGE}")
        room(len(data))
        kind = _KINDS[path.suffix]
        if kind == "DESCRIPTORS":
            return Schema(kind, base64.b64encode(data).decode())
        others: list[tuple[str, str]] = []
        if kind == "PROTOBUF":
            for other in sorted(path.parent.rglob("*.proto")):
                if other != path:
                    room(other.stat().st_size)
                    others.append((other.relative_to(path.parent).as_posix(), other.read_text()))
        return Schema(kind, data.decode(), tuple(others))


class SchemaRegistry:
    """Confluent's REST API, by the id that records begin with; name and password may be in the URL."""

    def __init__(self, url: str) -> None:
        """Raises ValueError."""
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        if not parts.hostname:
            raise ValueError("the URL of the schema registry names no host")
        self._url = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        self._login = None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
        if self._login is not None and parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1"):
            raise ValueError(f"{self._url}: a password is for https:// only")

    def by_number(self, number: int) -> Schema | None:
        """With what it refers to."""
        room = _room()
        found = self._get(f"schemas/ids/{number}", room)
        references: dict[str, str] = {}
        self._add_references(found.get("references"), references, room)
        return Schema(str(found.get("schemaType", "AVRO")), str(found["schema"]), tuple(references.items()))

    def by_subject(self, topic: str, part: str) -> Schema | None:
        """A record without a number is none of a registry's."""
        return None

    def _add_references(self, given: object, found: dict[str, str], room: Callable[[int], None]) -> None:
        for one in given if isinstance(given, list) else ():
            name, path = (
                str(one["name"]),
                f"subjects/{quote(str(one['subject']), safe='')}/versions/{int(one['version'])}",
            )
            if name not in found:
                found[name] = ""
                other = self._get(path, room)
                self._add_references(other.get("references"), found, room)
                del found[name]
                found[name] = str(other["schema"])

    def _get(self, path: str, room: Callable[[int], None]) -> dict[str, Any]:
        data = fetch(f"{self._url}/{path}", login=self._login, may_be_plain=True)
        room(len(data))
        answer = json.loads(data)
        if not isinstance(answer, dict) or "schema" not in answer:
            raise ValueError(f"{self._url}/{path} is no schema")
        return answer


_TOO_LARGE = f"more than {MOST_SCHEMA_BYTES} bytes or {MOST_REFERENCES} files"


def _room() -> Callable[[int], None]:
    """Told the size of each part of a schema. Raises ValueError where they are too much."""
    files, left = MOST_REFERENCES + 1, MOST_SCHEMA_BYTES

    def take(size: int) -> None:
        nonlocal files, left
        files, left = files - 1, left - size
        if files < 0 or left < 0:
            raise ValueError(_TOO_LARGE)

    return take


def first(sources: Iterable[SchemaSource], find: Callable[[SchemaSource], Schema | None]) -> Schema | None:
    """What the first source has that has it. Raises what the last of them raised, if none has."""
    failure: Exception | None = None
    for source in sources:
        try:
            found = find(source)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            failure = error
        else:
            if found is not None:
                return found
    if failure is not None:
        raise failure
    return None
