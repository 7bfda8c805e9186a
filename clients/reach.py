"""How a program of several clients gets to the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .console.decoding.schemas import SchemaSource


@dataclass(frozen=True, slots=True)
class Reach:
    """How to get there: addresses, and what else each client is told by keyword."""

    bootstrap: str
    admin: Mapping[str, Any] = field(default_factory=dict)
    consumer: Mapping[str, Any] = field(default_factory=dict)
    producer: Mapping[str, Any] = field(default_factory=dict)
    schemas: Sequence[SchemaSource] = ()
    """Where schemas of keys and values are found."""
