"""Seeded random generators for a simulation."""

from __future__ import annotations

import random


def chance(seed: int | str) -> random.Random:
    """Return a generator with the same sequence for the same seed, in every process."""
    return random.Random(seed)
