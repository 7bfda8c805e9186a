"""Memory and codecs that a thread reuses for compressed batches, and the limits of their blocks."""

from __future__ import annotations

from typing import Any

from .errors import ProtocolError

FREE_BLOCKS = 1000
"""Number of blocks of one batch that are decompressed with any contents: about a millisecond. A typical batch has one
block for every 32 to 128 KiB of records.
"""
LEAST_BLOCK_OUTPUT = 32
"""Minimum average bytes of each further block. A block without output takes 3 to 5 bytes and a microsecond: a batch of
a megabyte could have 200 000 of them.
"""
LEAST_KEPT = 64 * 1024
"""The largest block of the LZ4 frames that clients write."""
MAX_KEPT = 4 * 1024 * 1024
"""The maximum block of an LZ4 frame."""


class LongDecompressionError(Exception):
    """Decompressing these bytes takes milliseconds, and the caller must not wait for that."""


def check_blocks(blocks: int, output: int, *, at_once: bool) -> None:
    """Limit the blocks of a batch by their output so far.

    Raises ProtocolError for too many, LongDecompressionError for more than `FREE_BLOCKS` with `at_once`.
    """
    if blocks <= FREE_BLOCKS:
        return
    if at_once:
        raise LongDecompressionError
    if blocks > FREE_BLOCKS + output // LEAST_BLOCK_OUTPUT:
        raise ProtocolError(f"{blocks} compressed blocks for {output} bytes")


class Room:
    """Memory and codecs that are reused for all batches.

    The memory grows to `MAX_KEPT` at most: larger output is produced in pieces.
    """

    __slots__ = ("expected_size", "memory", "zstd")

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(LEAST_KEPT))
        self.zstd: Any = None
        """Decompressor of zstd frames, once there was one: creating it takes as long as decompressing a small batch."""
        self.expected_size = LEAST_KEPT
        """Expected size of a zstd frame of unknown size, from the previous one."""

    def enlarge(self, used: memoryview, needed: int) -> memoryview:
        """Return at least `needed` bytes, at most `MAX_KEPT`, that begin with the bytes of `used`; kept for later
        frames.
        """
        self.memory = memoryview(bytearray(max(needed, min(2 * len(used), MAX_KEPT))))
        self.memory[: len(used)] = used
        return self.memory

    def opened(self, size: int) -> None:
        """Store the size of a zstd frame."""
        self.expected_size = max(LEAST_KEPT, min(2 * size, MAX_KEPT))


_free_rooms: list[Room] = []
"""The buffers, one for each thread that decompressed at the same time."""


def take_room() -> Room:
    """Return a room for exclusive use, until it is returned. Thread-safe."""
    try:
        return _free_rooms.pop()
    except IndexError:
        return Room()


give_back = _free_rooms.append
"""Return a room; its output must not be used any more."""
