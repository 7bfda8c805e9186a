"""Something with a loop inside another program, in two forms: blocking under `with`, awaited under `async with`."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

from ..server.runtime.host import event_loop

T = TypeVar("T")
P = ParamSpec("P")
Embeds = TypeVar("Embeds", bound="Embedded")


class Embedded(ABC):
    """Lives on a thread and loop of its own under `with`, on the caller's loop under `async with`."""

    what: ClassVar[str]
    """What it is called in errors."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        """Its own, if it has one."""
        self._home: threading.Thread | None = None
        """That of its loop."""

    @abstractmethod
    async def _start(self) -> None:
        """It runs when this returns; nothing is left of it if this raises."""

    @abstractmethod
    async def _stop(self) -> None:
        """Nothing is left of it when this returns."""

    def __enter__(self) -> Self:
        self._start_thread()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop_thread()

    async def __aenter__(self) -> Self:
        self._check_idle()
        await self._start()
        self._loop, self._home = asyncio.get_running_loop(), threading.current_thread()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stop()
        self._loop = self._home = None

    def _check_idle(self) -> None:
        if self._loop is not None:
            raise RuntimeError(f"the {self.what} is running")

    def _start_thread(self) -> None:
        __tracebackhide__ = True
        self._check_idle()
        self._loop = event_loop()
        name = f"barnabas-{self.what}"
        self._thread = self._home = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        try:
            self._call(self._start())
        except BaseException as error:  # noqa: BLE001 - raised again
            self._end_thread()
            raise error.with_traceback(None) from None

    def _stop_thread(self) -> None:
        if self._thread is None:
            return
        try:
            self._call(self._stop())
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = self._home = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on its thread and wait."""
        if self._thread is None or self._loop is None:
            work.close()
            reason = (
                "is not running" if self._loop is None else "runs on your loop; await the method with an a before it"
            )
            raise RuntimeError(f"the {self.what} {reason}")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _on_loop(self, job: Callable[[], Any]) -> Any:
        """Do something on the thread of its loop, or here where that is this one, or where it does not run yet."""
        if self._loop is None or self._home is threading.current_thread():
            return job()

        async def do() -> Any:
            return job()

        return asyncio.run_coroutine_threadsafe(do(), self._loop).result()


def blocking(
    method: Callable[Concatenate[Embeds, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Embeds, P], T]:
    """The method for blocking callers. What it raises comes from the caller's line, not from the thread."""

    @wraps(method)
    def call(self: Embeds, /, *args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            return self._call(method(self, *args, **kwargs))
        except Exception as caught:  # noqa: BLE001 - raised again
            error = caught
        raise error.with_traceback(None) from None

    return call
