"""Generates Python source that decodes or encodes a (message class, version), and compiles it once.

The source resembles hand-written code for that single version: every run of fixed-width fields, with the length that
follows it, is one `struct` call; loops, strings and tagged fields are inlined.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from .decoder_source import DecoderSource
from .encoder_source import EncoderSource
from .schema import flexible_of

Decoder = Callable[[Any, int, int, int], tuple[Any, int]]
Encoder = Callable[[Any, Callable[[Any], None]], None]


@cache
def decoder(cls: type, version: int) -> Decoder:
    """`(buffer, position, end, object_budget) -> (message, position after it)` for one version of a message."""
    decode: Decoder = DecoderSource(version, version in flexible_of(cls)).compile(cls)
    return decode


@cache
def encoder(cls: type, version: int) -> Encoder:
    """`(message, append)` for one version of a message: appends its bytes, piece by piece."""
    encode: Encoder = EncoderSource(version, version in flexible_of(cls)).compile(cls)
    return encode
