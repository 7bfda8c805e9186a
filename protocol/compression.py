"""The codecs of record batches: gzip, snappy, LZ4 and zstd, with a limit of their output.

The limit applies during decompression: a small batch that would expand to gigabytes costs `max_size` bytes of output
and some megabytes, and the time to produce them. `decompress`, and snappy, use twice the memory for a moment. If a
codec's library cannot be loaded, because no file can be opened, all raise OSError EMFILE; a later call may succeed.
"""

from __future__ import annotations

from enum import IntEnum
from errno import EMFILE
from functools import cache
from importlib import import_module
from typing import Protocol, cast

from .decompression_room import LongDecompressionError, Room, give_back, take_room
from .errors import ErrorCode, KafkaError, ProtocolError

__all__ = [
    "CODEC_BY_CONFIG_NAME",
    "Compression",
    "LongDecompressionError",
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
        """Return the value of `compression.type` for this codec."""
        return "uncompressed" if self is Compression.NONE else self.name.lower()


CODEC_BY_CONFIG_NAME = {codec.config_name: codec for codec in Compression} | {"none": Compression.NONE}


class CodecModule(Protocol):
    """The interface of a codec's module."""

    def compress(self, data: memoryview, level: int | None, magic: int, /) -> bytes:
        """Compress `data`; `level` None is Kafka's default."""
        ...

    def decompress(
        self, data: memoryview, room: Room, max_size: int, magic: int, /, *, at_once: bool = False
    ) -> bytes | memoryview | None:
        """Decompress `data` into memory of `room`, valid until its next use; None beyond `max_size`.

        Raises ProtocolError; with `at_once` LongDecompressionError for input that takes milliseconds.
        """
        ...


_MODULES = {
    Compression.GZIP: ".gzip_members",
    Compression.SNAPPY: ".snappy_framing",
    Compression.LZ4: ".lz4_frame",
    Compression.ZSTD: ".zstd_frame",
}


@cache
def _module(codec: int) -> CodecModule:
    """Import the module with the first batch of its codec: the libraries take megabytes, and most brokers use one codec
    or two.
    """
    try:
        name = _MODULES[Compression(codec)]
    except (KeyError, ValueError):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec}") from None
    try:
        return cast(CodecModule, import_module(name, __package__))
    except ModuleNotFoundError:
        raise
    except (ImportError, OSError) as error:
        # The linker's failures have no number. The failed import leaves nothing, and the next batch repeats it.
        raise OSError(EMFILE, f"the library of codec {codec} cannot be loaded: {error}") from error


def compress(codec: int, data: bytes | bytearray | memoryview, *, level: int | None = None, magic: int = 2) -> bytes:
    """Compress `data` as a Kafka producer does with this codec.

    `level` is Kafka's `compression.<codec>.level`, None its default; snappy has none. `magic` 0 selects LZ4 with the
    header checksum of message format v0.
    """
    view = memoryview(data)
    if codec == Compression.NONE:
        return bytes(view)
    return _module(codec).compress(view, level, magic)


def decompress(codec: int, data: bytes | bytearray | memoryview, *, max_size: int, magic: int = 2) -> bytes:
    """Decompress `data`, at most `max_size` bytes. Raises KafkaError as `look_into`."""
    room = take_room()
    try:
        return bytes(look_into(codec, data, room, max_size=max_size, magic=magic))
    finally:
        give_back(room)


def look_into(
    codec: int,
    data: bytes | bytearray | memoryview,
    room: Room,
    *,
    max_size: int,
    magic: int = 2,
    at_once: bool = False,
) -> bytes | memoryview:
    """Decompress without a copy; the result is valid until `room` is used again or returned.

    Raises KafkaError: CORRUPT_MESSAGE for invalid bytes, MESSAGE_TOO_LARGE for more than `max_size` bytes,
    UNSUPPORTED_COMPRESSION_TYPE for an unknown codec. With `at_once` also LongDecompressionError, for input that takes
    milliseconds.
    """
    view = memoryview(data)
    try:
        plain = _module(codec).decompress(view, room, max_size, magic, at_once=at_once) if codec else bytes(view)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"cannot decompress records: {error}") from error
    if plain is None or len(plain) > max_size:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"records decompress to more than {max_size} bytes")
    return plain
