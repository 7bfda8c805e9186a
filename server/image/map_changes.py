"""Changes of mappings: copy-on-write application, and the difference of two mappings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ..runtime.loop_sharing import CountBudget

K = TypeVar("K")
V = TypeVar("V")


def with_changes(before: Mapping[K, V], changes: Mapping[K, V | None]) -> dict[K, V]:
    """Return a copy with the changes; a change to None removes the key."""
    after = dict(before)
    for key, value in changes.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return after


async def difference(before: Mapping[K, V], after: Mapping[K, V], budget: CountBudget) -> dict[K, V | None]:
    """Return the changes that make `after` of `before`. The loop serves other requests in between."""
    changes: dict[K, V | None] = {}
    for key, value in after.items():
        if before.get(key) != value:
            changes[key] = value
        await budget.step()
    for key in before:
        if key not in after:
            changes[key] = None
        await budget.step()
    return changes
