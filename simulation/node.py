"""A simulated machine: a name, a life that can end, and the context its callbacks run in."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

NODE: contextvars.ContextVar[tuple[SimNode, int]] = contextvars.ContextVar("node")
"""The machine and its incarnation that own the running callback."""


class SimNode:
    """Callbacks inherit their machine through the context in which they were scheduled."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.label = name.encode()
        self.incarnation = 0
        self.on_kill: dict[Callable[[], None], None] = {}
        """Objects to notify immediately of the machine's death, in this order: its sockets."""
        self.context = contextvars.copy_context()
        self.start()

    def start(self) -> None:
        """Start a new life."""
        self.incarnation += 1
        self.context = contextvars.Context()
        self.context.run(NODE.set, (self, self.incarnation))

    def kill(self) -> None:
        """End this life: none of its callbacks runs any more."""
        self.incarnation += 1
        callbacks, self.on_kill = self.on_kill, {}
        for callback in callbacks:
            callback()

    def is_alive(self, incarnation: int) -> bool:
        """Return whether callbacks of that incarnation still run."""
        return incarnation in (0, self.incarnation)

    def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function as this machine."""
        return self.context.run(function, *arguments)

    def __repr__(self) -> str:
        return f"SimNode({self.name!r})"
