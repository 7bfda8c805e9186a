"""Response frames of a byte stream, each in separate memory, because decoded records point into it.

Small frames arrive many at a time in a shared buffer and are copied out of it. An incomplete frame receives its own
buffer, into which the rest is received directly: a large fetch response is not copied. Beyond `BELIEVED_BYTES` memory
follows the received bytes, not the declared length: such a frame's buffer has at most twice the received size. (Below
that growing would cost ten times the filling of the buffer.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct

from .errors import ProtocolError
from .frames import LENGTH_SIZE

_length_at = Struct(">i").unpack_from
_SHARED_SIZE = 64 * 1024
BELIEVED_BYTES = 16 << 20
SIZE_STEP = 1 << 18
"""The sizes of memory that is used again are multiples of this, so that it has room for a frame of about the same
size."""


class FrameMemory:
    """The memory of the last large frames of some connections of one thread, used again when no view of it is left.

    The kernel has to supply each page of new memory, which takes about as long as the copy of the received bytes.
    """

    def __init__(self, most: int) -> None:
        """`most` is the number of frames whose memory is kept."""
        self._most = most
        self._spares: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """Return memory of at least this size."""
        for number, spare in enumerate(self._spares):
            if len(spare) >= size and _is_free(spare):
                del self._spares[number]
                return spare
        return bytearray(-(-size // SIZE_STEP) * SIZE_STEP)

    def give(self, memory: bytearray) -> None:
        """Keep the memory of a complete frame, which may still have views, instead of the oldest one."""
        if len(memory) <= 2 * BELIEVED_BYTES:
            self._spares = [*self._spares, memory][-self._most :]


class ReceiveBuffer:
    """Splits one connection's stream. Use: read into `buffer()`, then `received(count)` returns the complete frames.

    Frames are followed by `room_behind` bytes of memory, for decoders that read beyond the end. `memory` receives large
    frames in the memory of earlier ones.
    """

    __slots__ = (
        "_behind",
        "_end",
        "_filled",
        "_frame",
        "_length",
        "_max_frame_bytes",
        "_memory",
        "_room",
        "_shared",
        "_view",
    )

    def __init__(self, max_frame_bytes: int, *, room_behind: int = 0, memory: FrameMemory | None = None) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._memory = memory
        self._behind = bytes(room_behind)
        self._shared = bytearray(_SHARED_SIZE)
        self._view = memoryview(self._shared)
        self._end = 0
        self._frame: bytearray | None = None
        """The incomplete frame, of which `_filled` of `_length` bytes have arrived, with memory for `_room` of them."""
        self._length = 0
        self._filled = 0
        self._room = 0

    @property
    def is_within_frame(self) -> bool:
        """Return whether `buffer` has no room for bytes after the incomplete frame, so that a read may fill it."""
        return self._frame is not None

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes, never empty."""
        if self._frame is None:
            return self._view[self._end :]
        if self._filled == self._room:
            self._frame = self._grown(self._frame)
        return memoryview(self._frame)[self._filled : self._room]

    def received(self, count: int) -> Iterable[memoryview]:
        """Return the frames, without their length prefix, that `count` more bytes complete: use them before `buffer`.

        Raises ProtocolError at a frame of invalid length, after the frames before it.
        """
        if self._frame is None:
            self._end += count
            return self._split()
        self._filled += count
        if self._filled < self._length:
            return ()
        frame, self._frame = self._frame, None
        if self._memory is not None:
            self._memory.give(frame)
        return (memoryview(frame)[: self._length],)

    def _split(self) -> Iterator[memoryview]:
        start, end = 0, self._end
        while end - start >= LENGTH_SIZE:
            length = _length_at(self._shared, start)[0]
            if not 0 <= length <= self._max_frame_bytes:
                raise ProtocolError(f"response of {length} bytes; expected 0 to {self._max_frame_bytes}")
            start += LENGTH_SIZE
            received = self._view[start : min(end, start + length)]
            start += length
            if start > end:
                self._begin_frame(length, received)
                return
            frame = bytearray(received)
            frame += self._behind
            yield memoryview(frame)[:length]
        self._shared[: end - start] = self._shared[start:end]
        self._end = end - start

    def _begin_frame(self, length: int, beginning: memoryview) -> None:
        """Continue in a separate buffer of the frame."""
        self._length, self._filled = length, len(beginning)
        self._room = min(length, max(BELIEVED_BYTES, 2 * self._filled))
        size = self._room + len(self._behind)
        self._frame = bytearray(size) if self._memory is None else self._memory.take(size)
        self._frame[: self._filled] = beginning
        self._end = 0

    def _grown(self, frame: bytearray) -> bytearray:
        more = bytes(min(self._filled, self._length - self._filled))
        self._room += len(more)
        try:
            frame += more
        except BufferError:
            # The reader still holds a view of the buffer, so it cannot grow in place.
            return frame + more
        return frame


def _is_free(memory: bytearray) -> bool:
    """Return whether no view of the memory exists: only then its size can change."""
    try:
        memory.append(memory.pop())
    except BufferError:
        return False
    return True
