"""PendingReply: the callback of a coordinator for whose call a handler waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PendingReply(Generic[T]):
    """The callback of a coordinator: `result = await reply` waits for its call.

    A handler that runs without a task, as `KafkaApis` runs the handlers of `EAGER`, yields the reply itself and is
    resumed in the call of the coordinator. A future and a task would cost two turns of the event loop and some
    microseconds. In a task, `await` waits for a future.

    Its type is given at the variable, as `reply: PendingReply[ErrorCode] = PendingReply()`: to construct
    `PendingReply[ErrorCode]()` takes nine times as long, since `typing` fails to set an attribute of the object.
    """

    __slots__ = ("_future", "_is_done", "_on_done", "_result")

    def __init__(self) -> None:
        self._is_done = False
        self._on_done: Callable[[], None] | None = None
        self._future: asyncio.Future[T] | None = None

    def __call__(self, result: T) -> None:
        self._is_done, self._result = True, result
        if self._on_done is not None:
            self._on_done()
        # The handler is cancelled when the broker stops: the coordinator replies nevertheless.
        elif self._future is not None and not self._future.done():
            self._future.set_result(result)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the coordinator replies. For the owner of a coroutine that has yielded this reply."""
        assert not self._is_done, "the reply would not have been yielded"
        self._on_done = callback

    def __await__(self) -> Generator[Any, None, T]:
        if not self._is_done:
            if asyncio.current_task() is None:
                yield self
            else:
                self._future = asyncio.get_running_loop().create_future()
                yield from self._future
        return self._result
