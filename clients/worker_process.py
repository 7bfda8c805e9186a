"""A process that handles one request at a time, for libraries that parse untrusted input.

The libraries are written in Python, C, C++ and Rust; input that makes them loop, grow or crash affects that process
only, which has a limit of memory and, per request, of time. Frames on both pipes are four bytes of length and JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import ceil
from pathlib import Path
from struct import Struct
from time import process_time
from typing import Any, BinaryIO

from .host import beside_loop, private_folder

START_SECONDS = 30.0
"""Timeout of the first response of a process, which loads its libraries before it."""
MEMORY_BYTES = 1 << 30
"""Limit of address space, including libraries."""
CPU_SECONDS = 60
"""Limit of CPU time per request, longer than the timeout of each caller: it ends a process that loops after its parent
was killed.
"""
MAX_FRAME_BYTES = 32 << 20
_LENGTH = Struct(">I")
_READY = b"{}"


class WorkerFailedError(Exception):
    """The process did not respond in time, exceeded its memory, or crashed. The next request starts another process."""


class WorkerProcess:
    """A process that runs `serve`, started for the first request. Requests wait for each other. Used on one loop.

    It is killed when a response takes too long, or when the caller is cancelled.
    """

    def __init__(self, module: str, seconds: float, verb: str) -> None:
        """`module` is run with -m; `seconds` is the timeout of a response; `verb` completes messages, as in "not
        decoded".
        """
        self._module = module
        self._seconds = seconds
        self._verb = verb
        self._process: asyncio.subprocess.Process | None = None
        self._folder: Path | None = None
        self._lock = asyncio.Lock()

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the response. Raises WorkerFailedError."""
        async with self._lock:
            try:
                if self._process is None:
                    async with asyncio.timeout(START_SECONDS):
                        await self._start()
                async with asyncio.timeout(self._seconds):
                    return await self._exchange(json.dumps(question).encode())
            except TimeoutError:
                await self._end()
                raise WorkerFailedError(f"not {self._verb} within {self._seconds:g} seconds") from None
            except (OSError, EOFError, ValueError):
                await self._end()
                raise WorkerFailedError(f"not {self._verb}: out of memory, or the library crashed") from None
            except BaseException:
                await self._end()  # a part of a response may be pending
                raise

    async def close(self) -> None:
        """End the process."""
        async with self._lock:
            await self._end()

    async def _start(self) -> None:
        """Start the same Python interpreter with the same package path. Raises as `_exchange`."""
        package = sys.modules[__name__.partition(".")[0]].__file__
        assert package is not None
        paths = [str(Path(package).parent.parent), os.environ.get("PYTHONPATH", "")]
        # Its files are deleted with the directory, because a killed process deletes nothing.
        self._folder = private_folder("barnabas-worker-")
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self._module),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "TMPDIR": str(self._folder)},
            start_new_session=True,
        )
        await self._exchange(_READY)

    async def _exchange(self, frame: bytes) -> dict[str, Any]:
        """Exchange a request and a response. Raises OSError, EOFError, ValueError."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(_LENGTH.pack(len(frame)) + frame)
        await process.stdin.drain()
        (size,) = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))
        if size > MAX_FRAME_BYTES:
            raise ValueError(f"response of {size} bytes exceeds the limit")
        answer: dict[str, Any] = json.loads(await process.stdout.readexactly(size))
        return answer

    async def _end(self) -> None:
        process, self._process = self._process, None
        folder, self._folder = self._folder, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            # Reads the rest of its pipe. `wait` alone may never return: asyncio reports the end of a process after
            # the end of its pipes, and does not read on while its buffer for a pipe is full.
            await asyncio.shield(process.communicate())
        if folder is not None:
            await asyncio.shield(beside_loop(lambda: shutil.rmtree(folder, ignore_errors=True)))


def serve(answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """Handle requests in this process until its input ends, or a request exceeds its memory or CPU time."""
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_CORE, 0)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while (frame := _read(source)) is not None:
        _limit(resource.RLIMIT_CPU, ceil(process_time()) + CPU_SECONDS)
        said = json.dumps({} if frame == _READY else answer(json.loads(frame))).encode()
        sink.write(_LENGTH.pack(len(said)) + said)
        sink.flush()


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _read(source: BinaryIO) -> bytes | None:
    head = source.read(_LENGTH.size)
    return source.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else None
