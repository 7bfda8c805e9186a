"""What a thread keeps from one compressed batch to the next while it opens them."""

from __future__ import annotations

from typing import Any

LEAST_KEPT = 64 * 1024
"""The largest block of the LZ4 frames that clients write."""
MOST_KEPT = 4 * 1024 * 1024
"""No block of an LZ4 frame is larger."""


class Room:
    """Memory and codecs that are used again from batch to batch.

    The memory grows to `MOST_KEPT` at most: what is larger is opened in it piece by piece.
    """

    __slots__ = ("expected_size", "memory", "zstd")

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(LEAST_KEPT))
        self.zstd: Any = None
        """What opens zstd frames, once there was one: making it takes as long as opening a small batch."""
        self.expected_size = LEAST_KEPT
        """How large a zstd frame of unknown size may become, judging by the one before."""

    def enlarge(self, used: memoryview, needed: int) -> memoryview:
        """At least `needed` bytes, at most `MOST_KEPT`, that begin with those of `used`; kept for later frames."""
        self.memory = memoryview(bytearray(max(needed, min(2 * len(used), MOST_KEPT))))
        self.memory[: len(used)] = used
        return self.memory

    def opened(self, size: int) -> None:
        """Remember how much was in a zstd frame."""
        self.expected_size = max(LEAST_KEPT, min(2 * size, MOST_KEPT))


_free_rooms: list[Room] = []
"""As many as threads have ever decompressed at the same time."""


def take_room() -> Room:
    """A room for the caller alone, until it gives it back. Any thread."""
    try:
        return _free_rooms.pop()
    except IndexError:
        return Room()


give_back = _free_rooms.append
"""Return a room; what was opened in it must not be used any more."""
