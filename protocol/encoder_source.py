"""Generates the source of an encoder for one version of a message.

Names in it: `w` appends to the list of output pieces, `o0`, `o5`, ... are the structs being written, `n3` a length or
count, in a flexible version already in its compact form.
"""

from __future__ import annotations

from typing import Any

from . import compiled_support as support
from .generated_source import Source
from .schema import Field, Primitive, boolean, encoded_items, fields_of, string, uuid


class EncoderSource(Source):
    """Generator of an encoder."""

    def compile(self, cls: type) -> Any:
        def body() -> None:
            self.struct(cls, "o0")
            self.flush()
            self.line("return None")

        self.function("def run(o0, w):", body)
        return self.build("encoder", cls)

    def flush(self, uvarint: str = "") -> None:
        """Write the collected fixed-width items, and after them a compact length, with one call if it fits."""
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
        """Return an expression for `value` being different from the default of the field."""
        default = field.default()
        if default is None:
            return f"{value} is not None"
        if field.is_array:
            return f"{value} != []"
        if not isinstance(field.element, Primitive):
            # Comparing field by field is several times faster than comparing with a struct of defaults.
            parts = [self._differs(part, f"{value}.{part.name}") for part in fields_of(field.element)]
            if self.version in field.nullable:
                parts.insert(0, f"{value} is None")
            return f"({' or '.join(parts)})"
        literal = isinstance(default, str | int | float | bytes)
        return f"{value} != {repr(default) if literal else self.bind('default', default)}"

    def field(self, field: Field, value: str) -> None:
        """Write a field at its position in the struct."""
        nullable = self.version in field.nullable
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
        elif kind is encoded_items:
            self.encoded_items(value)
        else:
            self.variable(kind, value, nullable)

    def length(self, classic: str, n: str) -> None:
        """Write a length or count, for which the variable `n` already has the compact form if that is used."""
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

    def encoded_items(self, value: str) -> None:
        """Write an array whose items are encoded already."""
        n = self.name("n")
        self.line(f"{n} = len({value}){' + 1' if self.flexible else ''}")
        self.length("i", n)
        self.line(f"for piece in {value}.pieces: w(piece)")

    def single_struct(self, field: Field, value: str, nullable: bool) -> None:
        """Write a struct, or its null marker."""
        obj = self.name("o")
        self.line(f"{obj} = {value}")
        if nullable:
            self.flush()
            marker = "\\xff" if field.tag is None else "\\0"
            self.line(f"if {obj} is None: w(b'{marker}')")
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
        """Write an array of scalars with the pending items and the count, if it is short."""
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
        """Write the function for the tagged fields of a struct with at least one value other than the default."""
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
