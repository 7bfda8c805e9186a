"""zstd frames (RFC 8878)."""

from __future__ import annotations

import sys

from .compressed_streams import decompress_frames
from .decompression_room import Room
from .errors import ProtocolError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

try:
    from .zstd_kept_context import open_one
except ModuleNotFoundError:  # of the extra fast-zstd

    def open_one(data: memoryview, room: Room, max_size: int) -> bytes | None:
        """Each frame is opened with a context of its own."""
        return None


_MODEST_LEVEL = 6
_TABLE_SIZE = 1024 * 1024
_TABLES: dict[int, int] = {
    zstd.CompressionParameter.window_log: 21,
    zstd.CompressionParameter.chain_log: 20,
    zstd.CompressionParameter.hash_log: 20,
}
"""Ten megabytes; the highest level would take six hundred for a batch of twenty, and gain little."""


def compress(data: memoryview, level: int | None, _magic: int) -> bytes:
    """One frame with `data`, with tables no larger than those for a megabyte of it."""
    options: dict[int, int] = {} if level is None else {zstd.CompressionParameter.compression_level: level}
    if level is not None and level > _MODEST_LEVEL and len(data) > _TABLE_SIZE:
        options |= _TABLES
    packed: bytes = zstd.compress(data, options=options)
    return packed


def decompress(data: memoryview, room: Room, max_size: int, _magic: int) -> bytes | memoryview | None:
    """What the frames hold; None if that is more than `max_size` bytes. Raises ProtocolError."""
    plain = open_one(data, room, max_size)
    if plain is not None:
        return plain
    try:
        return decompress_frames(zstd.ZstdDecompressor, data, max_size)
    except zstd.ZstdError as error:
        raise ProtocolError(str(error)) from error
