"""Connections whose clients have not said who they are: no more than so many, and none of them for long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import Connection

STRANGERS = 1000
"""So many at a time; for one more, the one that has taken longest is given up: whoever has a password needs less."""
SECONDS = 30.0
"""In which a client must have authenticated."""


class Strangers:
    """In the order in which they came. Loop-thread only."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._since: dict[Connection, float] = {}
        self._now = now

    def __len__(self) -> int:
        return len(self._since)

    def add(self, connection: Connection) -> None:
        """One more has come."""
        if len(self._since) >= STRANGERS:
            oldest = next(iter(self._since))
            del self._since[oldest]
            oldest.abort()
        self._since[connection] = self._now()

    def forget(self, connection: Connection) -> None:
        """It is known, or gone."""
        self._since.pop(connection, None)

    def overdue(self) -> Iterator[Connection]:
        """Those whose time is over; each is told once."""
        while self._since:
            connection = next(iter(self._since))
            if self._now() - self._since[connection] <= SECONDS:
                return
            del self._since[connection]
            yield connection
