"""JSON Schema: whether each document that is valid for one schema is valid for another.

No library compares schemas, so this module does, for the most frequent keywords: types, properties, items, bounds,
choices. Its results equal Confluent's `SchemaDiff`: a property that is added to an open content model could have had
another type before, so it is incompatible. Other keywords, such as `if` and `not`, must be equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ...clients.json_text import JsonText, compact

_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_SAME = ("pattern", "multipleOf", "uniqueItems", "not", "if", "then", "else", "patternProperties", "dependencies")
_BY_KINDS = {
    ("number", "integer"): ("maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "multipleOf"),
    ("string",): ("maxLength", "minLength", "pattern"),
    ("array",): ("maxItems", "minItems", "uniqueItems"),
    ("object",): ("maxProperties", "minProperties", "patternProperties", "dependencies"),
}
_OF_KINDS = {name: frozenset(kinds) for kinds, names in _BY_KINDS.items() for name in names}
"""Kinds of values that each keyword restricts; other kinds are not restricted."""
_KINDS = ("null", "boolean", "object", "array", "number", "string")
_ANYTHING: dict[str, Any] = {}
_NOTHING: dict[str, Any] = {"not": {}}
_TELLS_NOTHING = frozenset(
    {"title", "description", "default", "examples", "$id", "$schema", "$comment", "definitions", "$defs"}
)
_MAX_STEPS = 50_000
"""References to references make a small schema a large one."""
_CHARS_A_STEP = 400
_NAMES_A_STEP = 100
_MESSAGE_CHARS = 300


class JsonSchema:
    """A parsed schema."""

    def __init__(self, text: str, imported: Mapping[str, str]) -> None:
        """`imported` are texts of referenced schemas, by name. Raises ValueError."""
        from jsonschema.validators import Draft7Validator, validator_for

        try:
            self._schema = json.loads(text, parse_constant=_refuse_constant)
            self._imported = {name: json.loads(other) for name, other in imported.items()}
            if not isinstance(self._schema, dict | bool):
                raise ValueError("a JSON Schema must be an object or a boolean")
            # A schema without a draft has draft 7, as in Confluent's registry.
            _check(validator_for(self._schema, default=Draft7Validator), self._schema)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        self.text = compact(JsonText(text))  # numbers keep their text: 1e400 would become Infinity
        self._steps = 0

    @property
    def identity(self) -> str:
        """Return a digest that is equal for equivalent texts."""
        return json.dumps(self._schema, separators=(",", ":"))

    def cannot_read(self, written: JsonSchema) -> list[str]:
        """Return the reasons why documents of the other schema may be invalid for this one."""
        self._steps = written._steps = 0
        try:
            return _JsonComparison(self, written).differences(self._schema, written._schema, "#")
        except (RecursionError, OverflowError):
            return ["the schemas are too large to be compared"]
        except (TypeError, AttributeError, ValueError):
            return ["a $ref leads to a value that is not a schema"]

    def resolve(self, schema: Any) -> dict[str, Any]:
        """Resolve `$ref` and merge `allOf`. Raises OverflowError."""
        self._step()
        while isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
            self._step()
            schema = self._at(schema["$ref"])
        if schema is False:
            return _NOTHING
        if not isinstance(schema, Mapping):
            return _ANYTHING
        whole = {name: value for name, value in schema.items() if name != "allOf"}
        for part in schema.get("allOf", ()):
            said = self.resolve(part)
            self._step((_size(whole) + _size(said)) // _NAMES_A_STEP)
            whole = _both(whole, said)
        return whole

    def worded(self, schema: Any) -> str:
        """Return the canonical text. Raises OverflowError."""
        text = json.dumps(schema, sort_keys=True)
        self._step(len(text) // _CHARS_A_STEP)
        return text

    def _step(self, count: int = 1) -> None:
        self._steps += count
        if self._steps > _MAX_STEPS:
            raise OverflowError

    def _at(self, reference: str) -> Any:
        name, _, pointer = reference.partition("#")
        found: Any = self._imported.get(name, self._schema) if name else self._schema
        for step in pointer.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, Mapping) else None
        return found


def _refuse_constant(said: str) -> None:
    raise ValueError(f"{said} is not JSON")


def _check(kind: Any, schema: Any) -> None:
    """Check a schema against the schema of its draft. Raises ValueError.

    The library's `check_schema` compares all pairs of values of an enum that cannot be sorted.
    """
    from jsonschema.validators import extend

    draft = extend(kind, {"uniqueItems": _unique_items})
    for error in draft(draft.META_SCHEMA, format_checker=draft.FORMAT_CHECKER).iter_errors(schema):
        raise ValueError(f"{error.message[:_MESSAGE_CHARS]} at {error.json_path}")


def _unique_items(validator: Any, is_unique: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if is_unique and isinstance(instance, list) and len(set(map(_hashable, instance))) < len(instance):
        yield ValidationError("the items are not unique")


def _hashable(value: Any) -> Any:
    """Return a key that is equal for equal JSON values: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, dict):
        return ("object", frozenset((name, _hashable(one)) for name, one in value.items()))
    if isinstance(value, list):
        return ("array", tuple(map(_hashable, value)))
    return (type(value) is bool, value)


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    whole = {**one, **other}
    if "properties" in one and "properties" in other:
        whole["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        whole["required"] = [*one["required"], *other["required"]]
    return whole


def _size(schema: Mapping[str, Any]) -> int:
    return len(schema) + len(schema.get("properties", ())) + len(schema.get("required", ()))


class _JsonComparison:
    """The comparison of a reader's schema with a writer's."""

    def __init__(self, reading: JsonSchema, written: JsonSchema) -> None:
        self._reading = reading
        self._written = written
        self._known: dict[tuple[str, str], list[str]] = {}

    def differences(self, reader: Any, writer: Any, at: str) -> list[str]:
        """Return documents that may be written and cannot be read. A pair that is being compared adds nothing."""
        reader, writer = self._reading.resolve(reader), self._written.resolve(writer)
        pair = (self._reading.worded(reader), self._written.worded(writer))
        if pair not in self._known:
            self._known[pair] = []
            self._known[pair] = list(self._compared(reader, writer, at))
        return self._known[pair]

    def _compared(self, reader: dict[str, Any], writer: dict[str, Any], at: str) -> Iterator[str]:
        if not set(reader) - _TELLS_NOTHING or writer == _NOTHING:
            return
        for choice in ("oneOf", "anyOf"):
            if choice in writer:
                yield from self._each_branch(reader, writer, choice, at)
                return
        for choice in ("oneOf", "anyOf"):
            if choice in reader:
                yield from self._some_branch(reader, writer, choice, at)
                return
        kinds = _kinds(writer)
        if not kinds <= _kinds(reader):
            yield f"TYPE_NARROWED at {at}: {', '.join(sorted(kinds - _kinds(reader)))} is not read any more"
            return
        yield from _values(reader, writer, at)
        yield from _bounds(reader, writer, kinds, at)
        if "object" in kinds:
            yield from self._objects(reader, writer, at)
        if "array" in kinds:
            yield from self._items(reader, writer, at)

    def _each_branch(self, reader: dict[str, Any], writer: dict[str, Any], choice: str, at: str) -> Iterator[str]:
        shared = {name: value for name, value in writer.items() if name != choice}
        for number, branch in enumerate(writer[choice]):
            whole = _both(shared, self._written.resolve(branch))
            yield from self.differences(reader, whole, f"{at}/{choice}/{number}")

    def _some_branch(self, reader: dict[str, Any], writer: dict[str, Any], choice: str, at: str) -> Iterator[str]:
        shared = {name: value for name, value in reader.items() if name != choice}
        wholes = (_both(shared, self._reading.resolve(branch)) for branch in reader[choice])
        if all(self.differences(whole, writer, at) for whole in wholes):
            yield f"SUM_TYPE_NARROWED at {at}: no branch of {choice} reads the written values"

    def _objects(self, reader: dict[str, Any], writer: dict[str, Any], at: str) -> Iterator[str]:
        read, written = reader.get("properties", {}), writer.get("properties", {})
        rest_read, rest_written = reader.get("additionalProperties", True), writer.get("additionalProperties", True)
        for name, schema in read.items():
            place = f"{at}/properties/{name}"
            if name in written:
                yield from self.differences(schema, written[name], place)
            elif rest_written is not False:
                differing = self.differences(schema, rest_written, place)
                if differing and rest_written is True:
                    yield f"PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at {place}"
                else:
                    yield from differing
        for name in written.keys() - read.keys():
            place = f"{at}/properties/{name}"
            if rest_read is False:
                yield f"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at {place}"
            else:
                yield from self.differences(rest_read, written[name], place)
        if rest_read is False and rest_written is not False:
            yield f"ADDITIONAL_PROPERTIES_REMOVED at {at}"
        elif rest_written is not False:
            yield from self.differences(rest_read, rest_written, f"{at}/additionalProperties")
        for name in sorted(set(reader.get("required", ())) - set(writer.get("required", ()))):
            if "default" not in self._reading.resolve(read.get(name, _ANYTHING)):
                yield f"REQUIRED_ATTRIBUTE_ADDED at {at}/required/{name}"

    def _items(self, reader: dict[str, Any], writer: dict[str, Any], at: str) -> Iterator[str]:
        read, written = _tuple(reader), _tuple(writer)
        rest_read, rest_written = _rest(reader), _rest(writer)
        for number in range(max(len(read), len(written))):
            one = read[number] if number < len(read) else rest_read
            other = written[number] if number < len(written) else rest_written
            if other is not False:
                yield from self.differences(one, other, f"{at}/items/{number}")
        if rest_written is not False:
            yield from self.differences(rest_read, rest_written, f"{at}/items")


def _tuple(schema: Mapping[str, Any]) -> list[Any]:
    items = schema.get("prefixItems", schema.get("items"))
    return items if isinstance(items, list) else []


def _rest(schema: Mapping[str, Any]) -> Any:
    items = schema.get("items", True)
    return schema.get("additionalItems", True) if isinstance(items, list) else items


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    said = schema.get("type", list(_KINDS))
    kinds = {said} if isinstance(said, str) else set(said)
    return kinds | {"integer"} if "number" in kinds else kinds


def _values(reader: Mapping[str, Any], writer: Mapping[str, Any], at: str) -> Iterator[str]:
    allowed, possible = _listed(reader), _listed(writer)
    if allowed is not None and (possible is None or not possible <= allowed):
        yield f"ENUM_ARRAY_NARROWED at {at}/enum"


def _listed(schema: Mapping[str, Any]) -> set[str] | None:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return None if values is None else {json.dumps(value, sort_keys=True) for value in values}


def _bounds(reader: Mapping[str, Any], writer: Mapping[str, Any], kinds: set[str], at: str) -> Iterator[str]:
    """Yield the kinds of values that may have been written."""
    reader = {name: bound for name, bound in reader.items() if not kinds.isdisjoint(_OF_KINDS.get(name, kinds))}
    for names, sign in ((_UPPER, 1), (_LOWER, -1)):
        for name in names:
            most, reached = reader.get(name), writer.get(name)
            if most is not None and (reached is None or sign * reached > sign * most):
                yield f"{name.upper()}_NARROWED at {at}/{name}"
    for name in _SAME:
        if name in reader and reader[name] != writer.get(name):
            yield f"{name.upper()}_CHANGED at {at}/{name}"
