"""Snappy as Kafka's Java clients write it: raw snappy blocks in the framing of xerial's SnappyOutputStream.

    82 'SNAPPY' 00 · i32 version 1 · i32 compatible version 1 · then, repeated: i32 block length · raw snappy block

Some clients (librdkafka before 0.9, sarama) send one bare raw block instead, so a reader must accept both.
"""

from __future__ import annotations

from struct import Struct

from cramjam import DecompressionError, snappy

from .decompression_room import FREE_BLOCKS, Room, check_blocks
from .errors import ProtocolError

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_MAGIC_HEAD = int.from_bytes(XERIAL_MAGIC[:4], "big")
_BLOCK_SIZE = 32 * 1024
_length = Struct(">I")
# A copy element of three bytes repeats at most 64 bytes, so no block can grow by more than 64/3.
_MAX_EXPANSION = 22


def compress(data: memoryview, _level: int | None, _magic: int) -> bytes:
    """Compress `data` into a xerial stream with blocks of 32 KiB."""
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _BLOCK_SIZE):
        block = bytes(snappy.compress_raw(data[start : start + _BLOCK_SIZE]))
        parts += (_length.pack(len(block)), block)
    return b"".join(parts)


def decompress(data: memoryview, _room: Room, max_size: int, _magic: int, *, at_once: bool = False) -> bytes | None:
    """Decompress a xerial stream or one raw block; None beyond `max_size` bytes.

    Raises ProtocolError for other bytes, and as `check_blocks`.
    """
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _decompress_block(data, max_size)
    position, end = len(_XERIAL_HEADER), len(data)
    if position > end:
        raise ProtocolError("xerial header truncated")
    parts, blocks, allowed = [], 0, max_size
    while position < end:
        if position + 4 > end:
            raise ProtocolError("snappy block length truncated")
        blocks += 1
        if blocks > FREE_BLOCKS:
            check_blocks(blocks, allowed - max_size, at_once=at_once)
        (length,) = _length.unpack_from(data, position)
        if length == _MAGIC_HEAD:  # several consecutive xerial streams are legal
            position += len(_XERIAL_HEADER)
            continue
        position += 4
        if position + length > end:
            raise ProtocolError("snappy block truncated")
        block = _decompress_block(data[position : position + length], max_size)
        if block is None:
            return None
        parts.append(block)
        max_size -= len(block)
        position += length
    return b"".join(parts)


def _decompress_block(block: memoryview, max_size: int) -> bytes | None:
    if not block:
        raise ProtocolError("empty snappy block")
    try:
        declared = snappy.decompress_raw_len(block)
        if declared > max_size:
            return None
        if declared > _MAX_EXPANSION * len(block):
            raise ProtocolError("snappy block declares an impossible size")
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise ProtocolError(str(error)) from error
