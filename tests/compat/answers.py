"""Answers of two brokers made comparable."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any


def plain(value: Any, untold: Collection[str], names: dict[str, str] | None = None) -> object:
    """A response as dicts and lists, without the fields `untold`. Lists are sorted: Kafka's order is often a hash's.

    Member ids of the client `config-client` become numbers, in the order in which `names` gets to know them.
    """
    if type(value).__module__.startswith("barnabas.protocol.messages"):
        fields = sorted(type(value).__annotations__.keys() - untold)
        return {name: plain(getattr(value, name), untold, names) for name in fields}
    if isinstance(value, list):
        return sorted((plain(part, untold, names) for part in value), key=repr)
    if names is not None and isinstance(value, str) and value.startswith("config-client-"):
        return names.setdefault(value, f"member {len(names)}")
    return bytes(value) if isinstance(value, memoryview) else value


def differences(theirs: object, ours: object, where: str = "") -> Iterator[str]:
    """What is not the same in two plain values, and where."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in sorted(theirs.keys() | ours.keys()):
            yield from differences(theirs.get(name), ours.get(name), f"{where}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for one, other in zip(theirs, ours, strict=True):
            yield from differences(one, other, where)
    elif theirs != ours:
        yield f"{where} {theirs!r:.150} here {ours!r:.150}"
