"""Operations that wait for a condition or a deadline, and the purgatory they wait in.

Kafka's DelayedOperationPurgatory, owned by the loop's thread. An operation completes exactly once: when its condition
holds, or when its deadline passes. Completion removes it from every key it watched, so that no watcher list grows with
dead entries.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable


class DelayedOperation(ABC):
    """Something that is answered later. Subclasses say when (`try_complete`) and how (`on_complete`)."""

    __slots__ = ("_keys", "_purgatory", "_timer", "is_completed")

    def __init__(self) -> None:
        self.is_completed = False
        self._timer: asyncio.TimerHandle | None = None
        self._keys: tuple[Hashable, ...] = ()
        self._purgatory: Purgatory | None = None

    @abstractmethod
    def try_complete(self) -> bool:
        """Whether the condition holds now; if so the implementation calls `force_complete`."""

    @abstractmethod
    def on_complete(self) -> None:
        """Answer. Called once."""

    def on_expiration(self) -> None:  # noqa: B027 - most operations only answer
        """The deadline passed before the condition held; called before `on_complete`."""

    def force_complete(self) -> bool:
        """Complete now unless that has happened; returns whether this call did it."""
        if self.is_completed:
            return False
        self._leave()
        self.on_complete()
        return True

    def cancel(self) -> None:
        """Give up without an answer, because nobody waits for it any more."""
        if not self.is_completed:
            self._leave()

    def park(self, purgatory: Purgatory, keys: tuple[Hashable, ...], timer: asyncio.TimerHandle) -> None:
        """Remember where this operation waits; for `Purgatory.watch` alone."""
        self._purgatory = purgatory
        self._keys = keys
        self._timer = timer

    def _leave(self) -> None:
        """Wait no more."""
        self.is_completed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._purgatory is not None:
            self._purgatory.forget(self, self._keys)


class Purgatory:
    """Operations of one kind, by the keys whose changes may complete them."""

    __slots__ = ("_loop", "name", "watchers")

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self._loop = loop
        self.watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        """Who waits for what; a key that nobody waits for is not in it."""

    def __len__(self) -> int:
        """Operations that wait now."""
        return len({operation for watching in self.watchers.values() for operation in watching})

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: float) -> None:
        """Park an operation whose condition does not hold yet, until one of `keys` changes or the time is up."""
        timer = self._loop.call_later(max(0.0, timeout_ms) / 1000, self._expire, operation)
        watched = tuple(keys)
        operation.park(self, watched, timer)
        for key in watched:
            self.watchers.setdefault(key, {})[operation] = None

    def check(self, key: Hashable) -> int:
        """`key` changed: complete what can be completed; returns how many."""
        watching = self.watchers.get(key)
        if not watching:
            return 0
        return sum(operation.try_complete() for operation in list(watching) if not operation.is_completed)

    def forget(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> None:
        """Stop watching."""
        for key in keys:
            watching = self.watchers.get(key)
            if watching is not None:
                watching.pop(operation, None)
                if not watching:
                    del self.watchers[key]

    def cancel(self, key: Hashable) -> None:
        """Give up everything that watches `key`, without an answer."""
        for operation in list(self.watchers.get(key, ())):
            operation.cancel()

    def complete_all(self) -> None:
        """Answer everything that waits, as its deadline would; for shutdown."""
        for watching in list(self.watchers.values()):
            for operation in list(watching):
                self._expire(operation)

    def _expire(self, operation: DelayedOperation) -> None:
        if not operation.is_completed:
            operation.on_expiration()
            operation.force_complete()
