"""Reading threads and the bounded queue between them and the consumer of a read."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from . import host

T = TypeVar("T")
_WAIT_S = 0.25
"""Maximum time until a thread that waits for items handles a signal, such as Ctrl-C."""


class BatchChannel(Generic[T]):
    """A queue of items from several threads to one consumer: at most `most_bytes` in total, or a single item.

    The threads are daemons: a process can end although one of them waits for a broker. When the consumer ends the read,
    or abandons it, the functions of `on_close` end the requests that the threads wait for. A forked child does not have
    the threads, so it can neither continue the read of its parent nor end it. `is_stopping` ends the read while the
    consumer would wait for an item.
    """

    def __init__(self, most_bytes: int, *, is_stopping: Callable[[], bool] = lambda: False) -> None:
        self._most_bytes = most_bytes
        self._is_stopping = is_stopping
        self._changed = threading.Condition()
        self._items: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._running = 0
        self._failure: BaseException | None = None
        self._is_closed = False
        self._interrupts: list[Callable[[], object]] = []
        self._process = host.process_id()

    @property
    def is_closed(self) -> bool:
        """Return whether the consumer, or a failed thread, has ended the read."""
        return self._is_closed

    def run(self, work: Sequence[Callable[[], Iterator[tuple[T, int]]]]) -> Iterator[T]:
        """Call each of `work` on a thread of its own, and yield the items, which the threads yield with their sizes.

        Raises the first exception of a thread; the other threads then stop at their next item.
        """
        self._running = len(work)
        try:
            for each in work:
                threading.Thread(target=self._put_all, args=(each,), name="barnabas-arrow", daemon=True).start()
            while (item := self._take()) is not None:
                yield item[0]
        finally:
            self._close()

    def on_close(self, interrupt: Callable[[], object]) -> None:
        """Call a function when the read ends, or immediately if it has ended.

        A reading thread calls this before its first request.
        """
        with self._changed:
            if not self._is_closed:
                self._interrupts.append(interrupt)
                return
        interrupt()

    def _put_all(self, work: Callable[[], Iterator[tuple[T, int]]]) -> None:
        failure: BaseException | None = None
        items = None
        try:
            items = work()
            for item, size in items:
                if not self._put(item, size):
                    items.close()  # type: ignore[attr-defined]
                    break
        except BaseException as error:  # noqa: BLE001 - raised again on the consumer's thread
            failure = error
        with self._changed:
            self._running -= 1
            if failure is not None and not self._is_closed:
                self._failure, self._is_closed = failure, True
            self._changed.notify_all()
        # The exception's traceback references this frame; the cycle would keep the buffers of the read until the next
        # garbage collection.
        failure = None

    def _put(self, item: T, size: int) -> bool:
        """Wait for room; return whether the consumer still reads."""
        with self._changed:
            while not self._is_closed and self._items and self._bytes + size > self._most_bytes:
                self._changed.wait()
            if self._is_closed:
                return False
            self._items.append((item, size))
            self._bytes += size
            self._changed.notify_all()
            return True

    def _take(self) -> tuple[T, int] | None:
        """Return the next item; None after the last one. Raises RuntimeError in a forked child."""
        if host.process_id() != self._process:
            raise RuntimeError("a forked process cannot continue the read of its parent. Read the stream again")
        with self._changed:
            while not self._items and self._running and self._failure is None:
                if self._is_stopping():
                    return None
                # A signal that arrives just before the wait does not end the wait, so it is a short one.
                self._changed.wait(_WAIT_S)
            if self._failure is not None:
                raise self._failure
            if not self._items:
                return None
            item = self._items.popleft()
            self._bytes -= item[1]
            self._changed.notify_all()
            return item

    def _close(self) -> None:
        if host.process_id() != self._process:
            # A thread that the child does not have may hold the lock, and the connections are the parent's.
            return
        with self._changed:
            self._is_closed = True
            self._items.clear()
            interrupts, self._interrupts = self._interrupts, []
            self._changed.notify_all()
        for interrupt in interrupts:
            interrupt()
