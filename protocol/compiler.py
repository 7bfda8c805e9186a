"""Turns (message class, version) into Python source that decodes or encodes it, and compiles that source once.

The source is what one would write by hand for that single version: every run of fixed-width fields, together with
the length that follows it, is one `struct` call; loops, strings and tagged fields stand inline. Names in it:

    buf, p, end, budget   the input, the position, where the message ends, how many objects it may still create
    o0, o1, ...           the struct being read or written, by depth
    w                     append to the list of output pieces

A decoder may run past `end` inside the buffer (never past the buffer), and notices before it believes a length or
returns. It raises `ProtocolError`, `struct.error`, `IndexError` or `UnicodeDecodeError`; `codec` makes them one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from . import compiled_support as support
from .schema import (
    Field,
    Primitive,
    boolean,
    bytes_,
    carries_records,
    fields_of,
    flexible_of,
    record_bytes,
    string,
    uuid,
)

Decoder = Callable[[Any, int, int, int], tuple[Any, int]]
Encoder = Callable[[Any, Callable[[Any], None]], None]


@cache
def decoder(cls: type, version: int) -> Decoder:
    """`(buffer, position, end, object_budget) -> (message, position after it)` for one version of a message."""
    return DecoderSource(version, version in flexible_of(cls)).compile(cls)


@cache
def encoder(cls: type, version: int) -> Encoder:
    """`(message, append)` for one version of a message: appends its bytes, piece by piece."""
    return EncoderSource(version, version in flexible_of(cls)).compile(cls)


def min_size(element: Any, version: int, flexible: bool) -> int:
    """The fewest bytes a value of that type takes: what an array of it must at least have left."""
    if isinstance(element, Primitive):
        return struct_size(element.code) if element.code else (1 if flexible else 2 if element is string else 4)
    size = 1 if flexible else 0
    for field in fields_of(element):
        if version not in field.versions or field.tag is not None:
            continue
        if field.is_array:
            size += 1 if flexible else 4
        elif version in field.nullable and not isinstance(field.element, Primitive):
            size += 1
        else:
            size += min_size(field.element, version, flexible)
    return size


def struct_size(codes: str) -> int:
    """Bytes taken by big-endian `struct` codes."""
    return support.structure(codes).size


class Source:
    """Lines of Python with their indentation, the objects they refer to, and fixed-width items not yet written."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.functions: list[str] = []
        self.scope: dict[str, Any] = dict(vars(support))
        self.indent = 1
        self.names = 0
        self.pending: list[tuple[str, str]] = []

    def line(self, text: str) -> None:
        """Add a line at the present indentation."""
        self.lines.append("    " * self.indent + text)

    def name(self, stem: str) -> str:
        """A name not used before."""
        self.names += 1
        return f"{stem}{self.names}"

    def bind(self, stem: str, value: Any) -> str:
        """A name in the scope of the code for an object that the code needs."""
        name = self.name(stem)
        self.scope[name] = value
        return name

    def function(self, header: str, body: Callable[[], None]) -> None:
        """A function of its own, beside the one being written."""
        lines, indent, pending = self.lines, self.indent, self.pending
        self.lines, self.indent, self.pending = [header], 1, []
        body()
        self.functions.append("\n".join(self.lines))
        self.lines, self.indent, self.pending = lines, indent, pending

    def build(self, kind: str, cls: type) -> Any:
        """Compile everything written and return the function `run`."""
        text = "\n".join(self.functions) + "\n"
        exec(compile(text, f"<{kind} of {cls.__name__} v{self.version}>", "exec"), self.scope)  # noqa: S102
        return self.scope["run"]


