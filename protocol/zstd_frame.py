"""zstd frames (RFC 8878)."""

from __future__ import annotations

import sys
from struct import Struct

from .compressed_streams import MAX_FRAMES, decompress_frames
from .decompression_room import FREE_BLOCKS, LEAST_BLOCK_OUTPUT, LongDecompressionError, Room, check_blocks
from .errors import ProtocolError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

try:
    from .zstd_kept_context import open_one
except ModuleNotFoundError:  # from the extra fast-zstd

    def open_one(data: memoryview, room: Room, max_size: int) -> bytes | None:
        """Return a decompressor without a reused context."""
        return None


_frame_head, _block_header = Struct("<IB").unpack_from, Struct("<HB").unpack_from
_MAGIC, _FRAME_HEAD_SIZE = 0xFD2FB528, 5
_SKIPPABLE, _SKIPPABLE_MASK, _SKIPPABLE_HEAD_SIZE = 0x184D2A50, 0xFFFFFFF0, 8
_BLOCK_HEADER_SIZE, _CHECKSUM_SIZE = 3, 4
_RUN = 1 << 1
"""The type of a block of one repeated byte in a block's header; its size is the size of its output."""
_LEAST_PACKED_BLOCK = 32
"""Minimum average bytes of each block beyond `FREE_BLOCKS`, including its header."""


def _frame_header_size(descriptor: int) -> int:
    """Return the bytes of a frame's header, the magic number included, by its descriptor (RFC 8878, 3.1.1.1)."""
    is_single_segment = descriptor >> 5 & 1
    window_size, dictionary_size = 1 - is_single_segment, (0, 1, 2, 4)[descriptor & 3]
    content_size = (is_single_segment, 2, 4, 8)[descriptor >> 6]
    return _FRAME_HEAD_SIZE + window_size + dictionary_size + content_size


_FRAME_HEADER_SIZES = tuple(_frame_header_size(descriptor) for descriptor in range(256))
_MODEST_LEVEL = 6
_TABLE_SIZE = 1024 * 1024
_TABLES: dict[int, int] = {
    zstd.CompressionParameter.window_log: 21,
    zstd.CompressionParameter.chain_log: 20,
    zstd.CompressionParameter.hash_log: 20,
}
"""Ten megabytes; the highest level would use six hundred for a batch of twenty, with little gain."""


def compress(data: memoryview, level: int | None, _magic: int) -> bytes:
    """Compress `data` into one frame, with tables no larger than for a megabyte."""
    options: dict[int, int] = {} if level is None else {zstd.CompressionParameter.compression_level: level}
    if level is not None and level > _MODEST_LEVEL and len(data) > _TABLE_SIZE:
        options |= _TABLES
    packed: bytes = zstd.compress(data, options=options)
    return packed


def decompress(
    data: memoryview, room: Room, max_size: int, _magic: int, *, at_once: bool = False
) -> bytes | memoryview | None:
    """Decompress the frames; None beyond `max_size` bytes. Raises ProtocolError, and as `check_blocks`."""
    blocks = 0
    if len(data) > FREE_BLOCKS * _BLOCK_HEADER_SIZE and not _is_one_block(data):
        # The library decompresses all blocks in one call: they are counted before it, and compared with their output
        # after it.
        blocks = _count_blocks(data, max_size, at_once=at_once)
    plain: bytes | memoryview | None = open_one(data, room, max_size)
    if plain is None:
        try:
            plain = decompress_frames(zstd.ZstdDecompressor, data, max_size)
        except zstd.ZstdError as error:
            raise ProtocolError(str(error)) from error
    if plain is not None:
        check_blocks(blocks, len(plain), at_once=at_once)
    return plain


def _is_one_block(data: memoryview) -> bool:
    """Return whether one block of one frame fills the data, as in most small batches: half of the time of counting."""
    descriptor = data[_FRAME_HEAD_SIZE - 1]
    position = _FRAME_HEADER_SIZES[descriptor]
    low, high = _block_header(data, position)
    end = position + _BLOCK_HEADER_SIZE + ((high << 16 | low) >> 3) + _CHECKSUM_SIZE * (descriptor >> 2 & 1)
    return bool(low & 1) and low & 6 != _RUN and end == len(data)


def _count_blocks(data: memoryview, max_size: int, *, at_once: bool) -> int:
    """Count the blocks of all frames; malformed input ends the count, and so do more than `max_size` bytes.

    Raises ProtocolError, LongDecompressionError for too many blocks for their maximum output.
    """
    blocks, position, end, output = 0, 0, len(data), 0
    most = FREE_BLOCKS if at_once else FREE_BLOCKS + len(data) // _LEAST_PACKED_BLOCK
    for _ in range(MAX_FRAMES):
        if position + _FRAME_HEAD_SIZE > end:
            break
        magic, descriptor = _frame_head(data, position)
        if magic & _SKIPPABLE_MASK == _SKIPPABLE:
            position += _SKIPPABLE_HEAD_SIZE + int.from_bytes(data[position + 4 : position + 8], "little")
            continue
        if magic != _MAGIC:
            break
        position += _FRAME_HEADER_SIZES[descriptor]
        is_last = False
        while not is_last and position + _BLOCK_HEADER_SIZE <= end and output <= max_size:
            low, high = _block_header(data, position)
            blocks += 1
            is_last, size = low & 1, (high << 16 | low) >> 3
            if low & 6 == _RUN:
                output += size
                size = 1
            position += _BLOCK_HEADER_SIZE + size
            if blocks > most and at_once:
                raise LongDecompressionError
            if blocks > most + output // LEAST_BLOCK_OUTPUT:
                raise ProtocolError(f"more than {most} zstd blocks in {len(data)} bytes")
        position += _CHECKSUM_SIZE * (descriptor >> 2 & 1)
    return blocks
