"""Where chance comes from in a simulation: generators that a seed decides."""

from __future__ import annotations

import random


def chance(seed: int | str) -> random.Random:
    """A generator that gives the same for the same seed, in every process."""
    return random.Random(seed)
