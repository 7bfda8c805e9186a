"""The few keys that are ours alone."""

from __future__ import annotations

from .builders import HIGH, MEDIUM, boolean, integer, string
from .definition import ConfigKey
from .validators import OneOf, Range

OWN_KEYS: tuple[ConfigKey, ...] = (
    string("acks.all.durability", "disk", HIGH, OneOf("disk", "page-cache")),
    boolean("allow.insecure.listeners", True, HIGH),
    integer("health.port", None, MEDIUM, Range(0, 65535)),
    string("metadata.store.path", None, MEDIUM),
)
