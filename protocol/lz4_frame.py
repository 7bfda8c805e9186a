"""LZ4 frames as Kafka reads and writes them: format 1, independent blocks, no content size, no content checksums.

04 22 4D 18 · FLG · BD · [u64 content size] · HC · then, repeated: u32 LE block length (top bit: uncompressed) · block ·
[u32 block checksum]; a length of 0 ends the frame and may be followed by a content checksum

HC is the second byte of xxHash32 over FLG, BD and content size. Kafka before 0.10 computed it over the four magic bytes
as well; inside message format v0 that error is the format: it is written, and not checked when read. Block and content
checksums may be wrong: the CRC of the batch has covered these bytes already.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct

import cramjam

from .decompression_room import FREE_BLOCKS, MAX_KEPT, Room, check_blocks
from .errors import ProtocolError

_MAGIC = b"\x04\x22\x4d\x18"
_FLG_VERSION_MASK, _FLG_VERSION_1 = 0xC0, 0x40
_FLG_INDEPENDENT, _FLG_BLOCK_CHECKSUM, _FLG_CONTENT_SIZE = 0x20, 0x10, 0x08
_FLG_RESERVED = 0x03  # bit 0 would announce a dictionary, which Kafka never uses
_BLOCK_SIZE = 64 * 1024
_BLOCK_SIZE_BY_BD = {0x40: 64 * 1024, 0x50: 256 * 1024, 0x60: 1024 * 1024, 0x70: 4 * 1024 * 1024}
_STORED = 0x80000000
_END_MARK = b"\x00\x00\x00\x00"
_length = Struct("<I")
_pack_block, _open_block = cramjam.lz4.compress_block, cramjam.lz4.decompress_block_into
# One length byte of 255 represents 255 more bytes of a match: no block can grow by more.
_MAX_EXPANSION = 255
_FAST_LEVEL = 9  # Kafka's default level, at which it uses the fast compressor instead of the high one
_MIN_HIGH_LEVEL, _MAX_LEVEL = 3, 12


def xxhash32_short(data: bytes) -> int:
    """Return xxHash32 with seed 0 of fewer than 16 bytes."""
    mask, value = 0xFFFFFFFF, 0x165667B1 + len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        value = (value + int.from_bytes(data[start : start + 4], "little") * 0xC2B2AE3D) & mask
        value = ((value << 17 | value >> 15) & mask) * 0x27D4EB2F & mask
    for byte in data[whole:]:
        value = (value + byte * 0x165667B1) & mask
        value = ((value << 11 | value >> 21) & mask) * 0x9E3779B1 & mask
    value = (value ^ value >> 15) * 0x85EBCA77 & mask
    value = (value ^ value >> 13) * 0xC2B2AE3D & mask
    return value ^ value >> 16


@lru_cache(64)
def _header_checksum(covered: bytes) -> int:
    """Return HC; cached, since nearly all frames begin equally."""
    return xxhash32_short(covered) >> 8 & 0xFF


_DESCRIPTOR = bytes((_FLG_VERSION_1 | _FLG_INDEPENDENT, 0x40))
_HEADER = _MAGIC + _DESCRIPTOR + bytes((_header_checksum(_DESCRIPTOR),))
_FRONT = Struct(f"<{len(_HEADER)}sI")
"""The end mark, and the length of the first block."""
_front = _FRONT.unpack_from
_FRONT_SIZE = _FRONT.size
_HEADER_MAGIC_0 = _MAGIC + _DESCRIPTOR + bytes((_header_checksum(_MAGIC + _DESCRIPTOR),))


def compress(data: memoryview, level: int | None, magic: int) -> bytes:
    """Compress `data` into one LZ4 frame with blocks of 64 KiB; for `magic` 0 with the header checksum of message
    format v0.
    """
    header = _HEADER if magic else _HEADER_MAGIC_0
    if level not in (None, _FAST_LEVEL):
        return b"".join((header, *_packed_well(data, level), _END_MARK))
    parts: list[bytes | memoryview] = [header]
    for start in range(0, len(data), _BLOCK_SIZE):
        block = data[start : start + _BLOCK_SIZE]
        packed = memoryview(_pack_block(block, store_size=False))
        if len(packed) < len(block):
            parts += (_length.pack(len(packed)), packed)
        else:
            parts += (_length.pack(len(block) | _STORED), block)
    parts.append(_END_MARK)
    return b"".join(parts)


def _packed_well(data: memoryview, level: int) -> Iterator[memoryview]:
    """Yield blocks with their lengths, by the high compressor: the library has it for whole frames only, with
    checksums.
    """
    level = min(max(level, _MIN_HIGH_LEVEL), _MAX_LEVEL)
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    frame = memoryview(compressor.finish())
    position, _, checksum_size = _read_header(frame, check=False)
    while length := _length.unpack_from(frame, position)[0] & ~_STORED:
        end = position + _length.size + length
        yield frame[position:end]
        position = end + checksum_size


def decompress(data: memoryview, room: Room, max_size: int, magic: int, *, at_once: bool = False) -> memoryview | None:
    """Decompress one LZ4 frame, valid until the next use of `room`; None beyond `max_size` bytes.

    Raises ProtocolError for bytes that Kafka's clients could not read either, and as `check_blocks`.
    """
    length = len(data) - _FRONT_SIZE - len(_END_MARK)
    # A small batch has a single block.
    if length > 0 and max_size >= _BLOCK_SIZE and _front(data) == (_HEADER, length) and data[-4:] == _END_MARK:
        block = room.memory[:_BLOCK_SIZE]
        try:
            return block[: _open_block(data[_FRONT_SIZE:-4], block, _BLOCK_SIZE)]
        except cramjam.DecompressionError:
            pass
    position, block_size, checksum_size = _read_header(data, check=magic > 0)
    memory, size, end, blocks = room.memory, 0, len(data), 0
    before = bytearray()
    """Return all but the piece in `memory`. glibc enlarges a block of many megabytes without copying it."""
    while True:
        if position + 4 > end:
            raise ProtocolError("LZ4 frame without an end mark")
        (length,) = _length.unpack_from(data, position)
        position += 4
        if length == 0:
            if not before:
                return memory[:size]
            before += memory[:size]
            return memoryview(before)
        stored, length = length & _STORED, length & ~_STORED
        if length > block_size or position + length > end:
            raise ProtocolError("LZ4 block truncated or larger than its frame allows")
        blocks += 1
        if blocks > FREE_BLOCKS:
            check_blocks(blocks, len(before) + size, at_once=at_once)
        left = max_size - size
        most = min(length if stored else block_size, _MAX_EXPANSION * length, left)
        if size + most > MAX_KEPT:
            before += memory[:size]
            max_size -= size
            size = 0
        if size + most > len(memory):
            memory = room.enlarge(memory[:size], size + most)
        if not stored:
            try:
                size += _open_block(data[position : position + length], memory[size : size + most], most)
            except cramjam.DecompressionError as error:
                if most == left:  # invalid and oversized input cannot be distinguished
                    return None
                raise ProtocolError(f"LZ4 block cannot be decompressed: {error}") from error
        elif length > left:
            return None
        else:
            memory[size : size + length] = data[position : position + length]
            size += length
        position += length + checksum_size


def _read_header(data: memoryview, *, check: bool) -> tuple[int, int, int]:
    """Return the position of the first block, the maximum size of a block, and the size of the checksum after each
    block.
    """
    if len(data) < 7 or data[:4] != _MAGIC:
        raise ProtocolError("no LZ4 frame")
    flags = data[4]
    if flags & (_FLG_VERSION_MASK | _FLG_INDEPENDENT | _FLG_RESERVED) != _FLG_VERSION_1 | _FLG_INDEPENDENT:
        raise ProtocolError(f"LZ4 frame with unsupported flags {flags:#04x}")
    block_size = _BLOCK_SIZE_BY_BD.get(data[5])
    if block_size is None:
        raise ProtocolError(f"LZ4 frame with unsupported block descriptor {data[5]:#04x}")
    checksum_at = 14 if flags & _FLG_CONTENT_SIZE else 6
    if len(data) <= checksum_at:
        raise ProtocolError("LZ4 frame header truncated")
    if check and data[checksum_at] != _header_checksum(bytes(data[4:checksum_at])):
        raise ProtocolError("LZ4 frame header checksum does not match")
    return checksum_at + 1, block_size, 4 if flags & _FLG_BLOCK_CHECKSUM else 0
