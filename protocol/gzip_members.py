"""gzip as Kafka reads and writes it: consecutive members of RFC 1952."""

from __future__ import annotations

import zlib

from .compressed_streams import MAX_FRAMES, decompress_frames
from .decompression_room import LongDecompressionError, Room
from .errors import ProtocolError

_WINDOW_BITS = 31  # the gzip container of RFC 1952
SHORT_GZIP_BYTES = 32 * 1024
"""Maximum bytes that are decompressed while the caller waits, and in one piece. A block of 12 bytes can define a
Huffman code and contain nothing: it takes zlib some microseconds, and only decompression reveals it. Typical gzip of
this size takes half a millisecond.
"""
_LEAST_OUTPUT_SHARE = 8
"""Maximum compressed bytes per output byte. Typical gzip has more output than input, except for a few bytes."""
_STEP = 4 * 1024 * 1024
"""Bytes per output: zlib holds its output twice for a moment."""


def compress(data: memoryview, level: int | None, _magic: int) -> bytes:
    """Compress `data` into one member."""
    return zlib.compress(data, -1 if level is None else level, _WINDOW_BITS)


def decompress(
    data: memoryview, _room: Room, max_size: int, _magic: int, *, at_once: bool = False
) -> bytes | memoryview | None:
    """Decompress the members; None beyond `max_size` bytes.

    Raises ProtocolError; with `at_once` LongDecompressionError for more than `SHORT_GZIP_BYTES` bytes.
    """
    is_long = len(data) > SHORT_GZIP_BYTES
    if is_long and at_once:
        raise LongDecompressionError
    try:
        if is_long:
            return _decompress_in_pieces(data, max_size)
        return decompress_frames(lambda: zlib.decompressobj(_WINDOW_BITS), data, max_size)
    except zlib.error as error:
        raise ProtocolError(str(error)) from error


def _decompress_in_pieces(data: memoryview, max_size: int) -> memoryview | None:
    """Decompress as `decompress`, but reject input with almost no output before its end."""
    whole, position = bytearray(), 0
    for _ in range(MAX_FRAMES):
        decompressor = zlib.decompressobj(_WINDOW_BITS)
        while not decompressor.eof:
            piece = data[position : position + SHORT_GZIP_BYTES]
            part = decompressor.decompress(piece, min(max_size - len(whole) + 1, _STEP))
            # One byte more than allowed distinguishes "exactly full" from "there is more".
            if len(part) > max_size - len(whole):
                return None
            taken = len(piece) - len(decompressor.unconsumed_tail) - len(decompressor.unused_data)
            if not part and not taken and not decompressor.eof:
                raise ProtocolError("compressed data is truncated")
            whole += part
            position += taken
            if position >= SHORT_GZIP_BYTES and len(whole) < position // _LEAST_OUTPUT_SHARE:
                raise ProtocolError(f"{position} bytes of gzip for {len(whole)} bytes")
        if position == len(data):
            return memoryview(whole)
    raise ProtocolError(f"more than {MAX_FRAMES} compressed frames in one batch")
