"""Sources of schemas: a registry, by the id at the beginning of a record, or files, by id or topic. Methods block.

A file is `17.avsc` for the schema with that id, `orders-value.avsc` or `orders-key.avsc` for a topic's, and
`orders.avsc` for its values. Avro is `.avsc`, Protobuf `.proto` or a set of descriptors as `.desc` (`protoc
--include_imports --descriptor_set_out`); the imports of a `.proto` are in the same folder.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, unquote, urlsplit

from ..http import HttpStatusError, fetch

T = TypeVar("T")
MAX_SCHEMA_BYTES = 1 << 20
"""Maximum bytes of a schema with its references."""
MAX_REFERENCES = 100
_KINDS = {".avsc": "AVRO", ".proto": "PROTOBUF", ".desc": "DESCRIPTORS", ".json": "JSON"}


class Schema(NamedTuple):
    """A schema and its format; `kind` is AVRO, PROTOBUF, DESCRIPTORS (text is base64) or JSON."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Referenced schemas by name, dependencies first."""


class SubjectVersion(NamedTuple):
    """A version of a subject; `references` are texts with the name, the subject and the version of each reference."""

    subject: str
    version: int
    schema_id: int
    kind: str
    text: str
    references: list[str]


class SchemaNotFoundError(OSError):
    """The registry does not have a schema with that id, or one of its references."""


class SchemaSource(Protocol):
    """A source of schemas. Methods block and return None for a missing schema. Raises OSError, ValueError."""

    def by_number(self, number: int) -> Schema | None: ...

    def by_subject(self, topic: str, part: str) -> Schema | None: ...


def schema_source(where: str) -> SchemaSource:
    """Create a registry for a URL, or files for a path. Raises ValueError."""
    if where.startswith(("http://", "https://")):
        return SchemaRegistry(where)
    path = Path(where)
    if not path.exists():
        raise ValueError(f"{where}: expected a URL of a schema registry, or a folder or file of schemas")
    return SchemaFiles(path)


