"""Avro schemas: parsed, written in the form of Java's `Schema.toString`, and compared as Java's `SchemaCompatibility`.

One schema has one text, however it was registered: Java's serializers register `Schema.toString()`, Confluent's
registry stores that, and so does this one. No Python library writes it, and Apache's library compares schemas in time
and memory that grow with the square of their size, or faster.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TYPE_ATTRIBUTES = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
"""Java's `SCHEMA_RESERVED`: every other attribute is a property that the text keeps."""
_FIELD_ATTRIBUTES = frozenset({"default", "doc", "name", "order", "type", "aliases"})
_ORDERS = ("ascending", "descending", "ignore")
_NO_DEFAULT = object()
_RANGES = {"int": 1 << 31, "long": 1 << 63}
_JAVA_DOUBLE = re.compile(
    r"([+-]?)(?:(NaN|Infinity)|(0[xX][0-9a-fA-F.]+[pP][+-]?\d+|\d*\.?\d+(?:[eE][+-]?\d+)?|\d+\.)[fFdD]?)"
)
_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)")
_MAX_DIFFERENCES = 100
_PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}
"""Readable writer's types by the reader's type, in addition to the same type."""


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    doc: str | None
    default: Any
    order: str
    aliases: list[str]
    properties: dict[str, Any]


