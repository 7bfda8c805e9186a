"""The declaration of messages: one class for all versions, each field with its type and version ranges.

    @message
    class TopicProduceData:
        name: str = wire(string, "0-12", ignorable=True)
        partition_data: list[PartitionProduceData] = wire([PartitionProduceData], "0+")

`message` turns such a class into a slotted one with a keyword-only `__init__`. This module does not encode: `compiler`
derives codecs from `fields_of(cls)`, and tests a second, independent set.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar, cast, dataclass_transform, overload
from uuid import UUID

ZERO_UUID = UUID(int=0)
UNBOUNDED = 32767


class Primitive(NamedTuple):
    """A scalar wire type: Kafka's name for it, its `struct` code if it has a fixed width, and its zero."""

    name: str
    code: str
    zero: object


boolean = Primitive("bool", "?", False)
int8 = Primitive("int8", "b", 0)
int16 = Primitive("int16", "h", 0)
int32 = Primitive("int32", "i", 0)
int64 = Primitive("int64", "q", 0)
uint16 = Primitive("uint16", "H", 0)
float64 = Primitive("float64", "d", 0.0)
uuid = Primitive("uuid", "16s", ZERO_UUID)
string = Primitive("string", "", "")
bytes_ = Primitive("bytes", "", b"")
record_bytes = Primitive("records", "", None)
encoded_items = Primitive("encoded items", "", None)
"""A list whose items are already encoded, as `EncodedItems`. It is only written; readers receive a list."""

Buffer = bytes | bytearray | memoryview

Element = Primitive | type
WireType = Primitive | type | list[Any]


class Versions(NamedTuple):
    """A closed range of versions; an empty range has `last < first`."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def numbers(self) -> range:
        """Return every version in the range."""
        return range(self.first, self.last + 1)


@lru_cache(maxsize=256)
def parse_versions(text: str) -> Versions:
    """Parse Kafka's notation: `3+`, `0-12`, `4`, and the empty text for no version."""
    if not text:
        return Versions(0, -1)
    if text.endswith("+"):
        return Versions(int(text[:-1]), UNBOUNDED)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


class _Unset:
    """Marks a missing default."""

    def __repr__(self) -> str:
        return "unset"


UNSET: Any = _Unset()


class Field:
    """The arguments of `wire` for one field. `versions`, `nullable` and `tag` determine its form in a version."""

    __slots__ = ("_default", "_nullable", "_versions", "ignorable", "kind", "name", "tag")

    def __init__(
        self, kind: WireType, versions: str, *, null: str, default: object, tag: int | None, ignorable: bool
    ) -> None:
        self.name = ""
        self.kind = kind
        self.tag = tag
        self.ignorable = ignorable
        self._versions = versions
        self._nullable = null
        self._default = default

    @property
    def versions(self) -> Versions:
        """Return the versions with the field."""
        return parse_versions(self._versions)

    @property
    def nullable(self) -> Versions:
        """Return the versions in which it may be null."""
        return parse_versions(self._nullable)

    @property
    def is_array(self) -> bool:
        """Return whether it is a list."""
        return isinstance(self.kind, list)

    @property
    def element(self) -> Element:
        """Return the type of the items of an array, of the field itself otherwise."""
        return cast(Element, self.kind[0] if isinstance(self.kind, list) else self.kind)

    @property
    def default_is_fresh(self) -> bool:
        """Return whether each message needs its own default: an empty list or a struct of defaults."""
        return self._default is UNSET and not isinstance(self.kind, Primitive)

    def default(self) -> Any:
        """Return the default: the given one, or the type's zero."""
        if self._default is not UNSET:
            return self._default
        if isinstance(self.kind, list):
            return []
        return self.kind.zero if isinstance(self.kind, Primitive) else self.kind()