class SchemaFiles:
    """Schemas in a folder, or one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def by_number(self, number: int) -> Schema | None:
        """Name of the schema, as in a registry."""
        return self._find(str(number))

    def by_subject(self, topic: str, part: str) -> Schema | None:
        """Method for callers without a registry."""
        return self._find(f"{topic}-{part}") or (self._find(topic) if part == "value" else None)

    def _find(self, stem: str) -> Schema | None:
        for path in [self._path] if self._path.is_file() else sorted(self._path.iterdir()):
            if path.stem == stem and path.suffix in _KINDS:
                return self._read(path)
        return None

    def _read(self, path: Path) -> Schema:
        room, data = _room(), path.read_bytes() if path.stat().st_size <= MAX_SCHEMA_BYTES else None
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
        """Parse the URL. Raises ValueError."""
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        if not parts.hostname:
            raise ValueError("the URL of the schema registry has no host")
        self.url = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        """The address without name and password, for messages."""
        self._login = None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
        if self._login is not None and parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1"):
            raise ValueError(f"{self.url}: a password requires https://")

    def by_number(self, number: int) -> Schema:
        """Return the schema with its references. Raises SchemaNotFoundError, too."""
        return self._schema_at(f"schemas/ids/{number}")

    def _schema_at(self, path: str) -> Schema:
        room = _room()
        found = self._get(path, room)
        references: dict[str, str] = {}
        self._add_references(found.get("references"), references, room)
        return Schema(str(found.get("schemaType", "AVRO")), str(found["schema"]), tuple(references.items()))

    def latest(self, subject: str) -> Schema:
        """Return the latest schema of a subject with its references. Raises SchemaNotFoundError, too."""
        return self._schema_at(f"subjects/{quote(subject, safe='')}/versions/latest")

    def at_version(self, subject: str, version: int) -> Schema:
        """Return one version of a subject with its references. Raises SchemaNotFoundError, too."""
        return self._schema_at(f"subjects/{quote(subject, safe='')}/versions/{version}")

    def by_subject(self, topic: str, part: str) -> Schema | None:
        """Return None: a record without an id has no schema in a registry."""
        return None

    def _add_references(self, given: object, found: dict[str, str], room: Callable[[int], None]) -> None:
        for one in given if isinstance(given, list) else ():
            name, path = (
                str(one["name"]),
                # Records written with a soft-deleted version still exist.
                f"subjects/{quote(str(one['subject']), safe='')}/versions/{int(one['version'])}?deleted=true",
            )
            if name not in found:
                found[name] = ""
                other = self._get(path, room)
                self._add_references(other.get("references"), found, room)
                del found[name]
                found[name] = str(other["schema"])

    # The methods below serve pages about the registry; decoding needs none of them.

    def subjects(self) -> list[str]:
        """Return the names of all subjects. Raises OSError, ValueError."""
        return sorted(str(name) for name in self._ask("subjects", list))

    def versions(self, subject: str) -> list[int]:
        """Return the versions of a subject, ascending. Raises OSError, ValueError."""
        return sorted(int(number) for number in self._ask(f"subjects/{_quoted(subject)}/versions", list))

    def version(self, subject: str, version: int) -> SubjectVersion:
        """Return one version of a subject. Raises OSError, ValueError."""
        return _registered(self._ask(f"subjects/{_quoted(subject)}/versions/{version}", dict))

    def places(self, number: int) -> list[tuple[str, int]]:
        """Return the subjects and versions of the schema with that id. Raises OSError, ValueError."""
        found = self._ask(f"schemas/ids/{number}/versions", list)
        return [(str(one["subject"]), int(one["version"])) for one in found]

    def compatibility(self, subject: str | None = None) -> str:
        """Return the compatibility level of a subject, or the global one. Raises OSError, ValueError."""
        path = "config" if subject is None else f"config/{_quoted(subject)}?defaultToGlobal=true"
        return str(self._ask(path, dict)["compatibilityLevel"])

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Change the compatibility level of a subject, or the global one. Raises OSError, ValueError."""
        path = "config" if subject is None else f"config/{_quoted(subject)}"
        self._ask(path, dict, {"compatibility": level}, method="PUT")

    def incompatibilities(self, subject: str, schema: str, kind: str) -> list[str]:
        """Return the reasons why a schema is not compatible with the latest version. Raises OSError, ValueError."""
        path = f"compatibility/subjects/{_quoted(subject)}/versions/latest?verbose=true"
        found = self._ask(path, dict, {"schema": schema, "schemaType": kind})
        messages = [str(one) for one in found.get("messages") or ()]
        return [] if found.get("is_compatible") else messages or ["the registry gives no reason"]

    def register(self, subject: str, schema: str, kind: str) -> int:
        """Register a schema as the next version of a subject; return its id. Raises OSError, ValueError."""
        path = f"subjects/{_quoted(subject)}/versions"
        return int(self._ask(path, dict, {"schema": schema, "schemaType": kind})["id"])

    def _ask(self, path: str, kind: type[T], body: object = None, *, method: str | None = None) -> T:
        """Send a request and return its JSON. Raises OSError, ValueError for a response of another type."""
        json_body = None if body is None else json.dumps(body).encode()
        found = json.loads(
            fetch(f"{self.url}/{path}", json_body=json_body, method=method, login=self._login, may_be_plain=True)
        )
        if not isinstance(found, kind):
            raise ValueError(f"{self.url}/{path}: invalid response")
        return found

    def _get(self, path: str, room: Callable[[int], None]) -> dict[str, Any]:
        try:
            data = fetch(f"{self.url}/{path}", login=self._login, may_be_plain=True)
        except OSError as error:
            if isinstance(error, HttpStatusError) and error.status == 404:
                raise SchemaNotFoundError(str(error)) from None
            raise
        room(len(data))
        answer = json.loads(data)
        if not isinstance(answer, dict) or "schema" not in answer:
            raise ValueError(f"{self.url}/{path}: invalid schema")
        return answer


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _registered(found: Mapping[str, Any]) -> SubjectVersion:
    return SubjectVersion(
        str(found["subject"]),
        int(found["version"]),
        int(found["id"]),
        str(found.get("schemaType", "AVRO")),
        str(found["schema"]),
        [f"{one['name']} ({one['subject']}, version {one['version']})" for one in found.get("references") or ()],
    )


_TOO_LARGE = f"more than {MAX_SCHEMA_BYTES} bytes or {MAX_REFERENCES} files"


def _room() -> Callable[[int], None]:
    """Count the size of each part of a schema. Raises ValueError beyond the limits."""
    files, left = MAX_REFERENCES + 1, MAX_SCHEMA_BYTES

    def take(size: int) -> None:
        nonlocal files, left
        files, left = files - 1, left - size
        if files < 0 or left < 0:
            raise ValueError(_TOO_LARGE)

    return take


def first(sources: Iterable[SchemaSource], find: Callable[[SchemaSource], Schema | None]) -> Schema | None:
    """Return the schema of the first source that has it. Raises the last error of a source if none has it."""
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
