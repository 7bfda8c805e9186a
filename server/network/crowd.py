"""Those who have come and are not let in yet: so many at most, and none in the way of others from elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Crowd(Generic[T]):
    """In the order in which they came, each with its address. Loop-thread only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._addresses: dict[T, str] = {}
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[T]:
        return iter(self._addresses)

    def add(self, one: T, address: str) -> T | None:
        """Who has to go for it, and is forgotten already: the oldest of an address that has no less than its share."""
        goes = None
        if len(self._addresses) >= self._most:
            share = len(self._addresses) / len(self._by_address)
            goes = next(old for old, where in self._addresses.items() if self._by_address[where] >= share)
            self.forget(goes)
        self._addresses[one] = address
        self._by_address[address] += 1
        return goes

    def forget(self, one: T) -> None:
        """It is let in, or gone."""
        address = self._addresses.pop(one, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]
