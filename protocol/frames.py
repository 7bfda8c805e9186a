"""Length-prefixed frames out of a byte stream, without I/O and without trusting the declared length.

The owner of the socket reads into the `memoryview` that `buffer()` returns and then calls `received(count)`, which
yields the position of every complete frame. While no frame is pending the bytes land in a `scratch` buffer that many
streams may share, because nothing of it is needed once the frames in it were handled. A partial frame moves to a
private buffer, which grows with the bytes that have arrived, never by the length that the peer announced.
"""

from __future__ import annotations

from struct import Struct

from .errors import ProtocolError

_length_at = Struct(">i").unpack_from
_PRODUCE_KEY = b"\0\0"
LENGTH_SIZE = 4
_FIRST_PRIVATE_SIZE = 4096


class BufferPool:
    """A few spare receive buffers of one size, so that streams of large frames do not allocate one for every frame."""

    __slots__ = ("_free", "_most", "size")

    def __init__(self, size: int, most: int) -> None:
        self.size = size
        self._free: list[bytearray] = []
        self._most = most

    def take(self) -> bytearray:
        return self._free.pop() if self._free else bytearray(self.size)

    def give(self, buffer: bytearray) -> None:
        if len(buffer) == self.size and len(self._free) < self._most:
            self._free.append(buffer)


class FrameReader:
    """Splits one stream. `max_size` bounds a Produce frame (without its length prefix), `max_other_size` any other.

    Use: `view = buffer()`, read into it, `received(n)`, then `next_frame()` until it returns None, then `settle()`.
    The frame at `(start, end)` of `self.data` (a writable memoryview) is valid until `settle()` or `buffer()`.
    """

    __slots__ = ("_end", "_pool", "_private", "_scratch", "_start", "data", "max_other_size", "max_size")

    def __init__(self, scratch: bytearray, pool: BufferPool, *, max_size: int, max_other_size: int) -> None:
        self.max_size = max_size
        self.max_other_size = max_other_size
        self.data = memoryview(scratch)
        self._scratch = scratch
        self._pool = pool
        self._private: bytearray | None = None
        self._start = 0
        self._end = 0

    @property
    def pending(self) -> int:
        """Bytes received and not yet handed out."""
        return self._end - self._start

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._private is not None and self._end == len(self._private):
            self._grow()
        return self.data[self._end :]

    def received(self, count: int) -> None:
        self._end += count

    def next_frame(self) -> tuple[int, int] | None:
        """The next complete frame's bounds in `data`, or None. Raises ProtocolError on an illegal length."""
        start, end = self._start, self._end
        if end - start < LENGTH_SIZE:
            return None
        length = _length_at(self.data, start)[0]
        if not 0 <= length <= self.max_size:
            raise ProtocolError(f"a frame of {length} bytes; 0 to {self.max_size} are allowed")
        start += LENGTH_SIZE
        if end - start < length:
            if length > self.max_other_size and end - start >= 2 and self.data[start : start + 2] != _PRODUCE_KEY:
                raise ProtocolError(f"a frame of {length} bytes that is no Produce request")
            return None
        self._start = start + length
        return start, start + length

    def settle(self) -> None:
        """Keep what is left of the stream and let go of the buffer that held what was handled."""
        pending = self._end - self._start
        if self._private is None:
            if pending:
                self._move(pending)
            else:
                self._start = self._end = 0
        elif not pending:
            self._release()
        elif self._start:
            private = self._private
            if self._start >= pending:
                private[:pending] = self.data[self._start : self._end]
            else:
                private[:pending] = bytes(self.data[self._start : self._end])
            self._start, self._end = 0, pending

    def close(self) -> None:
        """Let go of everything; the reader is not used again."""
        self._release()

    def _wanted(self, pending: int) -> int:
        """Bytes the frame at the start of the pending ones needs in all, as far as its length is known and legal."""
        if pending < LENGTH_SIZE:
            return 0
        return LENGTH_SIZE + min(max(0, int(_length_at(self.data, self._start)[0])), self.max_size)

    def _move(self, pending: int) -> None:
        """From the shared scratch into a private buffer."""
        private = self._room(pending)
        private[:pending] = self.data[self._start : self._end]
        self._install(private, pending)

    def _grow(self) -> None:
        """The private buffer is full: a larger one."""
        pending = self._end - self._start
        private = self._room(pending)
        private[:pending] = self.data[self._start : self._end]
        self._release()
        self._install(private, pending)

    def _room(self, pending: int) -> bytearray:
        """A buffer with room for more than `pending` bytes, and for at most twice as many or one of the pool's."""
        pooled = self._pool.size
        if _FIRST_PRIVATE_SIZE <= pending < pooled and self._wanted(pending) > pooled // 16:
            return self._pool.take()
        return bytearray(max(_FIRST_PRIVATE_SIZE, 2 * pending))

    def _install(self, private: bytearray, pending: int) -> None:
        self._private = private
        self.data = memoryview(private)
        self._start, self._end = 0, pending

    def _release(self) -> None:
        if self._private is not None:
            self._pool.give(self._private)
            self._private = None
        self.data = memoryview(self._scratch)
        self._start = self._end = 0