class DecoderSource(Source):
    """Writes a decoder."""

    # The struct code and count of an array of scalars with which the pending items begin. It is read together
    # with the fixed-width fields and the length that follow it.
    counted: tuple[str, str] | None = None

    def compile(self, cls: type) -> Decoder:
        """The compiled decoder of `cls`."""

        def body() -> None:
            if carries_records(cls):
                self.line("view = memoryview(buf)")
            self.struct(cls, "o0")
            self.flush()
            self.line("if p > end: raise truncated(p, end)")
            self.line("return o0, p")

        self.function("def run(buf, p, end, budget):", body)
        decode: Decoder = self.build("decoder", cls)
        return decode

    def flush(self) -> None:
        """Read the fixed-width items gathered so far with one call."""
        if not self.pending:
            return
        codes = "".join(code for code, _ in self.pending)
        targets = ", ".join(target for _, target in self.pending)
        comma = "," if len(self.pending) == 1 else ""
        counted, self.counted = self.counted, None
        if counted:
            element, n = counted
            small = self.bind("unpackers", support.unpackers(element, codes))
            self.line(
                f"{targets}{comma} = ({small}[{n}] if {n} < 16 else unpacker({element!r}, {n}, {codes!r}))(buf, p)"
            )
            size = struct_size(codes)
            self.line(f"p += {n} * {struct_size(element)}{f' + {size}' if size else ''}")
        elif codes == "B":
            self.line(f"{targets} = buf[p]")
            self.line("p += 1")
        else:
            unpack = self.bind("unpack", support.structure(codes).unpack_from)
            self.line(f"{targets}{comma} = {unpack}(buf, p)")
            self.line(f"p += {struct_size(codes)}")
        self.pending.clear()

    def struct(self, cls: type, obj: str) -> None:
        """Read one struct into the new variable `obj`."""
        self.line(f"{obj} = new({self.bind('cls', cls)})")
        tagged = []
        for field in fields_of(cls):
            if self.version not in field.versions:
                self.default(field, obj)
            elif field.tag is not None:
                self.default(field, obj)
                tagged.append(field)
            else:
                self.field(field, f"{obj}.{field.name}")
        if self.flexible:
            self.tags(cls, obj, tagged)

    def default(self, field: Field, obj: str) -> None:
        """Give a field the value it has when it is not on the wire."""
        if field.default_is_fresh and not field.is_array:
            fresh = self.name("fresh")
            self.line(f"{obj}.{field.name} = {fresh} = new({self.bind('cls', field.element)})")
            for part in fields_of(field.element):  # type: ignore[arg-type]
                self.default(part, fresh)
            return
        if field.is_array and field.default_is_fresh:
            value = "[]"
        elif isinstance(field.default(), str | int | float | bytes | None):
            value = repr(field.default())
        else:
            value = self.bind("default", field.default())
        self.line(f"{obj}.{field.name} = {value}")

    def field(self, field: Field, target: str) -> None:
        """Read a field that stands in its place in the struct."""
        nullable = self.version in field.nullable or field.element is record_bytes
        if field.is_array:
            self.array(field, target, nullable)
        elif not isinstance(field.element, Primitive):
            self.single_struct(field, target, nullable)
        else:
            self.primitive(field.element, target, field.name, nullable)

    def primitive(self, kind: Primitive, target: str, label: str, nullable: bool) -> None:
        """Read a scalar."""
        if kind is uuid:
            raw = self.name("raw")
            self.pending.append((kind.code, raw))
            self.flush()
            self.line(f"{target} = as_uuid({raw})")
        elif kind.code:
            self.pending.append((kind.code, target))
        else:
            self.variable(kind, target, label, nullable)

    def length(self, classic: str, label: str, nullable: bool) -> str:
        """Read a length or count into a variable, -1 for null; refuse null unless it is allowed."""
        n = self.name("n")
        self.pending.append(("B" if self.flexible else classic, n))
        self.flush()
        if self.flexible:
            self.line(f"if {n} > 127: {n}, p = long_uvarint(buf, p, {n})")
            self.line(f"{n} -= 1")
        self.line(f"if {n} < {-1 if nullable else 0}: raise bad_length({n}, {label!r})")
        return n

    def variable(self, kind: Primitive, target: str, label: str, nullable: bool) -> None:
        """Read a string, bytes or records."""
        n = self.length("h" if kind is string else "i", label, nullable)
        if nullable:
            self.line(f"if {n} < 0: {target} = None")
            self.line("else:")
            self.indent += 1
        self.line(f"q = p + {n}")
        self.line("if q > end: raise truncated(q, end)")
        value = {string: 'str(buf[p:q], "utf-8")', bytes_: "bytes(buf[p:q])", record_bytes: "view[p:q]"}[kind]
        self.line(f"{target} = {value}")
        self.line("p = q")
        if nullable:
            self.indent -= 1

    def single_struct(self, field: Field, target: str, nullable: bool) -> None:
        """Read a struct, or its null marker."""
        obj = self.name("o")
        if nullable:
            present = self.name("present")
            self.pending.append(("b", present))
            self.flush()
            self.line(f"if {present} < 0: {target} = None")
            self.line("else:")
            self.indent += 1
        self.struct(field.element, obj)  # type: ignore[arg-type]
        self.line(f"{target} = {obj}")
        if nullable:
            self.flush()
            self.indent -= 1

    def array(self, field: Field, target: str, nullable: bool) -> None:
        """Read an array: its count, checked against the bytes left and the budget, then its items."""
        n = self.length("i", field.name, nullable)
        if nullable:
            self.line(f"if {n} < 0: {target} = None")
            self.line("else:")
            self.indent += 1
        element = field.element
        smallest = min_size(element, self.version, self.flexible)
        needed = f"{n} * {smallest}" if smallest > 1 else n
        if isinstance(element, Primitive) and element.code and element is not uuid:
            self.line(f"if {needed} > end - p: raise too_many({n}, {field.name!r})")
            self.line(f"budget -= {n} >> 3")
            self.line(f"if budget < 0: raise too_many({n}, {field.name!r})")
            self.counted = (element.code, n)
            self.pending.append(("", f"*{target}"))
            if nullable:
                self.flush()
        else:
            self.line(f"budget -= {n}")
            self.line(f"if {needed} > end - p or budget < 0: raise too_many({n}, {field.name!r})")
            self.items(field, target, n)
        if nullable:
            self.indent -= 1

    def items(self, field: Field, target: str, n: str) -> None:
        """The loop over an array of structs, strings or uuids."""
        items, item = self.name("items"), self.name("o")
        self.line(f"{target} = {items} = []")
        self.line(f"for _ in range({n}):")
        self.indent += 1
        if isinstance(field.element, Primitive):
            self.primitive(field.element, item, field.name, False)
        else:
            self.struct(field.element, item)
        self.flush()
        self.line(f"{items}.append({item})")
        self.indent -= 1

    def tags(self, cls: type, obj: str, tagged: list[Field]) -> None:
        """Read the tagged fields that end a struct."""
        n = self.name("n")
        self.pending.append(("B", n))
        self.flush()
        if not tagged:
            self.line(f"if {n}: p = skip_tags(buf, p, end, {n})")
            return
        read = self.name("tags")
        self.function(f"def {read}(buf, p, limit, n, o, budget):", lambda: self.tags_body(tagged))
        self.line(f"if {n}: p, budget = {read}(buf, p, end, {n}, {obj}, budget)")

    def tags_body(self, tagged: list[Field]) -> None:
        """The function that reads the tagged fields of one struct; in it `end` is where the present field ends."""
        if any(field.element is record_bytes for field in tagged):
            self.line("view = memoryview(buf)")
        self.line("n, p = tag_count(buf, p, n)")
        self.line("last = -1")
        self.line("unknown = 0")
        self.line("for _ in range(n):")
        self.indent += 1
        self.line("tag, end, p = next_tag(buf, p, limit, last)")
        self.line("last = tag")
        word = "if"
        for field in tagged:
            self.line(f"{word} tag == {field.tag}:")
            self.indent += 1
            self.field(field, f"o.{field.name}")
            self.flush()
            self.line(f"if p != end: raise bad_tag_size({field.name!r})")
            self.indent -= 1
            word = "elif"
        self.line("else:")
        self.line("    unknown += 1")
        self.line("    if unknown > MAX_UNKNOWN_TAGS: raise too_many(unknown, 'unknown tagged fields')")
        self.line("    p = end")
        self.indent -= 1
        self.line("return p, budget")


