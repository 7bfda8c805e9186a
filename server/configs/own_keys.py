"""The few keys that are ours alone."""

from __future__ import annotations

from .builders import HIGH, MEDIUM, boolean, string
from .definition import ConfigKey
from .validators import OneOf

OWN_KEYS: tuple[ConfigKey, ...] = (
    string("acks.all.durability", "disk", HIGH, OneOf("disk", "page-cache")),
    boolean("allow.insecure.listeners", True, HIGH),
    string("metadata.store.path", None, MEDIUM),
)
