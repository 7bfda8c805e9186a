"""Schemas of a registry: subjects, versions, compatibility levels, differences between versions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from difflib import SequenceMatcher
from typing import Any, TypeVar

from ...clients.decoding.schemas import SchemaRegistry, SubjectVersion
from ...clients.host import beside_loop
from ...clients.http import HttpStatusError
from ...clients.json_text import parse_text, pieces, truncate_pieces
from .cluster import WatchedCluster
from .previews import printable

T = TypeVar("T")
Facts = dict[str, Any]
LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
KINDS = ("AVRO", "PROTOBUF", "JSON")
MAX_SHOWN_CHARS = 256 << 10
MAX_COMPARED_LINES = 2000
"""Maximum number of lines of each schema in a comparison, whose time grows at least with the square of this number."""
NO_REGISTRY = "no schema registry is configured: start the console with --schemas http://host:port"


class SchemaRequestError(Exception):
    """An error of the registry for this request, with its HTTP status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class SchemaPages:
    """Responses as JSON. All methods raise SchemaRequestError, OSError and ValueError; `given` has the index of the
    `registry`, the first by default.
    """

    def __init__(self, cluster: WatchedCluster) -> None:
        self._registries = [source for source in cluster.schema_sources if isinstance(source, SchemaRegistry)]

    async def listing(self, given: Mapping[str, str]) -> Facts:
        """Return the subjects of a registry; without one the reason is in `missing`."""
        urls = [registry.url for registry in self._registries]
        if not urls:
            return {"registries": [], "subjects": [], "level": None, "missing": NO_REGISTRY}
        subjects, level = await self._ask(given, lambda registry: (registry.subjects(), registry.compatibility()))
        return {"registries": urls, "subjects": subjects, "level": level, "missing": None}

    async def subject(self, given: Mapping[str, str]) -> Facts:
        """Return the versions and the compatibility level of a subject."""
        name = _name(given)
        versions, level = await self._ask(
            given, lambda registry: (registry.versions(name), registry.compatibility(name))
        )
        return {"subject": name, "versions": versions, "level": level}

    async def version(self, given: Mapping[str, str]) -> Facts:
        """Return one version of a subject with its schema."""
        name, number = _name(given), int(given.get("version", ""))
        return _shown(await self._ask(given, lambda registry: registry.version(name, number)))

    async def difference(self, given: Mapping[str, str]) -> Facts:
        """Return the lines of two versions: `=` in both, `-` only in the version `from`, `+` only in `to`."""
        name, first, second = _name(given), int(given.get("from", "")), int(given.get("to", ""))

        def compare(registry: SchemaRegistry) -> list[tuple[str, str]]:
            before, after = (_pretty(registry.version(name, number))[0].splitlines() for number in (first, second))
            if max(len(before), len(after)) > MAX_COMPARED_LINES:
                raise ValueError(
                    f"a schema has more than {MAX_COMPARED_LINES} lines: download and compare both versions"
                )
            lines: list[tuple[str, str]] = []
            # Not `ndiff`, which compares each changed line with all others, character by character.
            for kind, start, end, new_start, new_end in SequenceMatcher(None, before, after).get_opcodes():
                if kind == "equal":
                    lines += [("=", printable(line)) for line in before[start:end]]
                else:
                    lines += [("-", printable(line)) for line in before[start:end]]
                    lines += [("+", printable(line)) for line in after[new_start:new_end]]
            return lines

        return {"from": first, "to": second, "lines": await self._ask(given, compare)}

    async def of_id(self, number: int, given: Mapping[str, str]) -> Facts:
        """Return the subjects and versions of a schema id."""
        return {"id": number, "versions": await self._ask(given, lambda registry: registry.places(number))}

    async def set_level(self, body: Mapping[str, Any]) -> Facts:
        """Set the compatibility level of a subject, or the global one without a subject."""
        level, subject = body.get("level"), body.get("subject")
        if level not in LEVELS:
            raise ValueError(f"level: expected one of {', '.join(LEVELS)}")
        if subject is not None and not isinstance(subject, str):
            raise ValueError("subject: expected a name")
        await self._ask(body, lambda registry: registry.set_compatibility(str(level), subject))
        return {"done": True}

    async def check(self, body: Mapping[str, Any]) -> Facts:
        """Return the reasons why a schema is not compatible with the latest version of a subject."""
        name, text, kind = _new_schema(body)
        found = await self._ask(body, lambda registry: registry.incompatibilities(name, text, kind))
        return {"messages": [printable(message) for message in found]}

    async def register(self, body: Mapping[str, Any]) -> Facts:
        """Register a schema as the next version of a subject."""
        name, text, kind = _new_schema(body)
        return {"id": await self._ask(body, lambda registry: registry.register(name, text, kind))}

    async def _ask(self, given: Mapping[str, Any], ask: Callable[[SchemaRegistry], T]) -> T:
        """Call the registry in a thread, as its methods block."""
        index = int(given.get("registry") or 0)
        if not self._registries:
            raise ValueError(NO_REGISTRY)
        if not 0 <= index < len(self._registries):
            raise ValueError(f"registry: expected a number below {len(self._registries)}")
        registry = self._registries[index]
        try:
            return await beside_loop(lambda: ask(registry))
        except HttpStatusError as error:
            raise SchemaRequestError(_message(error), error.status) from None
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{registry.url}: invalid response: {error}") from None
        except OSError as error:
            raise OSError(f"schema registry {registry.url}: {getattr(error, 'reason', error)}") from None


def _message(error: HttpStatusError) -> str:
    """Return the registry's own message, which explains the status."""
    try:
        found = json.loads(error.detail)
        return printable(str(found["message"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return str(error)


def _name(given: Mapping[str, Any]) -> str:
    name = given.get("subject")
    if not isinstance(name, str) or not name:
        raise ValueError("subject: expected a name")
    return name


def _new_schema(body: Mapping[str, Any]) -> tuple[str, str, str]:
    text, kind = body.get("schema"), body.get("type", "AVRO")
    if not isinstance(text, str) or not text.strip():
        raise ValueError("schema: expected the text of a schema")
    if kind not in KINDS:
        raise ValueError(f"type: expected one of {', '.join(KINDS)}")
    return _name(body), text, str(kind)


def _pretty(schema: SubjectVersion) -> tuple[str, bool]:
    """Return the schema with indented JSON, and whether it is cut."""
    if schema.kind != "PROTOBUF":
        try:
            return truncate_pieces(pieces(parse_text(schema.text), indent=2), MAX_SHOWN_CHARS)
        except (ValueError, RecursionError):
            pass  # as text
    return schema.text[:MAX_SHOWN_CHARS], len(schema.text) > MAX_SHOWN_CHARS


def _shown(schema: SubjectVersion) -> Facts:
    text, is_cut = _pretty(schema)
    return {
        "subject": schema.subject,
        "version": schema.version,
        "id": schema.schema_id,
        "type": schema.kind,
        "schema": printable(text),
        "cut": is_cut,
        "references": [printable(one) for one in schema.references],
    }
