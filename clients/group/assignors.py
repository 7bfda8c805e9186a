"""The available assignors by name."""

from __future__ import annotations

from collections.abc import Sequence

from .assignor import Assignor
from .cooperative_sticky_assignor import CooperativeStickyAssignor
from .range_assignor import RangeAssignor
from .round_robin_assignor import RoundRobinAssignor
from .sticky_assignor import StickyAssignor

_CLASSES: dict[str, type[Assignor]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}


def new_assignors(strategies: Sequence[str | Assignor]) -> dict[str, Assignor]:
    """Return a member's assignors in order of preference, from names or instances. Raises ValueError."""
    assignors: dict[str, Assignor] = {}
    for strategy in strategies:
        if isinstance(strategy, str) and strategy not in _CLASSES:
            raise ValueError(f"{strategy!r}: unknown assignor. Expected one of {', '.join(_CLASSES)}")
        assignor = _CLASSES[strategy]() if isinstance(strategy, str) else strategy
        assignors[assignor.name] = assignor
    if not assignors:
        raise ValueError("partition_assignment_strategy is empty")
    return assignors


def is_cooperative(assignors: Sequence[Assignor]) -> bool:
    """Return whether a member keeps its partitions during a rebalance: only if all its assignors allow it (KIP-429)."""
    return all(assignor.is_cooperative for assignor in assignors)