def wire(
    kind: WireType,
    versions: str,
    *,
    null: str = "",
    default: object = UNSET,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field: its type (`[T]` for an array of T) and its versions.

    `null`: versions in which null is valid. `tag`: a tagged field, sent only if it is not the default. `ignorable`: a
    version without the field drops its value; otherwise a value other than the default is an error.
    """
    return Field(kind, versions, null=null, default=default, tag=tag, ignorable=ignorable)


class Message:
    """Equality, copying and printing, the same for every message and struct."""

    __slots__: tuple[str, ...] = ()
    __wire_fields__: tuple[Field, ...] = ()
    __versions__: str = ""
    __flexible__: str = ""
    __hash__ = None  # type: ignore[assignment]  # mutable, like a dataclass with eq

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).__slots__)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).__slots__)
        return f"{type(self).__name__}({values})"


T = TypeVar("T")


@overload
def message(cls: type[T], /) -> type[T]: ...


@overload
def message(*, versions: str, flexible: str = "") -> Callable[[type[T]], type[T]]: ...


# `wire` is not a field specifier for type checkers: any assigned value then means that the field has a default.
@dataclass_transform(kw_only_default=True)
def message(
    cls: type[T] | None = None, /, *, versions: str = "", flexible: str = ""
) -> type[T] | Callable[[type[T]], type[T]]:
    """Make the class a message: slots for its fields, and an `__init__` with a default for every field.

    A top-level message has the `versions` that exist and the first `flexible` one (compact lengths and tagged fields);
    a struct, with `@message` only, has the versions of the message that contains it.
    """
    if cls is None:
        return lambda top: _build(top, versions, flexible)
    return _build(cls, versions, flexible)


def _build(cls: type[T], versions: str, flexible: str) -> type[T]:
    # `__slots__` must be known before a class exists, hence a second class from the namespace of the first.
    namespace = dict(cls.__dict__)
    del namespace["__dict__"], namespace["__weakref__"]
    fields = []
    for name in namespace.get("__annotations__", ()):
        field = namespace.pop(name)
        field.name = name
        fields.append(field)
    namespace["__slots__"] = tuple(field.name for field in fields)
    namespace["__wire_fields__"] = tuple(fields)
    namespace["__versions__"] = versions
    namespace["__flexible__"] = flexible
    namespace["__init__"] = _first_init
    return cast(type[T], type(cls.__name__, (Message,), namespace))


def fields_of(cls: type) -> tuple[Field, ...]:
    """Return the fields of a message or struct, in wire order."""
    return cast(type[Message], cls).__wire_fields__


def versions_of(cls: type) -> Versions:
    """Return the versions of a top-level message."""
    return parse_versions(cast(type[Message], cls).__versions__)


def flexible_of(cls: type) -> Versions:
    """Return the versions of a top-level message that have compact lengths and tagged fields."""
    return parse_versions(cast(type[Message], cls).__flexible__)


@cache
def carries_records(cls: type) -> bool:
    """Return whether a message contains record batches."""
    return any(
        carries_records(cast(type, field.element)) if is_struct(field.element) else field.element is record_bytes
        for field in fields_of(cls)
    )


@cache
def has_large_pieces(cls: type) -> bool:
    """Return whether a message contains large parts that are passed on without a copy."""
    return carries_records(cls) or any(field.element is encoded_items for field in fields_of(cls))


def is_struct(element: Element) -> bool:
    """Return whether an element type is a class made by `message`."""
    return not isinstance(element, Primitive)


def _first_init(self: Message, **values: object) -> None:
    # Compiling an __init__ costs more than declaring the class, and most structs are only ever decoded;
    # so the class gets its own at the first construction.
    cls = type(self)
    init = _compile_init(cls)
    cls.__init__ = init  # type: ignore[method-assign]
    init(self, **values)


def _compile_init(cls: type[Message]) -> Callable[..., None]:
    scope: dict[str, Any] = {"UNSET": UNSET, "new": object.__new__}
    parameters, body = ["self", "*"], []
    for field in cls.__wire_fields__:
        name = field.name
        if field.default_is_fresh:
            parameters.append(f"{name}=UNSET")
            body += [f"if {name} is UNSET:", *(f"    {line}" for line in _fresh_default(field, name, scope))]
        else:
            scope[f"{name}_default"] = field.default()
            parameters.append(f"{name}={name}_default")
        body.append(f"self.{name} = {name}")
    signature = ", ".join(parameters if len(parameters) > 2 else ["self"])
    exec("\n    ".join([f"def __init__({signature}):", *body, "return None"]), scope)  # noqa: S102  # generated text
    return cast(Callable[..., None], scope["__init__"])


def _fresh_default(field: Field, target: str, scope: dict[str, Any]) -> list[str]:
    """Generate lines that create the empty list or struct of defaults in place, in a third of the time of its
    `__init__`.
    """
    if field.is_array:
        return [f"{target} = []"]
    name = f"t{len(scope)}"
    scope[name] = field.element
    lines = [f"{target} = new({name})"]
    for part in fields_of(cast(type, field.element)):
        if part.default_is_fresh:
            lines += _fresh_default(part, f"{target}.{part.name}", scope)
        else:
            value = f"t{len(scope)}"
            scope[value] = part.default()
            lines.append(f"{target}.{part.name} = {value}")
    return lines