@dataclass(slots=True, eq=False)
class AvroType:
    """A parsed type; equal only to itself, since recursive types have no other cheap identity."""

    kind: str
    """`error` is also a record."""
    parts: list[AvroType] = field(default_factory=list)
    """Branches of a union, items of an array, values of a map."""
    name: str = ""
    namespace: str = ""
    doc: str | None = None
    fields: dict[str, AvroField] = field(default_factory=dict)
    symbols: dict[str, None] = field(default_factory=dict)
    enum_default: str | None = None
    size: int = 0
    is_error: bool = False
    aliases: list[tuple[str, str]] = field(default_factory=list)
    """Namespaces and names."""
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def fullname(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


class AvroSchema:
    """A parsed schema with its canonical text."""

    def __init__(self, text: str, imported: Mapping[str, str], *, is_new: bool = False) -> None:
        """`imported` are the texts of referenced schemas, in the order of their dependencies.

        A new schema is checked as in Confluent's registry: names, and defaults against the types of their fields. A
        registered schema is read without these checks, which earlier versions did not have. Raises ValueError.
        """
        try:
            names: dict[str, AvroType] = {}
            for other in imported.values():
                _AvroParser(names, is_strict=False).parse(json.loads(other), "")
            known = set(names)
            said = json.loads(text, parse_constant=_refuse_constant if is_new else None)
            self._type = _AvroParser(names, is_strict=is_new).parse(said, "")
            self.text = "".join(_written(self._type, "", known))
        except RecursionError:
            raise ValueError("nested too deeply") from None

    @property
    def identity(self) -> str:
        """Return a digest that is equal for equivalent texts."""
        return self.text

    def cannot_read(self, written: AvroSchema) -> list[str]:
        """Return the reasons why this schema cannot read data of the other one, a hundred at most."""
        try:
            return _AvroComparison().differences(self._type, written._type)
        except RecursionError:
            return ["the schemas are nested too deeply to be compared"]


def _refuse_constant(said: str) -> None:
    raise ValueError(f"{said} is not JSON")


class _AvroParser:
    """Java's `Schema.Parser`, with or without its strict names and its checks of defaults."""

    def __init__(self, names: dict[str, AvroType], *, is_strict: bool) -> None:
        self._names = names
        self._is_strict = is_strict

    def parse(self, said: Any, namespace: str) -> AvroType:
        """Parse a schema. Raises ValueError."""
        if isinstance(said, str):
            return AvroType(said) if said in _PRIMITIVES else self._find(said, namespace)
        if isinstance(said, list):
            return self._union(said, namespace)
        if not isinstance(said, dict):
            raise ValueError(f"{_short(said)} is not a schema")
        kind = said.get("type")
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            if part not in said:
                raise ValueError(f"no {part}: {_short(said)}")
            return AvroType(kind, [self.parse(said[part], namespace)], properties=_properties(said))
        if isinstance(kind, str) and kind in _NAMED:
            return self._named(kind, said, namespace)
        if isinstance(kind, str):
            return AvroType(kind, properties=_properties(said)) if kind in _PRIMITIVES else self._find(kind, namespace)
        if kind is None or self._is_strict:
            raise ValueError(f"no type: {_short(said)}")
        return self.parse(kind, namespace)  # earlier versions accepted a type instead of a type's name

    def _find(self, name: str, namespace: str) -> AvroType:
        full = name.removeprefix(".") if "." in name or not namespace else f"{namespace}.{name}"
        found = self._names.get(full) or self._names.get(name)
        if found is None:
            raise ValueError(f"undefined name: {_short(full)}")
        return found

    def _union(self, said: list[Any], namespace: str) -> AvroType:
        branches = [self.parse(branch, namespace) for branch in said]
        seen = set[str]()
        for branch in branches:
            if branch.kind == "union":
                raise ValueError(f"nested union: {_short(said)}")
            key = branch.fullname or branch.kind
            if key in seen:
                raise ValueError(f"duplicate in union: {key}")
            seen.add(key)
        return AvroType("union", branches)

    def _named(self, kind: str, said: Mapping[str, Any], namespace: str) -> AvroType:
        name = said.get("name")
        if not isinstance(name, str):
            raise ValueError(f"no name: {_short(said)}")
        space = said.get("namespace")
        space, name = self._split(name, space if isinstance(space, str) else namespace)
        made = AvroType("record" if kind == "error" else kind, name=name, namespace=space, properties=_properties(said))
        made.doc = _text(said.get("doc"))
        made.is_error = kind == "error"
        made.aliases = list(dict.fromkeys(self._split(alias, space) for alias in _aliases(said)))
        if made.fullname in _PRIMITIVES:
            raise ValueError(f"a type may not have the name of a primitive type: {name}")
        known = self._names.setdefault(made.fullname, made)
        if known is not made and kind not in ("enum", "fixed"):
            raise ValueError(f"cannot redefine {_short(made.fullname)}")
        if kind == "enum":
            self._parse_enum(made, said)
        elif kind == "fixed":
            size = said.get("size")
            if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 1 << 31:
                raise ValueError(f"invalid or no size: {_short(said)}")
            made.size = size
        else:
            fields = said.get("fields")
            if not isinstance(fields, list):
                raise ValueError(f"record has no fields: {_short(said)}")
            for one in fields:
                self._add_field(made, one)
        if known is not made:
            # Java accepts a second, equal definition of an enum or a fixed.
            is_same = (known.kind, known.size, list(known.symbols)) == (made.kind, made.size, list(made.symbols))
            if not is_same or known.properties:
                raise ValueError(f"cannot redefine {_short(made.fullname)}")
        return known

    def _parse_enum(self, made: AvroType, said: Mapping[str, Any]) -> None:
        symbols = said.get("symbols")
        if not isinstance(symbols, list):
            raise ValueError(f"enum has no symbols: {_short(said)}")
        for symbol in symbols:
            self._check_name(symbol)
            if symbol in made.symbols:
                raise ValueError(f"duplicate enum symbol: {symbol}")
            made.symbols[symbol] = None
        made.enum_default = _text(made.properties.pop("default", None))
        if made.enum_default is not None and made.enum_default not in made.symbols:
            raise ValueError(f"enum default {_short(made.enum_default)} is not one of its symbols")

    def _add_field(self, record: AvroType, said: Any) -> None:
        name = said.get("name") if isinstance(said, dict) else None
        if not isinstance(name, str):
            raise ValueError(f"no field name: {_short(said)}")
        if "type" not in said:
            raise ValueError(f"no field type: {_short(said)}")
        self._check_name(name)
        if name in record.fields:
            raise ValueError(f"duplicate field {name} in record {record.fullname}")
        kind = self.parse(said["type"], record.namespace)
        order = said.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise ValueError(f"order {_short(order)} of field {name} is not one of {', '.join(_ORDERS)}")
        default = said.get("default", _NO_DEFAULT)
        if isinstance(default, str) and kind.kind in ("float", "double"):
            default = self._number(name, default)
        if self._is_strict and default is not _NO_DEFAULT and not _is_default(kind, default):
            raise ValueError(f"invalid default for field {name}: {_short(default)} is not {_words(kind)}")
        record.fields[name] = AvroField(
            name,
            kind,
            _text(said.get("doc")),
            default,
            order.lower(),
            list(dict.fromkeys(_aliases(said))),
            {key: value for key, value in said.items() if key not in _FIELD_ATTRIBUTES},
        )

    def _number(self, name: str, said: str) -> Any:
        """Accept the text of a number as the default of a float or a double, as Java does for old schemas."""
        match = _JAVA_DOUBLE.fullmatch(said.strip())
        if match is None:
            if self._is_strict:
                raise ValueError(f"invalid default for field {name}: {_short(said)} is not a number")
            return said
        sign, word, digits = match.groups()
        number = float(word) if word else float.fromhex(digits) if "x" in digits.lower() else float(digits)
        return -number if sign == "-" else number

    def _split(self, name: str, namespace: str) -> tuple[str, str]:
        """Split a name into namespace and name; a name with dots has its own namespace."""
        if "." in name:
            namespace, _, name = name.rpartition(".")
        self._check_name(name)
        for part in namespace.split(".") if namespace else ():
            self._check_name(part)
        return namespace, name

    def _check_name(self, name: Any) -> None:
        if not isinstance(name, str):
            raise ValueError(f"{_short(name)} is not a name")
        if self._is_strict and not _NAME.fullmatch(name):
            raise ValueError(f"illegal name: {_short(name)}; letters, digits and _ are expected, no digit first")


def _aliases(said: Mapping[str, Any]) -> list[str]:
    aliases = said.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise ValueError(f"aliases are not a list of strings: {_short(said)}")
    return aliases


def _properties(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if name not in _TYPE_ATTRIBUTES}


def _text(said: Any) -> str | None:
    return said if isinstance(said, str) else None


def _short(said: Any) -> str:
    """Return the beginning of a value for a message."""
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _words(kind: AvroType) -> str:
    return f"one of {[branch.kind for branch in kind.parts]}" if kind.kind == "union" else f"of type {kind.kind}"


def _is_default(kind: AvroType, value: Any) -> bool:
    """Java's `isValidDefault`. An omitted field has its own default, which was checked when it was parsed."""
    match kind.kind:
        case "string" | "bytes" | "enum" | "fixed":
            return isinstance(value, str)
        case "int" | "long":
            most = _RANGES[kind.kind]
            return isinstance(value, int) and not isinstance(value, bool) and -most <= value < most
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "array":
            return isinstance(value, list) and all(_is_default(kind.parts[0], one) for one in value)
        case "map":
            return isinstance(value, dict) and all(_is_default(kind.parts[0], one) for one in value.values())
        case "union":
            return any(_is_default(branch, value) for branch in kind.parts)
    return isinstance(value, dict) and all(
        _is_default(one.type, value[one.name]) if one.name in value else one.default is not _NO_DEFAULT
        for one in kind.fields.values()
    )


# -- Java's text -----------------------------------------------------------------------------------------------------


def _written(kind: AvroType, namespace: str, known: set[str]) -> Iterator[str]:
    """Java's `Schema.toJson` in parts. `known` are names that are already defined, or belong to another schema."""
    if kind.kind == "union":
        yield "["
        for number, branch in enumerate(kind.parts):
            yield "," if number else ""
            yield from _written(branch, namespace, known)
        yield "]"
        return
    if kind.name and kind.fullname in known:
        # A type in the same namespace has its simple name, unless that is the name of a primitive type.
        is_simple = kind.namespace == namespace and kind.name not in _PRIMITIVES
        yield _quoted(kind.name if is_simple or not kind.namespace else kind.fullname)
        return
    if kind.kind in _PRIMITIVES and not kind.properties:
        yield f'"{kind.kind}"'
        return
    yield f'{{"type":"{"error" if kind.is_error else kind.kind}"'
    if kind.name:
        known.add(kind.fullname)
        yield f',"name":{_quoted(kind.name)}'
        if kind.namespace != namespace:
            yield f',"namespace":{_quoted(kind.namespace)}'
        if kind.doc is not None:
            yield f',"doc":{_quoted(kind.doc)}'
    if kind.kind == "record":
        yield ',"fields":['
        for number, one in enumerate(kind.fields.values()):
            yield "," if number else ""
            yield from _written_field(one, kind.namespace, known)
        yield "]"
    elif kind.kind == "enum":
        yield f',"symbols":[{",".join(map(_quoted, kind.symbols))}]'
        if kind.enum_default is not None:
            yield f',"default":{_quoted(kind.enum_default)}'
    elif kind.kind == "fixed":
        yield f',"size":{kind.size}'
    elif kind.kind in ("array", "map"):
        yield ',"items":' if kind.kind == "array" else ',"values":'
        yield from _written(kind.parts[0], namespace, known)
    yield from _written_properties(kind.properties)
    if kind.aliases:
        aliases = (name if space in (kind.namespace, "") else f"{space}.{name}" for space, name in kind.aliases)
        yield f',"aliases":[{",".join(map(_quoted, aliases))}]'
    yield "}"


def _written_field(one: AvroField, namespace: str, known: set[str]) -> Iterator[str]:
    yield f'{{"name":{_quoted(one.name)},"type":'
    yield from _written(one.type, namespace, known)
    if one.doc is not None:
        yield f',"doc":{_quoted(one.doc)}'
    if one.default is not _NO_DEFAULT:
        yield f',"default":{_java_json(one.default)}'
    if one.order != "ascending":
        yield f',"order":"{one.order}"'
    if one.aliases:
        yield f',"aliases":[{",".join(map(_quoted, one.aliases))}]'
    yield from _written_properties(one.properties)
    yield "}"


def _written_properties(properties: Mapping[str, Any]) -> Iterator[str]:
    for name, value in properties.items():
        yield f",{_quoted(name)}:{_java_json(value)}"


def _java_json(value: Any) -> str:
    """Encode JSON as Jackson does."""
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, list):
        return f"[{','.join(map(_java_json, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(name)}:{_java_json(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)


