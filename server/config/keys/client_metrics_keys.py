"""Keys of a client metrics subscription (KIP-714)."""

from __future__ import annotations

from .builders import MEDIUM, integer, list_of
from .definition import ConfigKey
from .validators import ValidList

CLIENT_METRICS_KEYS: tuple[ConfigKey, ...] = (
    integer("interval.ms", 300000, MEDIUM),
    list_of("match", (), MEDIUM, ValidList()),
    list_of("metrics", (), MEDIUM, ValidList()),
)
