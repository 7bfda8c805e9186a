"""Levels of compatibility: with which versions a new one is compared, and which has to read the other's data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .errors import RegistryCode, RegistryError
from .schemas import Version

DEFAULT_LEVEL = "BACKWARD"
LEVELS = ("NONE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE")


def level_of(said: object) -> str:
    """Raises RegistryError for what is no level."""
    if isinstance(said, str) and said.upper() in LEVELS:
        return said.upper()
    *most, last = (level.lower() for level in LEVELS)
    text = f"Invalid compatibility level. Valid values are {', '.join(most)}, and {last}"
    raise RegistryError(RegistryCode.INVALID_COMPATIBILITY, text)


def incompatibilities(
    level: str, new: Any, kind: str, versions: Iterable[Version], read: Callable[[Version], Any]
) -> Iterator[str]:
    """What speaks against a new schema after these versions, the newest first; a transitive level looks at all."""
    if level == "NONE":
        return
    for version in versions:
        if version.schema.kind != kind:
            yield f"Incompatible because of different schema type, version {version.number} is {version.schema.kind}"
        else:
            old = read(version)
            if not level.startswith("FORWARD"):
                yield from (f"BACKWARD, version {version.number}: {one}" for one in new.cannot_read(old))
            if not level.startswith("BACKWARD"):
                yield from (f"FORWARD, version {version.number}: {one}" for one in old.cannot_read(new))
        if not level.endswith("_TRANSITIVE"):
            return
