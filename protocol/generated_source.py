"""Generated Python source: the common part of decoders and encoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import compiled_support as support
from .schema import Primitive, fields_of, string


class Source:
    """Lines of Python with their indentation, their objects, and pending fixed-width items."""

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
        """Return an unused name."""
        self.names += 1
        return f"{stem}{self.names}"

    def bind(self, stem: str, value: Any) -> str:
        """Return a name in the scope of the code for an object."""
        name = self.name(stem)
        self.scope[name] = value
        return name

    def function(self, header: str, body: Callable[[], None]) -> None:
        """Start a separate function next to the present one."""
        lines, indent, pending = self.lines, self.indent, self.pending
        self.lines, self.indent, self.pending = [header], 1, []
        body()
        self.functions.append("\n".join(self.lines))
        self.lines, self.indent, self.pending = lines, indent, pending

    def build(self, kind: str, cls: type) -> Any:
        """Compile all lines and return the function `run`."""
        text = "\n".join(self.functions) + "\n"
        exec(compile(text, f"<{kind} of {cls.__name__} v{self.version}>", "exec"), self.scope)  # noqa: S102
        return self.scope["run"]


def min_size(element: Any, version: int, flexible: bool) -> int:
    """Return the minimum bytes of a value of that type, which each item of an array needs."""
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
    """Return the bytes of big-endian `struct` codes."""
    return support.structure(codes).size
