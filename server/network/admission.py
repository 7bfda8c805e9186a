"""Limits of connections that are not authenticated yet, shared fairly between the addresses of clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from .connection import Connection

MAX_UNAUTHENTICATED_CONNECTIONS = 1000
"""One more closes the oldest of an address that has its share."""
AUTHENTICATION_SECONDS = 30.0
"""A client must authenticate within this time."""

T = TypeVar("T")


class FairAdmissionQueue(Generic[T]):
    """A limited number of items in the order of their arrival, each with the address of its client.

    A full queue evicts an item of an address that has at least its share of all items, so that a client with many
    items does not displace the few of others.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._addresses: dict[T, str] = {}
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[T]:
        return iter(self._addresses)

    def add(self, item: T, address: str) -> T | None:
        """Add an item, and return the evicted item, if any: the oldest of an address with at least its share."""
        evicted = None
        if len(self._addresses) >= self._max_size:
            share = len(self._addresses) / len(self._by_address)
            evicted = next(old for old, where in self._addresses.items() if self._by_address[where] >= share)
            self.remove(evicted)
        self._addresses[item] = address
        self._by_address[address] += 1
        assert len(self._addresses) <= self._max_size
        return evicted

    def remove(self, item: T) -> None:
        """Remove an item, if it is in the queue."""
        address = self._addresses.pop(item, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]


class UnauthenticatedConnections:
    """The connections of SASL listeners that are not authenticated, limited in number and time.

    Owned by the socket server and used on its thread only.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._queue: FairAdmissionQueue[Connection] = FairAdmissionQueue(MAX_UNAUTHENTICATED_CONNECTIONS)
        self._since: dict[Connection, float] = {}
        self._now = now

    def __len__(self) -> int:
        return len(self._since)

    def add(self, connection: Connection) -> None:
        """Add a new connection; one more than the limit aborts another one."""
        evicted = self._queue.add(connection, connection.session.client_host)
        if evicted is not None:
            del self._since[evicted]
            evicted.abort()
        self._since[connection] = self._now()

    def remove(self, connection: Connection) -> None:
        """Remove a connection that is authenticated or closed."""
        self._queue.remove(connection)
        self._since.pop(connection, None)

    def take_overdue(self) -> Iterator[Connection]:
        """Remove and yield the connections that have been here longer than `AUTHENTICATION_SECONDS`."""
        while self._since:
            connection = next(iter(self._since))
            if self._now() - self._since[connection] <= AUTHENTICATION_SECONDS:
                return
            self.remove(connection)
            yield connection