def _quoted(text: str) -> str:
    """Encode a string as Jackson does: control characters in capitals, and a question mark for a lone surrogate."""
    escaped = json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False)
    return _ESCAPE.sub(lambda match: match[0][:2] + match[0][2:].upper(), escaped) if "\\u" in escaped else escaped


def _java_double(value: float) -> str:
    """Java's `Double.toString`: the shortest digits, with an exponent from 10⁷ on and below 10⁻³.

    Numbers that JSON does not have are quoted, as by Jackson.
    """
    if value != value or value in (float("inf"), float("-inf")):
        return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, _, exponent = f"{value!r}e0".partition("e")
    sign, digits = ("-", digits[1:]) if digits[0] == "-" else ("", digits)
    whole, _, fraction = digits.partition(".")
    power = int(exponent.partition("e")[0]) + len(whole) - 1
    significant = (whole + fraction).lstrip("0")
    power -= len(whole + fraction) - len(significant)
    significant = significant.rstrip("0")
    return f"{sign}{significant[0]}.{significant[1:] or '0'}E{power}"


# -- compatibility ---------------------------------------------------------------------------------------------------

_Path = tuple[Any, str] | tuple[()]
"""A position in the reader's schema: the position of its parent and a step. The text is built for reported errors
only.
"""


class _AvroComparison:
    """Java's `SchemaCompatibility` with cached results for pairs of types: each pair is compared once."""

    def __init__(self) -> None:
        self._verdicts: dict[tuple[int, int], bool] = {}
        self._reported: set[tuple[int, int]] = set()
        self._found: list[str] = []

    def differences(self, reader: AvroType, writer: AvroType) -> list[str]:
        """Return the unreadable parts, in the order of the reader's schema."""
        self._report(reader, writer, ())
        return self._found

    def _can_read(self, reader: AvroType, writer: AvroType) -> bool:
        """Treat a pair that is being compared, in a recursive type, as readable."""
        pair = (id(reader), id(writer))
        if pair not in self._verdicts:
            self._verdicts[pair] = True
            self._verdicts[pair] = self._is_readable(reader, writer)
        return self._verdicts[pair]

    def _is_readable(self, reader: AvroType, writer: AvroType) -> bool:
        if writer.kind == "union":
            return all(self._can_read(reader, branch) for branch in writer.parts)
        if reader.kind == "union":
            # Most branches have another name or kind: no result is cached for these, as there may be millions of pairs.
            return any(not _own_differences(one, writer) and self._can_read(one, writer) for one in reader.parts)
        if _own_differences(reader, writer):
            return False
        if reader.kind in ("array", "map"):
            return self._can_read(reader.parts[0], writer.parts[0])
        for one in reader.fields.values():
            written = _written_as(one, writer)
            if (written is None and not _has_default(one)) or (written and not self._can_read(one.type, written.type)):
                return False
        return True

    def _report(self, reader: AvroType, writer: AvroType, at: _Path) -> None:
        """Report the unreadable parts of a pair, unless already reported."""
        pair = (id(reader), id(writer))
        if self._can_read(reader, writer) or pair in self._reported or len(self._found) >= _MAX_DIFFERENCES:
            return
        self._reported.add(pair)
        if writer.kind == "union":
            for number, branch in enumerate(writer.parts):
                if reader.kind != "union":
                    self._report(reader, branch, (at, str(number)))
                elif not self._can_read(reader, branch):
                    self._add(
                        "MISSING_UNION_BRANCH",
                        f"reader union lacking writer type: {branch.kind.upper()}",
                        (at, str(number)),
                    )
            return
        if reader.kind == "union":
            self._add("MISSING_UNION_BRANCH", f"reader union lacking writer type: {writer.kind.upper()}", at)
            return
        for kind, message, step in _own_differences(reader, writer):
            self._add(kind, message, (at, step) if step else at)
        if reader.kind != writer.kind:
            return
        if reader.kind in ("array", "map"):
            self._report(reader.parts[0], writer.parts[0], (at, "items" if reader.kind == "array" else "values"))
        for number, one in enumerate(reader.fields.values()):
            written, place = _written_as(one, writer), ((at, "fields"), str(number))
            if written is not None:
                self._report(one.type, written.type, (place, "type"))
            elif not _has_default(one):
                self._add("READER_FIELD_MISSING_DEFAULT_VALUE", one.name, place)

    def _add(self, kind: str, message: str, at: Any) -> None:
        steps = list[str]()
        while at:
            at, step = at
            steps.append(step)
        if len(self._found) < _MAX_DIFFERENCES:
            self._found.append(f"{kind}: {message} at /{'/'.join(reversed(steps))}")


