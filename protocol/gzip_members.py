"""gzip as Kafka reads and writes it: members of RFC 1952, one behind the other."""

from __future__ import annotations

import zlib

from .compressed_streams import decompress_frames
from .decompression_room import Room
from .errors import ProtocolError

_WINDOW_BITS = 31  # the gzip container of RFC 1952


def compress(data: memoryview, level: int | None, _magic: int) -> bytes:
    """One member with `data`."""
    return zlib.compress(data, -1 if level is None else level, _WINDOW_BITS)


def decompress(data: memoryview, _room: Room, max_size: int, _magic: int) -> bytes | memoryview | None:
    """What the members hold; None if that is more than `max_size` bytes. Raises ProtocolError."""
    try:
        return decompress_frames(lambda: zlib.decompressobj(_WINDOW_BITS), data, max_size)
    except zlib.error as error:
        raise ProtocolError(str(error)) from error
