"""Length-prefixed frames out of a byte stream, without I/O and without trusting the declared length.

The owner of the socket reads into the `memoryview` that `buffer()` returns, and `next_frame()` tells the position of
each complete frame. While no frame is pending the bytes land in a buffer that many streams share, because nothing of it
is needed once the frames in it were handled. A partial frame needs a private buffer: a small one is copied into one
that grows with the bytes that have arrived, never by the length that the peer announced; for a large one the stream
keeps the shared buffer, and the others share another, so that no byte of it is moved.
"""

from __future__ import annotations

from struct import Struct

from .errors import ProtocolError

_length_at = Struct(">i").unpack_from
_PRODUCE_KEY = b"\0\0"
LENGTH_SIZE = 4
_FIRST_PRIVATE_SIZE = 4096
LENT_FREELY = 24
SMALL_FRAME_SIZE = 1 << 16


class BufferPool:
    """Receive buffers of one size: the one that streams share, and a few spare ones for large frames.

    The first `LENT_FREELY` are lent to any stream that announces a large frame. When as many are out, a stream has to
    have sent a quarter of one before it gets one: a thousand announcements must not cost a thousand buffers.
    """

    __slots__ = ("_free", "_is_short", "_lent", "_most", "_shared", "shared_view", "size", "window")

    def __init__(self, size: int, most: int) -> None:
        self.size = size
        self._free: list[bytearray] = []
        self._most = most
        self._lent = 0
        self._is_short = False
        self._share(bytearray(size))

    def _share(self, buffer: bytearray) -> None:
        self._shared = buffer
        self.shared_view = memoryview(buffer)
        self.window = self.shared_view[: self.size // (64 if self._is_short else 4)]
        """What one read takes at most while no frame is pending: it bounds how long one client is served in one go."""

    def run_short(self, is_short: bool) -> None:
        """While memory is short, read little of a frame before its size is known, and lend no buffer freely."""
        if is_short != self._is_short:
            self._is_short = is_short
            self._share(self._shared)

    def take_shared(self) -> bytearray:
        """The shared buffer, for the stream whose bytes lie in it; another one is shared from now on."""
        buffer = self._shared
        self._share(self.take())
        return buffer

    def may_lend(self, pending: int) -> bool:
        """Whether a stream of which so many bytes are pending may have a buffer."""
        return pending * 4 >= self.size or (self._lent < LENT_FREELY and not self._is_short)

    def take(self) -> bytearray:
        self._lent += 1
        return self._free.pop() if self._free else bytearray(self.size)

    def give(self, buffer: bytearray) -> None:
        if len(buffer) == self.size:
            self._lent -= 1
            if len(self._free) < self._most:
                self._free.append(buffer)


class FrameReader:
    """Splits one stream. `max_size` bounds a Produce frame (without its length prefix), `max_other_size` any other.

    Use: `view = buffer()`, read into it, add the number of bytes to `pending`, then `next_frame()` until it returns
    None or nothing is pending, then `settle()`, which is not needed if nothing is pending and `private` is None. The
    frame at `(start, end)` of `self.data` (a writable memoryview) is valid until `settle()` or `buffer()`.
    """

    __slots__ = ("_pool", "_start", "data", "max_other_size", "max_size", "pending", "private")

    def __init__(self, pool: BufferPool, *, max_size: int, max_other_size: int) -> None:
        self.max_size = max_size
        self.max_other_size = max_other_size
        self.data = pool.shared_view
        self._pool = pool
        self.private: bytearray | None = None
        """Where bytes are kept that are pending; None: in the buffer that all share."""
        self._start = 0
        self.pending = 0
        """Bytes received and not yet handed out; who reads into the buffer adds to them."""

    def buffer(self, sizehint: int = -1) -> memoryview:
        """Where the next bytes go; never empty. The hint is there for transports of asyncio, which give one."""
        if self.private is None:
            self._start = 0
            self.data = self._pool.shared_view
            return self._pool.window
        pending = self.pending
        if self._start + pending == len(self.private):
            self._move(pending)
        end = self._start + pending
        missing = self._wanted(pending) - pending
        if missing > self._pool.size // 16:
            # Just the rest of a large frame: what came of the next one would have to be moved away from behind it.
            return self.data[end : end + missing]
        return self.data[end:]

    def next_frame(self) -> tuple[int, int] | None:
        """The next complete frame's bounds in `data`, or None. Raises ProtocolError on an illegal length."""
        start = self._start
        pending = self.pending - LENGTH_SIZE
        if pending < 0:
            return None
        length: int = _length_at(self.data, start)[0]
        if not 0 <= length <= self.max_size:
            raise ProtocolError(f"a frame of {length} bytes; 0 to {self.max_size} are allowed")
        start += LENGTH_SIZE
        if pending < length:
            if length > self.max_other_size and pending >= 2 and self.data[start : start + 2] != _PRODUCE_KEY:
                raise ProtocolError(f"a frame of {length} bytes that is no Produce request")
            return None
        self.pending = pending - length
        end = self._start = start + length
        return start, end

    def settle(self) -> None:
        """Keep what is left of the stream and let go of the buffer that held what was handled."""
        pending, start = self.pending, self._start
        if not pending:
            if self.private is not None:
                self._release()
        elif self.private is None:
            self._keep(pending)
        elif start:
            private, kept = self.private, self.data[start : start + pending]
            private[:pending] = kept if start >= pending else bytes(kept)
            self._start = 0

    def close(self) -> None:
        """Let go of everything; the reader is not used again."""
        self._release()
        self.pending = 0

    @property
    def large_frame(self) -> int:
        """Bytes of the frame that is arriving; 0 if none is, or it is small."""
        size = self._wanted(self.pending)
        return size if size > SMALL_FRAME_SIZE else 0

    def _wanted(self, pending: int) -> int:
        """Bytes the frame at the start of the pending ones needs in all, as far as its length is known and legal."""
        if pending < LENGTH_SIZE:
            return 0
        return LENGTH_SIZE + min(max(0, int(_length_at(self.data, self._start)[0])), self.max_size)

    def _is_for_pool(self, pending: int) -> bool:
        """Whether a pooled buffer suits what is pending: part of a large frame, and enough of it to believe in it."""
        size = self._pool.size
        return (
            _FIRST_PRIVATE_SIZE <= pending < size
            and self._wanted(pending) > size // 16
            and self._pool.may_lend(pending)
        )

    def _keep(self, pending: int) -> None:
        """Have what is pending in the shared buffer in a private one."""
        if self._is_for_pool(pending) and self._start + min(self._wanted(pending), self._pool.size) <= self._pool.size:
            self.private = self._pool.take_shared()
        else:
            self._move(pending)

    def _move(self, pending: int) -> None:
        """Into another buffer, with room for more than is pending: for at most twice as much, or one of the pool's."""
        # An odd size: never to be taken for one of the pool's.
        room = self._pool.take() if self._is_for_pool(pending) else bytearray(max(_FIRST_PRIVATE_SIZE, 2 * pending) + 1)
        room[:pending] = self.data[self._start : self._start + pending]
        self._release()
        self.private = room
        self.data = memoryview(room)

    def _release(self) -> None:
        if self.private is not None:
            self._pool.give(self.private)
            self.private = None
        self.data = self._pool.shared_view
        self._start = 0
