"""Default budgets of memory, within the memory limit of the control group."""

from __future__ import annotations

SHARE_OF_MEMORY = 4
"""No budget is larger than this part of the memory limit. The process itself takes 60 MB."""


def memory_budget(default: int, memory_limit: int | None) -> int:
    """Return a budget of `default` bytes, or less if that is too much for the memory limit of this process."""
    return default if memory_limit is None else min(default, memory_limit // SHARE_OF_MEMORY)
