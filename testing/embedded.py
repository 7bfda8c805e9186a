"""A component with an event loop inside another program, in two forms: blocking under `with`, awaited under `async
with`.
"""

from __future__ import annotations

import asyncio
import os
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
    """Runs on its own thread and loop under `with`, on the caller's loop under `async with`."""

    what: ClassVar[str]
    """Its name in errors."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        """Its own thread, if it has one."""
        self._home: threading.Thread | None = None
        """The thread of its loop."""
        self._process = 0
        """The process that started it. A forked child has the object, but neither its thread nor its loop."""

    @abstractmethod
    async def _start(self) -> None:
        """Start; runs when this returns, and leaves nothing if this raises."""

    @abstractmethod
    async def _stop(self) -> None:
        """Stop and remove everything."""

    def __enter__(self) -> Self:
        self._start_thread()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop_thread()

    async def __aenter__(self) -> Self:
        self._check_idle()
        await self._start()
        self._loop, self._home = asyncio.get_running_loop(), threading.current_thread()
        self._process = os.getpid()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if not self._is_inherited:
            await self._stop()
        self._loop = self._home = None

    @property
    def _is_inherited(self) -> bool:
        """Return whether this process is a forked child of the process that runs it, which alone may stop it."""
        return self._process != os.getpid()

    def _check_idle(self) -> None:
        if self._loop is not None:
            raise RuntimeError(f"the {self.what} is running")

    def _start_thread(self) -> None:
        __tracebackhide__ = True
        self._check_idle()
        self._loop, self._process = event_loop(), os.getpid()
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
        if self._is_inherited:
            self._loop = self._thread = self._home = None
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
        """Run on its thread and wait. Raises RuntimeError if there is no such thread."""
        if self._loop is not None and self._is_inherited:
            work.close()
            raise RuntimeError(f"the {self.what} runs in process {self._process}, the parent of this one")
        if self._thread is None or self._loop is None:
            work.close()
            reason = (
                "is not running" if self._loop is None else "runs on your loop; await the method with an a before it"
            )
            raise RuntimeError(f"the {self.what} {reason}")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _on_loop(self, job: Callable[[], Any]) -> Any:
        """Call a function on the thread of its loop, or directly if that is this one, or before it runs."""
        if self._loop is None or self._home is threading.current_thread():
            return job()
        if self._is_inherited:
            raise RuntimeError(f"the {self.what} runs in process {self._process}, the parent of this one")

        async def do() -> Any:
            return job()

        return asyncio.run_coroutine_threadsafe(do(), self._loop).result()


def blocking(
    method: Callable[Concatenate[Embeds, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Embeds, P], T]:
    """Return the blocking form of a method. Its exceptions have the caller's traceback."""

    @wraps(method)
    def call(self: Embeds, /, *args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            return self._call(method(self, *args, **kwargs))
        except Exception as caught:  # noqa: BLE001 - raised again
            error = caught
        raise error.with_traceback(None) from None

    return call
