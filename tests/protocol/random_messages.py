"""Random messages from a seed: every field that a version has, with edge values, nulls and defaults among them."""

import random
import struct
from typing import Any
from uuid import UUID

from barnabas.protocol.apis import API_MESSAGES
from barnabas.protocol.schema import Field, Primitive, boolean, bytes_, fields_of, float64, record_bytes, string, uuid

TEXTS = ("", "a", "topic-0", "ünïcödé ☃", "𝄞" * 3, "x" * 126, "y" * 127, "z" * 300)
SIZES = (0, 0, 1, 1, 2, 3)
LONG_SIZES = (15, 16, 17, 127, 128)


def every_version() -> list[tuple[str, type, int]]:
    """(name, class, version) of each request and response that can be coded."""
    return [
        (f"{cls.__name__} v{version}", cls, version)
        for spec in API_MESSAGES.values()
        for version in spec.versions.numbers()
        for cls in (spec.request, spec.response)
    ]


def random_message(cls: type, version: int, rng: random.Random) -> Any:
    """A message whose fields are random where the version has them and left at their defaults elsewhere."""
    return cls(
        **{
            field.name: random_field(field, version, rng)
            for field in fields_of(cls)
            if version in field.versions and rng.random() < 0.9
        }
    )


def random_field(field: Field, version: int, rng: random.Random) -> Any:
    if version in field.nullable and rng.random() < 0.2:
        return None
    if not field.is_array:
        return random_value(field.element, version, rng)
    scalar = isinstance(field.element, Primitive)
    size = rng.choice(LONG_SIZES) if scalar and rng.random() < 0.2 else rng.choice(SIZES)
    return [random_value(field.element, version, rng) for _ in range(size)]


def random_value(element: Any, version: int, rng: random.Random) -> Any:
    if not isinstance(element, Primitive):
        return random_message(element, version, rng)
    if element is string:
        return rng.choice(TEXTS)
    if element is uuid:
        return UUID(int=rng.choice((0, 1, rng.getrandbits(128))))
    if element in (bytes_, record_bytes):
        return rng.randbytes(rng.choice((0, 1, 127, 128, 5000)))
    if element is boolean:
        return rng.random() < 0.5
    if element is float64:
        return rng.choice((0.0, -1.5, 1e300))
    return random_integer(element, rng)


def random_integer(element: Primitive, rng: random.Random) -> int:
    bits = struct.calcsize(element.code) * 8 if element.code != "q" else 64
    if element.code.isupper():
        return rng.choice((0, 1, 2**bits - 1, rng.getrandbits(bits)))
    return rng.choice((0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), rng.getrandbits(bits - 1)))
