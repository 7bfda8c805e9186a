"""The settings with which a program of several clients connects to a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..clients.decoding.schemas import SchemaSource


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Bootstrap addresses, and the keyword arguments of each client."""

    bootstrap: str
    admin: Mapping[str, Any] = field(default_factory=dict)
    consumer: Mapping[str, Any] = field(default_factory=dict)
    producer: Mapping[str, Any] = field(default_factory=dict)
    schemas: Sequence[SchemaSource] = ()
    """Sources of the schemas of keys and values."""
