"""Operations that wait for a condition or a deadline, and the purgatory they wait in.

Kafka's DelayedOperationPurgatory, owned by the loop's thread. An operation completes exactly once: when its condition
holds, or when its deadline passes. Completion removes it from every key it watched, so that no watcher list grows with
dead entries. Where many operations wait for one key, have the same deadline, or one operation waits for many keys,
`SlicedWork` does the work in several turns of the loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Hashable, Iterable
from itertools import islice

from ..runtime.loop_sharing import SlicedWork, Steps, raise_error
from ..runtime.scheduler import IsolatedWork

SOON_S = 0.1
"""Most operations complete sooner. Only the others get a timer, which costs more than the rest of an operation."""
CHECKED_TOGETHER = 16
"""Operations of one key, or requests in several operations, that are checked in the turn in which the key changed: some
tenths of a millisecond each where records have to be read, so that 500 of them would hold the loop for a long time.
More are checked in rounds, this many operations of each key."""

KEYS_PER_STEP = 100
"""Keys of an operation that are watched, or removed, before a pause: 0.1 ms. A fetch may have 100 000 partitions."""


class DelayedOperation(ABC):
    """An operation that waits in a `DelayedOperationPurgatory` for a condition or a deadline (Kafka: DelayedOperation).

    Subclasses implement the condition (`try_complete`) and the response (`on_complete`). It replaces a future whose
    condition is computed again when one of its keys changes, without a task or future per request:
    `docs/contributing/decisions.md` has the reason.
    """

    __slots__ = ("deadline", "is_completed", "keys", "purgatory", "timer")

    size = 1
    """The number of requests that wait as this operation."""

    def __init__(self) -> None:
        self.is_completed = False
        self.purgatory: DelayedOperationPurgatory | None = None
        """The purgatory in which it waits, which sets this and the following attributes."""
        self.timer: asyncio.TimerHandle | None = None
        self.deadline: float
        """Loop time, once it waits."""
        self.keys: Collection[Hashable]
        """The keys whose changes may complete it, while it waits."""

    @abstractmethod
    def try_complete(self) -> bool:
        """Call `force_complete` if the condition holds now; return whether this call has completed the operation."""

    def try_complete_for(self, key: Hashable) -> bool:
        """Check as `try_complete`, after a change of `key` alone since the last check.

        Operations of many keys override it: a fetch of 10 000 partitions, all of which change, would else be checked
        10 000 times with 10 000 partitions each.
        """
        return self.try_complete()

    @abstractmethod
    def on_complete(self) -> None:
        """Send the response. It is called once, from `force_complete`."""

    def on_expiration(self) -> None:  # noqa: B027 - most operations only answer
        """React to the deadline, before `on_complete`: it passed before the condition held."""

    def force_complete(self) -> bool:
        """Complete now unless that has happened; returns whether this call did it."""
        if self.is_completed:
            return False
        self.cancel()
        self.on_complete()
        return True

    def cancel(self) -> None:
        """Mark the operation as completed, cancel its timer and remove it from the purgatory; send no response.

        `force_complete` calls it before the response. Owners call it alone if no response is required, for example
        because the client has disconnected.
        """
        self.is_completed = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.purgatory is not None:
            self.purgatory.forget(self)
            self.purgatory = None


class DelayedOperationPurgatory:
    """Operations of one kind, by the keys whose changes may complete them. Used on the loop's thread."""

    __slots__ = (
        "_changed_again",
        "_checks_later",
        "_giving_timers",
        "_isolated",
        "_loop",
        "_overdue",
        "_sliced_work",
        "_unchecked",
        "_untimed",
        "name",
        "watchers",
    )

    def __init__(
        self, name: str, loop: asyncio.AbstractEventLoop, sliced_work: SlicedWork, *, checks_later: bool = False
    ) -> None:
        """The check of many operations begins after the event that changed their key if `checks_later` is set."""
        self.name = name
        self._loop = loop
        self._checks_later = checks_later
        self._sliced_work = sliced_work
        self.watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        """The operations that wait for each key; keys that none waits for are left out."""
        self._untimed: dict[DelayedOperation, None] = {}
        """New operations, which have no timer yet."""
        self._giving_timers = False
        """Whether `_give_timers` is scheduled."""
        self._unchecked: dict[Hashable, deque[DelayedOperation]] = {}
        """Keys that changed while many operations waited for them, and the operations that are still to be checked."""
        self._changed_again: set[Hashable] = set()
        """Keys of these that changed once more since their check began."""
        self._overdue: deque[DelayedOperation] = deque()
        """Operations whose deadline has passed and that are not answered yet."""
        self._isolated = IsolatedWork(f"a delayed operation of purgatory {name} failed")

    def __len__(self) -> int:
        """Requests that wait now."""
        waiting = {operation for watching in self.watchers.values() for operation in watching}
        return sum(operation.size for operation in waiting)

    def check_invariants(self) -> None:
        """Assert that the operations found by a key wait here, for that key; for tests and simulations.

        An operation with many keys is removed in slices after its completion.
        """
        for key, watching in self.watchers.items():
            assert watching, f"{self.name}: no operation waits for {key!r}"
            for operation in watching:
                is_in_removal = operation.is_completed and len(operation.keys) > KEYS_PER_STEP
                assert is_in_removal or operation.purgatory is self, f"{self.name}: {operation!r} does not wait here"
                assert key in operation.keys, f"{self.name}: {operation!r} does not wait for {key!r}"

    def watch(self, operation: DelayedOperation, keys: Collection[Hashable], timeout_ms: float) -> None:
        """Park an operation whose condition does not hold yet, until one of `keys` changes or the time is up.

        Many keys are watched in slices. The operation is then checked once more, and may complete before this returns.
        """
        # No later event would remove a completed operation, or the keys of an operation that is watched twice.
        assert operation.purgatory is None and not operation.is_completed, f"{self.name}: {operation!r} cannot wait"
        timeout = max(0.0, timeout_ms) / 1000
        operation.purgatory, operation.keys, operation.deadline = self, keys, self._loop.time() + timeout
        if timeout <= SOON_S:
            operation.timer = self._loop.call_later(timeout, self._deadline_passed, operation)
        else:
            # Most operations complete within `SOON_S`. New operations share one timer of that length, and only those
            # that still wait when it fires get a timer of their own.
            self._untimed[operation] = None
            if not self._giving_timers:
                self._giving_timers = True
                self._loop.call_later(SOON_S, self._give_timers)
        if len(keys) <= KEYS_PER_STEP:
            for key in keys:
                self.watchers.setdefault(key, {})[operation] = None
        else:
            self._sliced_work.run(self._watch_in_steps(operation, keys), raise_error)

    def _watch_in_steps(self, operation: DelayedOperation, keys: Collection[Hashable]) -> Steps[None]:
        for number, key in enumerate(keys, 1):
            self.watchers.setdefault(key, {})[operation] = None
            if number % KEYS_PER_STEP == 0:
                yield
                if operation.is_completed:
                    return  # `forget` removes the keys before this one
        # A key may have changed before it was watched.
        operation.try_complete()

    def _give_timers(self) -> None:
        """Give operations that wait longer than most a timer for their deadline."""
        self._giving_timers = False
        untimed, self._untimed = self._untimed, {}
        for operation in untimed:
            operation.timer = self._loop.call_at(operation.deadline, self._deadline_passed, operation)

    def check_and_complete(self, key: Hashable) -> None:
        """Complete the operations that the change of `key` allows to complete.

        A single operation, or operations of up to `CHECKED_TOGETHER` requests, are checked before this returns, more in
        the loop's next turns and in the order in which they were parked.
        """
        watching = self.watchers.get(key)
        if watching is None:
            return
        if len(watching) == 1 or sum([operation.size for operation in watching]) <= CHECKED_TOGETHER:
            self.check_and_complete_immediately(key)
            return
        if key in self._unchecked:
            # Operations that were checked before this change have to be checked again, after all others.
            self._changed_again.add(key)
            return
        self._unchecked[key] = deque(watching)
        if len(self._unchecked) == 1:
            if self._checks_later:
                self._sliced_work.run_later(self._begin_to_check)
            else:
                self._begin_to_check()

    def _begin_to_check(self) -> None:
        self._sliced_work.run(self._check_changed(), raise_error)

    def check_and_complete_immediately(self, key: Hashable) -> None:
        """Check as `check_and_complete`, but all operations before this returns, however many wait."""
        for operation in list(self.watchers.get(key, ())):
            if not operation.is_completed:
                operation.try_complete_for(key)

    def force_complete(self, key: Hashable) -> None:
        """Complete all operations that wait for `key`, whether their condition holds or not. An operation that fails is
        logged, and the others are completed.
        """
        for operation in list(self.watchers.get(key, ())):
            with self._isolated:
                operation.force_complete()

    def _check_changed(self) -> Steps[None]:
        """Check in rounds until no key is left, so that a key with a thousand operations does not delay the others."""
        while self._unchecked:
            for key, left in list(self._unchecked.items()):
                for _ in range(min(CHECKED_TOGETHER, len(left))):
                    operation = left.popleft()
                    if not operation.is_completed:
                        with self._isolated:
                            operation.try_complete_for(key)
                        yield
                if left:
                    continue
                del self._unchecked[key]
                if key in self._changed_again:
                    self._changed_again.remove(key)
                    if key in self.watchers:
                        self._unchecked[key] = deque(self.watchers[key])

    def forget(self, operation: DelayedOperation) -> None:
        """Stop watching, in slices if the operation watches many keys: checks skip completed operations."""
        self._untimed.pop(operation, None)
        keys = operation.keys
        if len(keys) <= KEYS_PER_STEP:
            self._remove(operation, keys)
        else:
            self._sliced_work.run(self._remove_in_steps(operation, keys), raise_error)

    def _remove_in_steps(self, operation: DelayedOperation, keys: Collection[Hashable]) -> Steps[None]:
        left = iter(keys)
        while some := list(islice(left, KEYS_PER_STEP)):
            self._remove(operation, some)
            yield

    def _remove(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> None:
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

    def _deadline_passed(self, operation: DelayedOperation) -> None:
        # All timers that are due fire in one turn, and fetches that were answered together are due together again.
        self._overdue.append(operation)
        if len(self._overdue) == 1:
            self._loop.call_soon(self._begin_to_expire)

    def _begin_to_expire(self) -> None:
        self._sliced_work.run(self._expire_overdue(), raise_error)

    def _expire_overdue(self) -> Steps[None]:
        # The last operation is removed in the step that ends this: the first operation after that begins a new pass.
        while True:
            with self._isolated:
                self._expire(self._overdue[0])
            self._overdue.popleft()
            if not self._overdue:
                return
            yield

    def _expire(self, operation: DelayedOperation) -> None:
        if not operation.is_completed:
            operation.on_expiration()
            operation.force_complete()