class EncoderSource(Source):
    """Writes an encoder."""

    def compile(self, cls: type) -> Encoder:
        """The compiled encoder of `cls`."""

        def body() -> None:
            self.struct(cls, "o0")
            self.flush()
            self.line("return None")

        self.function("def run(o0, w):", body)
        encode: Encoder = self.build("encoder", cls)
        return encode

    def flush(self, uvarint: str = "") -> None:
        """Write the fixed-width items gathered so far, and after them a compact length, with one call if it fits."""
        if uvarint:
            short = [*self.pending, ("B", uvarint)]
            if not self.pending:
                self.line(f"w(UVARINTS[{uvarint}] if {uvarint} < 128 else uvarint({uvarint}))")
                return
            self.line(f"if {uvarint} < 128: {self._pack(short)}")
            self.line(f"else: {self._pack(self.pending)}; w(uvarint({uvarint}))")
        elif self.pending:
            self.line(self._pack(self.pending))
        self.pending = []

    def _pack(self, items: list[tuple[str, str]]) -> str:
        codes = "".join(code for code, _ in items)
        if not codes.strip("x"):
            return f"w({bytes(len(codes))!r})"
        pack = self.bind("pack", support.structure(codes).pack)
        return f"w({pack}({', '.join(value for _, value in items if value)}))"

    def struct(self, cls: type, obj: str) -> None:
        """Write one struct."""
        tagged = []
        for field in fields_of(cls):
            value = f"{obj}.{field.name}"
            if self.version not in field.versions:
                if not field.ignorable:
                    self.line(f"if {self._differs(field, value)}: raise not_in_version({field.name!r}, {self.version})")
            elif field.tag is not None:
                tagged.append(field)
            else:
                self.field(field, value)
        if not self.flexible:
            return
        if not tagged:
            self.pending.append(("x", ""))
            return
        write = self.name("tags")
        tagged.sort(key=lambda field: field.tag or 0)
        self.function(f"def {write}(o, w):", lambda: self.tags_body(tagged))
        self.flush()
        given = " or ".join(self._differs(field, f"{obj}.{field.name}") for field in tagged)
        self.line(f"if {given}: {write}({obj}, w)")
        self.line("else: w(b'\\0')")

    def _differs(self, field: Field, value: str) -> str:
        """An expression for `value` being something else than the default of the field."""
        default = field.default()
        if default is None:
            return f"{value} is not None"
        if field.is_array:
            return f"{value} != []"
        if not isinstance(field.element, Primitive):
            # Asking field by field is several times faster than comparing with a struct of defaults.
            parts = [self._differs(part, f"{value}.{part.name}") for part in fields_of(field.element)]
            return f"({' or '.join(parts)})"
        literal = isinstance(default, str | int | float | bytes)
        return f"{value} != {repr(default) if literal else self.bind('default', default)}"

    def field(self, field: Field, value: str) -> None:
        """Write a field that stands in its place in the struct."""
        nullable = self.version in field.nullable or field.element is record_bytes
        if field.is_array:
            self.array(field, value, nullable)
        elif not isinstance(field.element, Primitive):
            self.single_struct(field, value, nullable)
        else:
            self.primitive(field.element, value, nullable)

    def primitive(self, kind: Primitive, value: str, nullable: bool) -> None:
        """Write a scalar."""
        if kind is uuid:
            self.pending.append((kind.code, f"{value}.bytes"))
        elif kind is boolean:
            self.pending.append(("?", value))
        elif kind.code:
            self.pending.append((kind.code, value))
        else:
            self.variable(kind, value, nullable)

    def length(self, classic: str, n: str) -> None:
        """Write a length or count, for which the variable `n` already has the compact form where that is used."""
        if self.flexible:
            self.flush(uvarint=n)
        else:
            self.pending.append((classic, n))
            self.flush()

    def variable(self, kind: Primitive, value: str, nullable: bool) -> None:
        """Write a string, bytes or records."""
        data, n = self.name("data"), self.name("n")
        convert = f"{value}.encode()" if kind is string else value
        plus = " + 1" if self.flexible else ""
        if nullable:
            self.line(f"if {value} is None: {data} = b''; {n} = {0 if self.flexible else -1}")
            self.line(f"else: {data} = {convert}; {n} = len({data}){plus}")
        else:
            self.line(f"{data} = {convert}")
            self.line(f"{n} = len({data}){plus}")
        self.length("h" if kind is string else "i", n)
        self.line(f"w({data})")

    def single_struct(self, field: Field, value: str, nullable: bool) -> None:
        """Write a struct, or its null marker."""
        obj = self.name("o")
        self.line(f"{obj} = {value}")
        if nullable:
            self.flush()
            self.line(f"if {obj} is None: w(b'\\xff')")
            self.line("else:")
            self.indent += 1
            self.pending.append(("b", "1"))
        self.struct(field.element, obj)  # type: ignore[arg-type]
        if nullable:
            self.flush()
            self.indent -= 1

    def array(self, field: Field, value: str, nullable: bool) -> None:
        """Write an array."""
        items, n = self.name("items"), self.name("n")
        plus = " + 1" if self.flexible else ""
        self.line(f"{items} = {value}")
        if nullable:
            self.line(f"if {items} is None: {items} = (); {n} = {0 if self.flexible else -1}")
            self.line(f"else: {n} = len({items}){plus}")
        else:
            self.line(f"{n} = len({items}){plus}")
        element = field.element
        if isinstance(element, Primitive) and element.code and element is not uuid:
            self.scalars(element.code, items, n)
            return
        self.length("i", n)
        item = self.name("o")
        self.line(f"for {item} in {items}:")
        self.indent += 1
        if isinstance(element, Primitive):
            self.primitive(element, item, False)
        else:
            self.struct(element, item)
        self.flush()
        self.indent -= 1

    def scalars(self, code: str, items: str, n: str) -> None:
        """Write an array of scalars together with what is pending and the count, if it is a short one."""
        pending = [*self.pending, ("B" if self.flexible else "i", n)]
        codes = "".join(code for code, _ in pending)
        values = ", ".join(value for _, value in pending if value)
        small = self.bind("packers", support.packers(code, codes))
        self.line(f"if len({items}) < 16: w({small}[len({items})]({values}, *{items}))")
        self.line("else:")
        self.indent += 1
        self.length("i", n)
        self.line(f"w(pack_many({code!r}, {items}))")
        self.indent -= 1
        self.pending = []

    def tags_body(self, tagged: list[Field]) -> None:
        """The function that writes the tagged fields of a struct of which at least one is not the default."""
        tests = [self._differs(field, f"o.{field.name}") for field in tagged]
        self.line(f"w(uvarint({' + '.join(f'({test})' for test in tests)}))")
        self.line("out = w")
        for field, test in zip(tagged, tests, strict=True):
            self.line(f"if {test}:")
            self.indent += 1
            self.line("parts = []")
            self.line("w = parts.append")
            self.field(field, f"o.{field.name}")
            self.flush()
            self.line("data = b''.join(parts)")
            self.line(f"out(uvarint({field.tag})); out(uvarint(len(data))); out(data)")
            self.indent -= 1
