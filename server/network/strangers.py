"""Connections that are not authenticated yet: limited in number and in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import Connection

STRANGERS = 1000
"""How many at a time; one more closes the one that has taken longest."""
SECONDS = 30.0
"""Within which a client must authenticate."""


class Strangers:
    """In the order in which they came. Loop-thread only."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._since: dict[Connection, float] = {}
        self._now = now

    def __len__(self) -> int:
        return len(self._since)

    def add(self, connection: Connection) -> None:
        if len(self._since) >= STRANGERS:
            oldest = next(iter(self._since))
            del self._since[oldest]
            oldest.abort()
        self._since[connection] = self._now()

    def forget(self, connection: Connection) -> None:
        """It is authenticated, or closed."""
        self._since.pop(connection, None)

    def overdue(self) -> Iterator[Connection]:
        """Those whose time is over, each only once."""
        while self._since:
            connection = next(iter(self._since))
            if self._now() - self._since[connection] <= SECONDS:
                return
            del self._since[connection]
            yield connection
