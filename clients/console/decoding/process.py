"""The decoding process as the console sees it: started when it is needed, ended when it takes too long."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Any

SECONDS = 2.0
"""For one answer; the first of a process has longer, as it begins."""
START_SECONDS = 30.0
MOST_FRAME_BYTES = 32 << 20
_LENGTH = Struct(">I")
_WORKER = f"{__name__.rpartition('.')[0]}.worker"


class DecodingFailedError(Exception):
    """There is no answer: too slow, too large, or the process fell over. The next question has another process."""


class DecodingProcess:
    """One question at a time, others wait. One loop."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Raises DecodingFailedError."""
        async with self._turn:
            try:
                if self._process is None:
                    async with asyncio.timeout(START_SECONDS):
                        self._process = await _spawn()
                        await _exchange(self._process, _NOTHING)
                async with asyncio.timeout(SECONDS):
                    return await _exchange(self._process, question)
            except TimeoutError:
                await self._end()
                raise DecodingFailedError(f"not decoded within {SECONDS:g} seconds") from None
            except (OSError, EOFError, ValueError):
                await self._end()
                raise DecodingFailedError("the decoder fell over, or wanted too much memory") from None
            except BaseException:
                await self._end()  # half an answer may be on its way
                raise

    async def close(self) -> None:
        """End it."""
        async with self._turn:
            await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())


_NOTHING = {"schema": {"kind": "JSON", "text": "", "references": []}, "data": [], "most": 0, "indent": None}


async def _exchange(process: asyncio.subprocess.Process, question: Mapping[str, Any]) -> dict[str, Any]:
    """Raises OSError, EOFError, ValueError."""
    assert process.stdin is not None and process.stdout is not None
    frame = json.dumps(question).encode()
    process.stdin.write(_LENGTH.pack(len(frame)) + frame)
    await process.stdin.drain()
    (size,) = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))
    if size > MOST_FRAME_BYTES:
        raise ValueError(f"an answer of {size} bytes")
    answer: dict[str, Any] = json.loads(await process.stdout.readexactly(size))
    return answer


async def _spawn() -> asyncio.subprocess.Process:
    """A Python of our own kind, which finds this package where this process does."""
    package = sys.modules[__name__.partition(".")[0]].__file__
    assert package is not None
    paths = [str(Path(package).parent.parent), os.environ.get("PYTHONPATH", "")]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", _WORKER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        start_new_session=True,
    )
