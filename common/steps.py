"""Work in steps: a generator that is interrupted at each `yield`, and returns its result."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def run_to_end(steps: Generator[None, None, T]) -> T:
    """Run all steps now and return their result. For work that is known to be small."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
