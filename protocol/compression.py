"""The codecs of record batches: gzip, snappy, LZ4 and zstd, never giving back more than the caller allows.

Decompression is bounded while it runs: a small batch that would expand to gigabytes costs `max_size` bytes of output
and some megabytes, and the time to produce them. `decompress`, and snappy, need twice the memory for a moment.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import cramjam

from .decompression_room import Room, give_back, take_room
from .errors import ErrorCode, KafkaError, ProtocolError
from .lz4_frame import compress_lz4, decompress_lz4
from .snappy_framing import compress_xerial, decompress_snappy
from .zstd_frame import open_zstd_frame

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = [
    "CODEC_BY_CONFIG_NAME",
    "Compression",
    "Room",
    "compress",
    "decompress",
    "give_back",
    "look_into",
    "take_room",
]


class Compression(IntEnum):
    """The codec id in the lowest three attribute bits of a batch or a v0/v1 message."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def config_name(self) -> str:
        """The value of `compression.type` that stands for this codec."""
        return "uncompressed" if self is Compression.NONE else self.name.lower()


CODEC_BY_CONFIG_NAME = {codec.config_name: codec for codec in Compression} | {"none": Compression.NONE}
_GZIP_WINDOW_BITS = 31  # the gzip container of RFC 1952
_LZ4_FAST_LEVEL = 9  # Kafka's default level, at which it takes the fast compressor instead of the high one
_LZ4_MAX_LEVEL = 12
_ZSTD_MODEST_LEVEL = 6
_ZSTD_TABLE_SIZE = 1024 * 1024
_ZSTD_TABLES: dict[int, int] = {
    zstd.CompressionParameter.window_log: 21,
    zstd.CompressionParameter.chain_log: 20,
    zstd.CompressionParameter.hash_log: 20,
}
"""Ten megabytes; the highest level would take six hundred for a batch of twenty, and gain little."""
# RFC 1952 and RFC 8878 allow several members or frames. Nobody sends more than a few; each costs a copy of the rest.
_MAX_FRAMES = 16
_STEP = 4 * 1024 * 1024
"""Output at a time: the decompressors hold what they give back twice for a moment."""


def compress(codec: int, data: bytes | bytearray | memoryview, *, level: int | None = None, magic: int = 2) -> bytes:
    """`data` as a Kafka producer would send it with this codec.

    `level` is Kafka's `compression.<codec>.level`, None its default; snappy has none. `magic` 0 asks for LZ4 with the
    header checksum of message format v0.
    """
    view = memoryview(data)
    if codec == Compression.NONE:
        return bytes(view)
    if codec == Compression.GZIP:
        return zlib.compress(view, -1 if level is None else level, _GZIP_WINDOW_BITS)
    if codec == Compression.SNAPPY:
        return compress_xerial(view)
    if codec == Compression.LZ4:
        high_level = None if level in (None, _LZ4_FAST_LEVEL) else min(level, _LZ4_MAX_LEVEL)
        return compress_lz4(view, level=high_level, magic=magic)
    if codec == Compression.ZSTD:
        packed: bytes = zstd.compress(view, options=_zstd_options(len(view), level))
        return packed
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec}")


def _zstd_options(size: int, level: int | None) -> dict[int, int]:
    """The level's options, with tables no larger than those for a megabyte of data."""
    if level is None:
        return {}
    options: dict[int, int] = {zstd.CompressionParameter.compression_level: level}
    if level > _ZSTD_MODEST_LEVEL and size > _ZSTD_TABLE_SIZE:
        options |= _ZSTD_TABLES
    return options


def decompress(codec: int, data: bytes | bytearray | memoryview, *, max_size: int, magic: int = 2) -> bytes:
    """The bytes behind `data`; at most `max_size` of them. Raises KafkaError as `look_into`."""
    room = take_room()
    try:
        return bytes(look_into(codec, data, room, max_size=max_size, magic=magic))
    finally:
        give_back(room)


def look_into(
    codec: int, data: bytes | bytearray | memoryview, room: Room, *, max_size: int, magic: int = 2
) -> bytes | memoryview:
    """What `decompress` returns, until `room` is used for something else or given back.

    Raises KafkaError: CORRUPT_MESSAGE for bytes that this codec cannot have written, MESSAGE_TOO_LARGE for more than
    `max_size` bytes, UNSUPPORTED_COMPRESSION_TYPE for an unknown codec.
    """
    view = memoryview(data)
    try:
        plain = _decompress(codec, view, room, max_size, magic)
    except (zlib.error, zstd.ZstdError, cramjam.DecompressionError, ProtocolError) as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"cannot decompress records: {error}") from error
    if plain is None or len(plain) > max_size:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"records decompress to more than {max_size} bytes")
    return plain


def _decompress(codec: int, data: memoryview, room: Room, max_size: int, magic: int) -> bytes | memoryview | None:
    if codec == Compression.NONE:
        return bytes(data)
    if codec == Compression.GZIP:
        return _decompress_frames(lambda: zlib.decompressobj(_GZIP_WINDOW_BITS), data, max_size)
    if codec == Compression.SNAPPY:
        return decompress_snappy(data, max_size)
    if codec == Compression.LZ4:
        return decompress_lz4(data, room, max_size, magic=magic)
    if codec == Compression.ZSTD:
        plain = open_zstd_frame(data, room, max_size)
        return _decompress_frames(zstd.ZstdDecompressor, data, max_size) if plain is None else plain
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec}")


def _decompress_frames(
    new_decompressor: Callable[[], Any], data: memoryview, max_size: int
) -> bytes | memoryview | None:
    """Run the stdlib's streaming decompressors over one member or frame after another; None for too much output."""
    whole = bytearray()
    rest: bytes | memoryview = data
    for _ in range(_MAX_FRAMES):
        decompressor = new_decompressor()
        while not decompressor.eof:
            # One byte more than allowed tells "exactly full" from "there is more".
            wanted = min(max_size + 1, _STEP)
            part = decompressor.decompress(rest, wanted)
            if len(part) > max_size:
                return None
            if len(part) < wanted and not decompressor.eof:
                raise ProtocolError("compressed data ends too early")
            max_size -= len(part)
            # zlib hands back what it has not looked at; zstd keeps it.
            rest = getattr(decompressor, "unconsumed_tail", b"")
            if not whole and decompressor.eof and not decompressor.unused_data:
                only_part: bytes = part
                return only_part
            whole += part
        rest = decompressor.unused_data
        if not rest:
            return memoryview(whole)
    raise ProtocolError(f"more than {_MAX_FRAMES} compressed frames in one batch")
