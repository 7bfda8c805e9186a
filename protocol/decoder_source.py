"""Generates the source of a decoder for one version of a message.

Names in it, besides the helpers of `compiled_support`:

    buf, p, end, budget   the input, the position, the end of the message, the number of objects it may still create
    o0, o5, ...           the structs being read
    n3, q                 a length or count, and the end of its data

The code may read past `end` inside the buffer (never past the buffer), and checks before it uses a length or returns.
It raises `ProtocolError`, `struct.error`, `IndexError` or `UnicodeDecodeError`; `codec` unifies them.
"""

from __future__ import annotations

from typing import Any

from . import compiled_support as support
from .generated_source import Source, min_size, struct_size
from .schema import Field, Primitive, bytes_, carries_records, fields_of, record_bytes, string, uuid

LONGEST_STRING = 2**15 - 1
"""Maximum bytes of a string. Flexible versions could have more, but Kafka does not accept more there either: it could
not be stored.
"""


class DecoderSource(Source):
    """Generator of a decoder."""

    # The struct code and count of an array of scalars at the start of the pending items. It is read with the
    # fixed-width fields and the length that follow it.
    counted: tuple[str, str] | None = None

    def compile(self, cls: type) -> Any:
        def body() -> None:
            if carries_records(cls):
                self.line("view = memoryview(buf)")
            self.struct(cls, "o0")
            self.flush()
            self.line("if p > end: raise truncated(p, end)")
            self.line("return o0, p")

        self.function("def run(buf, p, end, budget):", body)
        return self.build("decoder", cls)

    def flush(self) -> None:
        """Read the collected fixed-width items with one call."""
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
        """Set a field to its value when it is not on the wire."""
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
        """Read a field at its position in the struct."""
        nullable = self.version in field.nullable
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
        """Read a length or count into a variable, -1 for null; reject null unless it is allowed."""
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
        if self.flexible and kind is string:
            self.line(f"if {n} > {LONGEST_STRING}: raise bad_length({n}, {label!r})")
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
            self.line(f"if {present} < {0 if field.tag is None else 1}: {target} = None")
            self.line("else:")
            self.indent += 1
        self.struct(field.element, obj)  # type: ignore[arg-type]
        self.line(f"{target} = {obj}")
        if nullable:
            self.flush()
            self.indent -= 1

    def array(self, field: Field, target: str, nullable: bool) -> None:
        """Read an array: its count, checked against the remaining bytes and the budget, then its items."""
        n = self.length("i", field.name, nullable)
        if nullable:
            self.line(f"if {n} < 0: {target} = None")
            self.line("else:")
            self.indent += 1
        element = field.element
        smallest = min_size(element, self.version, self.flexible)
        needed = f"{n} * {smallest}" if smallest > 1 else n
        too_long = f"{needed} > end - p or {n} > {support.MAX_ARRAY_ELEMENTS}"
        if isinstance(element, Primitive) and element.code and element is not uuid:
            self.line(f"if {too_long}: raise too_many({n}, {field.name!r})")
            self.line(f"budget -= {n}")
            self.line(f"if budget < 0: raise too_many({n}, {field.name!r})")
            self.counted = (element.code, n)
            self.pending.append(("", f"*{target}"))
            if nullable:
                self.flush()
        else:
            self.line(f"budget -= {n}")
            self.line(f"if {too_long} or budget < 0: raise too_many({n}, {field.name!r})")
            self.items(field, target, n)
        if nullable:
            self.indent -= 1

    def items(self, field: Field, target: str, n: str) -> None:
        """Write the loop over an array of structs, strings or uuids."""
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
        """Read the tagged fields at the end of a struct."""
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
        """Write the function that reads the tagged fields of one struct; in it `end` is the end of the present
        field.
        """
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
        self.line("    if unknown > MAX_UNKNOWN_TAGS: raise too_many_tags(unknown)")
        self.line("    p = end")
        self.indent -= 1
        self.line("return p, budget")
