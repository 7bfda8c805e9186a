"""Work in steps: a generator that yields between its steps and returns a result."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def run_to_end(steps: Generator[None, None, T]) -> T:
    """Run all steps without interruption and return their result.

    On the event loop, only for small work, or where the result must be taken in one turn.
    """
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
