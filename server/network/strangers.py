"""Connections that are not authenticated yet: limited in number and in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .crowd import Crowd

if TYPE_CHECKING:
    from .connection import Connection

STRANGERS = 1000
"""How many at a time; one more closes the oldest of an address that has its share."""
SECONDS = 30.0
"""Within which a client must authenticate."""


class Strangers:
    """In the order in which they came. Loop-thread only."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._crowd: Crowd[Connection] = Crowd(STRANGERS)
        self._since: dict[Connection, float] = {}
        self._now = now

    def __len__(self) -> int:
        return len(self._since)

    def add(self, connection: Connection) -> None:
        oldest = self._crowd.add(connection, connection.session.client_host)
        if oldest is not None:
            del self._since[oldest]
            oldest.abort()
        self._since[connection] = self._now()

    def forget(self, connection: Connection) -> None:
        """It is authenticated, or closed."""
        self._crowd.forget(connection)
        self._since.pop(connection, None)

    def overdue(self) -> Iterator[Connection]:
        """Those whose time is over, each only once."""
        while self._since:
            connection = next(iter(self._since))
            if self._now() - self._since[connection] <= SECONDS:
                return
            self.forget(connection)
            yield connection