def _own_differences(reader: AvroType, writer: AvroType) -> list[tuple[str, str, str]]:
    """Return kinds, messages and positions of the differences of two types, without their parts."""
    if reader.kind != writer.kind:
        if writer.kind in _PROMOTIONS.get(reader.kind, ()):
            return []
        text = f"reader type: {reader.kind.upper()} not compatible with writer type: {writer.kind.upper()}"
        return [("TYPE_MISMATCH", text, "")]
    found = []
    if reader.name != writer.name and (writer.namespace, writer.name) not in reader.aliases:
        found.append(("NAME_MISMATCH", f"expected: {writer.fullname}", "name"))
    if reader.size != writer.size:
        found.append(("FIXED_SIZE_MISMATCH", f"expected: {writer.size}, found: {reader.size}", "size"))
    if reader.enum_default is None and not writer.symbols.keys() <= reader.symbols.keys():
        missing = sorted(writer.symbols.keys() - reader.symbols.keys())
        found.append(("MISSING_ENUM_SYMBOLS", f"[{', '.join(missing[:_MAX_DIFFERENCES])}]", "symbols"))
    return found


def _has_default(one: AvroField) -> bool:
    return one.default is not _NO_DEFAULT


def _written_as(one: AvroField, writer: AvroType) -> AvroField | None:
    """Return the writer's field with the same name, or with one of the aliases."""
    for name in (one.name, *one.aliases):
        if name in writer.fields:
            return writer.fields[name]
    return None
