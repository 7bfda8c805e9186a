"""Length-prefixed frames of a byte stream, without I/O and without trust in the declared length.

The owner of the socket reads into the `memoryview` that `buffer()` returns, and `next_frame()` returns the position of
each complete frame. While no frame is pending the bytes are received in a buffer that many streams share, because it is
free again once its frames have been handled. A partial frame needs a private buffer: a small frame is copied into a
buffer that grows with the received bytes, never by the declared length; for a large one the stream keeps the shared
buffer, and the others share another, so that none of its bytes is moved. A frame that is larger than that buffer
receives memory of exactly its own size, of which the kernel supplies each page when its first byte arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from .errors import ProtocolError

_length_at = Struct(">i").unpack_from
_PRODUCE_KEY = b"\0\0"
LENGTH_SIZE = 4
API_KEY_SIZE = 2
FIRST_PRIVATE_SIZE = 4096
LENT_FREELY = 24
SMALL_FRAME_SIZE = 1 << 16


class BufferPool:
    """Receive buffers of one size: the shared one, and a few spare ones for large frames.

    The first `LENT_FREELY` are available to any stream that declares a large frame. When as many are in use, a stream
    must have sent a quarter of a frame before it receives a buffer: a thousand declarations must not cost a thousand
    buffers.
    """

    __slots__ = (
        "_free",
        "_is_short",
        "_lent",
        "_most",
        "_shared",
        "allocate",
        "received",
        "shared_view",
        "size",
        "window",
        "window_size",
    )

    def __init__(self, size: int, most: int, allocate: Callable[[int], Any] | None = None) -> None:
        """`allocate` returns memory of a number of bytes that the kernel supplies at the first write, or raises
        MemoryError. Without it a frame that is larger than a receive buffer is received in a buffer that doubles.
        """
        self.size = size
        self.allocate = allocate
        self._free: list[bytearray] = []
        self._most = most
        self._lent = 0
        self._is_short = False
        self.received = 0
        """The bytes at the start of the shared buffer whose frames are handled later in this turn: less than half of
        it."""
        self._share(bytearray(size))

    def _share(self, buffer: bytearray) -> None:
        self._shared = buffer
        self.shared_view = memoryview(buffer)
        self.window_size = self.size // (64 if self._is_short else 4)
        """Maximum bytes of one read while no frame is pending, which limits the time for one client."""
        self.window = self.shared_view[: self.window_size]
        """The part of the shared buffer for the next bytes while `received` is 0."""

    def run_short(self, is_short: bool) -> None:
        """While memory is short, read little of a frame before its size is known, and reserve buffers for large
        parts.
        """
        if is_short != self._is_short:
            self._is_short = is_short
            self._share(self._shared)

    def take_shared(self) -> bytearray:
        """Give the shared buffer to the stream whose bytes it contains; the other streams get another one."""
        assert not self.received, "no frame of another stream is in it"
        buffer = self._shared
        self._share(self.take())
        return buffer

    def may_lend(self, pending: int) -> bool:
        """Return whether a stream with this number of pending bytes may have a buffer."""
        return pending * 4 >= self.size or (self._lent < LENT_FREELY and not self._is_short)

    def take(self) -> bytearray:
        self._lent += 1
        return self._free.pop() if self._free else bytearray(self.size)

    def drop_spares(self) -> None:
        """Free the unused buffers, each of a megabyte."""
        self._free.clear()

    def give(self, buffer: Any) -> None:
        if type(buffer) is bytearray and len(buffer) == self.size:
            self._lent -= 1
            if len(self._free) < self._most:
                self._free.append(buffer)


class FrameReader:
    """Splits one stream. `max_size` limits a Produce frame (without its length prefix), `max_other_size` any other.

    Use: `view = buffer()`, read into it, add the number of bytes to `pending`, then `next_frame()` until it returns
    None or nothing is pending, then `settle()`, which is not needed if nothing is pending and `private` is None. The
    frame at `(start, end)` of `self.data` (a writable memoryview) is valid until `settle()` or `buffer()`.
    """

    __slots__ = ("_pool", "data", "max_other_size", "max_size", "pending", "private", "start")

    def __init__(self, pool: BufferPool, *, max_size: int, max_other_size: int) -> None:
        self.max_size = max_size
        self.max_other_size = max_other_size
        self.data = pool.shared_view
        self._pool = pool
        self.private: Any = None
        """Buffer of the pending bytes; None: the shared buffer."""
        self.start = 0
        """Position of the first pending byte in `data`."""
        self.pending = 0
        """Number of received bytes that have not been returned; the reader of the socket increases it."""

    def buffer(self, sizehint: int = -1) -> memoryview:
        """Return the buffer for the next bytes, never empty. The hint exists for transports of asyncio, which pass
        one.
        """
        pending = self.pending
        if self.private is None:
            if not pending:
                pool = self._pool
                self.data = view = pool.shared_view
                self.start = start = pool.received
                return view[start : start + pool.window_size] if start else pool.window
            self.settle()  # more bytes of a stream whose frames are not handled yet
        assert self.private is not None
        if self.start + pending == len(self.private):
            self._move(pending)
        end = self.start + pending
        missing = self._wanted(pending) - pending
        if missing > self._pool.size // 16:
            # Only the rest of a large frame: bytes of the next one would have to be moved.
            return self.data[end : end + missing]
        return self.data[end:]

    @property
    def has_second_frame(self) -> bool:
        """Whether bytes of a second frame are pending."""
        pending = self.pending
        size: int = LENGTH_SIZE + _length_at(self.data, self.start)[0] if pending >= LENGTH_SIZE else pending
        return LENGTH_SIZE <= size < pending

    @property
    def has_complete_frame(self) -> bool:
        """Whether `next_frame` returns a frame, which has an API key."""
        most = min(self.pending - LENGTH_SIZE, self.max_size)
        if most < API_KEY_SIZE:
            return False
        length: int = _length_at(self.data, self.start)[0]
        return API_KEY_SIZE <= length <= most

    @property
    def pending_bytes(self) -> memoryview:
        """The pending bytes, valid as a frame is."""
        return self.data[self.start : self.start + self.pending]

    def skip_to(self, position: int) -> None:
        """Continue at this position of `data`: the frames before it have been handled."""
        self.pending -= position - self.start
        self.start = position

    def next_frame(self) -> tuple[int, int] | None:
        """Return the next complete frame's bounds in `data`, or None. Raises ProtocolError for an invalid length."""
        start = self.start
        pending = self.pending - LENGTH_SIZE
        if pending < 0:
            return None
        length: int = _length_at(self.data, start)[0]
        if not 0 <= length <= self.max_size:
            raise ProtocolError(f"frame of {length} bytes; expected 0 to {self.max_size}")
        start += LENGTH_SIZE
        if pending < length:
            if length > self.max_other_size and pending >= 2 and self.data[start : start + 2] != _PRODUCE_KEY:
                raise ProtocolError(f"frame of {length} bytes, which is not a Produce request")
            return None
        self.pending = pending - length
        end = self.start = start + length
        return start, end

    def settle(self) -> None:
        """Keep the remaining bytes of the stream and release the buffer of the handled frames."""
        pending, start = self.pending, self.start
        if not pending:
            if self.private is not None:
                self._release()
        elif self.private is None:
            self._keep(pending)
        elif start:
            # Between views, which may overlap: an assignment to a slice of a bytearray would copy twice.
            self.data[:pending] = self.data[start : start + pending]
            self.start = 0

    def close(self) -> None:
        """Release everything; the reader is not used again."""
        self._release()
        self.pending = 0

    @property
    def large_frame(self) -> int:
        """Return the bytes of the incomplete frame; 0 if there is none, or it is small."""
        size = self._wanted(self.pending)
        return size if size > SMALL_FRAME_SIZE else 0

    def _wanted(self, pending: int) -> int:
        """Return the size of the first pending frame, if its length is known and valid."""
        if pending < LENGTH_SIZE:
            return 0
        return LENGTH_SIZE + min(max(0, int(_length_at(self.data, self.start)[0])), self.max_size)

    def _is_for_pool(self, pending: int) -> bool:
        """Return whether a pooled buffer suits the pending bytes: a sufficient part of a large frame."""
        size, wanted = self._pool.size, self._wanted(pending)
        return (
            FIRST_PRIVATE_SIZE <= pending < size
            and wanted > size // 16
            and (wanted <= size or self._pool.allocate is None)
            and self._pool.may_lend(pending)
        )

    def _keep(self, pending: int) -> None:
        """Copy the pending bytes from the shared buffer into a private one."""
        if self._is_for_pool(pending) and self.start + min(self._wanted(pending), self._pool.size) <= self._pool.size:
            self.private = self._pool.take_shared()
        else:
            self._move(pending)

    def _move(self, pending: int) -> None:
        """Move the pending bytes into a larger buffer: of the size of a large frame, or of twice their size."""
        pool = self._pool
        room: Any
        if self._is_for_pool(pending):
            room = pool.take()
        elif pool.allocate is not None and pending >= FIRST_PRIVATE_SIZE and self._wanted(pending) > pool.size // 16:
            room = pool.allocate(self._wanted(pending))
        else:
            # An odd size, different from the pool's buffers.
            room = bytearray(max(FIRST_PRIVATE_SIZE, 2 * pending) + 1)
        view = memoryview(room)
        view[:pending] = self.data[self.start : self.start + pending]
        self._release()
        self.private = room
        self.data = view

    def _release(self) -> None:
        if self.private is not None:
            self._pool.give(self.private)
            self.private = None
        self.data = self._pool.shared_view
        self.start = 0
