"""The assignors by name."""

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
    """One member's own assignors in order of preference; names or instances. Raises ValueError."""
    assignors: dict[str, Assignor] = {}
    for strategy in strategies:
        if isinstance(strategy, str) and strategy not in _CLASSES:
            raise ValueError(f"{strategy!r} is no assignor: {', '.join(_CLASSES)} are")
        assignor = _CLASSES[strategy]() if isinstance(strategy, str) else strategy
        assignors[assignor.name] = assignor
    if not assignors:
        raise ValueError("partition_assignment_strategy names no assignor")
    return assignors


def is_cooperative(assignors: Sequence[Assignor]) -> bool:
    """Whether a member keeps its partitions while the group rebalances: only if all it offers allow that (KIP-429)."""
    return all(assignor.is_cooperative for assignor in assignors)
