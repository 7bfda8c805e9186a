"""Response frames out of a byte stream, each in memory of its own, because decoded records point into it.

Small frames arrive many at a time in a shared buffer and are copied out of it. A frame that is not complete there gets
a buffer of exactly its size, and the rest is received straight into that: a large fetch response is never copied.
"""

from __future__ import annotations

from struct import Struct

from ..protocol.errors import ProtocolError
from ..protocol.frames import LENGTH_SIZE

_length_at = Struct(">i").unpack_from
_SHARED_SIZE = 64 * 1024


class ReceiveBuffer:
    """Splits one connection's stream. Use: read into `buffer()`, then `received(count)` gives the complete frames."""

    __slots__ = ("_end", "_filled", "_frame", "_max_frame_bytes", "_shared", "_view")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._shared = bytearray(_SHARED_SIZE)
        self._view = memoryview(self._shared)
        self._end = 0
        self._frame: memoryview | None = None
        self._filled = 0

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._view[self._end :]

    def received(self, count: int) -> list[memoryview]:
        """The frames, without their length prefix, that `count` more bytes complete. Raises ProtocolError."""
        if self._frame is None:
            self._end += count
            return self._split()
        self._filled += count
        if self._filled < len(self._frame):
            return []
        frame, self._frame = self._frame, None
        return [frame]

    def _split(self) -> list[memoryview]:
        frames: list[memoryview] = []
        start, end = 0, self._end
        while end - start >= LENGTH_SIZE:
            length = _length_at(self._shared, start)[0]
            if not 0 <= length <= self._max_frame_bytes:
                raise ProtocolError(f"a response of {length} bytes; 0 to {self._max_frame_bytes} are allowed")
            start += LENGTH_SIZE
            frame = self._view[start : min(end, start + length)]
            start += length
            if start > end:
                self._begin_frame(length, frame)
                return frames
            frames.append(memoryview(bytearray(frame)))
        self._shared[: end - start] = self._shared[start:end]
        self._end = end - start
        return frames

    def _begin_frame(self, length: int, beginning: memoryview) -> None:
        """Go on in a buffer of the frame's own."""
        self._frame = memoryview(bytearray(length))
        self._filled = len(beginning)
        self._frame[: self._filled] = beginning
        self._end = 0
