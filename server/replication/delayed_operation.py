"""Operations that wait for a condition or a deadline, and the purgatory they wait in.

Kafka's DelayedOperationPurgatory, owned by the loop's thread. An operation completes exactly once: when its condition
holds, or when its deadline passes. Completion removes it from every key it watched, so that no watcher list grows with
dead entries.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable

SOON_S = 0.1
"""Most operations are over sooner. Only those that are not get a timer, which costs more than all the rest of it."""


class DelayedOperation(ABC):
    """Something that is answered later. Subclasses say when (`try_complete`) and how (`on_complete`)."""

    __slots__ = ("deadline", "is_completed", "keys", "purgatory", "timer")

    def __init__(self) -> None:
        self.is_completed = False
        self.purgatory: Purgatory | None = None
        """Where it waits; this and what follows is the purgatory's to set."""
        self.timer: asyncio.TimerHandle | None = None
        self.deadline: float
        """Loop time, once it waits."""
        self.keys: Collection[Hashable]
        """What it waits for, from then on."""

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
        self.cancel()
        self.on_complete()
        return True

    def cancel(self) -> None:
        """Wait no more, and give no answer, because nobody wants it any more."""
        self.is_completed = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.purgatory is not None:
            self.purgatory.forget(self)
            self.purgatory = None


class Purgatory:
    """Operations of one kind, by the keys whose changes may complete them."""

    __slots__ = ("_giving_timers", "_loop", "_untimed", "name", "watchers")

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self._loop = loop
        self.watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        """The operations that wait for each key; keys that none waits for are left out."""
        self._untimed: dict[DelayedOperation, None] = {}
        """Operations that have come lately and have no timer yet."""
        self._giving_timers = False
        """Whether those are going to be looked at."""

    def __len__(self) -> int:
        """Operations that wait now."""
        return len({operation for watching in self.watchers.values() for operation in watching})

    def watch(self, operation: DelayedOperation, keys: Collection[Hashable], timeout_ms: float) -> None:
        """Park an operation whose condition does not hold yet, until one of `keys` changes or the time is up."""
        timeout = max(0.0, timeout_ms) / 1000
        operation.purgatory, operation.keys, operation.deadline = self, keys, self._loop.time() + timeout
        if timeout <= SOON_S:
            operation.timer = self._loop.call_later(timeout, self._expire, operation)
        else:
            self._untimed[operation] = None
            if not self._giving_timers:
                self._giving_timers = True
                self._loop.call_later(SOON_S, self._give_timers)
        for key in keys:
            self.watchers.setdefault(key, {})[operation] = None

    def _give_timers(self) -> None:
        """Those who wait for longer than most get a timer for their deadline."""
        self._giving_timers = False
        untimed, self._untimed = self._untimed, {}
        for operation in untimed:
            operation.timer = self._loop.call_at(operation.deadline, self._expire, operation)

    def check(self, key: Hashable) -> int:
        """`key` changed: complete what can be completed; returns how many."""
        completed = 0
        for operation in list(self.watchers.get(key, ())):
            if not operation.is_completed and operation.try_complete():
                completed += 1
        return completed

    def forget(self, operation: DelayedOperation) -> None:
        """Stop watching."""
        self._untimed.pop(operation, None)
        for key in operation.keys:
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
