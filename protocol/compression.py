"""The codecs of record batches: gzip, snappy, LZ4 and zstd, never giving back more than the caller allows.

Decompression is bounded while it runs: a small batch that would expand to gigabytes costs `max_size` bytes of output
and some megabytes, and the time to produce them. `decompress`, and snappy, need twice the memory for a moment.
Where a codec's library cannot be loaded now, as no file can be opened, all raise OSError EMFILE; the next time may do.
"""

from __future__ import annotations

from enum import IntEnum
from errno import EMFILE
from functools import cache
from importlib import import_module
from typing import Protocol, cast

from .decompression_room import Room, give_back, take_room
from .errors import ErrorCode, KafkaError, ProtocolError

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


class CodecModule(Protocol):
    """A module that knows one codec."""

    def compress(self, data: memoryview, level: int | None, magic: int, /) -> bytes:
        """`data` compressed; `level` None is Kafka's default."""
        ...

    def decompress(self, data: memoryview, room: Room, max_size: int, magic: int, /) -> bytes | memoryview | None:
        """What `data` holds, until `room` is used again; None if it is more than `max_size`. Raises ProtocolError."""
        ...


_MODULES = {
    Compression.GZIP: ".gzip_members",
    Compression.SNAPPY: ".snappy_framing",
    Compression.LZ4: ".lz4_frame",
    Compression.ZSTD: ".zstd_frame",
}


@cache
def _module(codec: int) -> CodecModule:
    """Loaded with the first batch of its kind: the libraries take megabytes, and most brokers see one codec or two."""
    try:
        name = _MODULES[Compression(codec)]
    except (KeyError, ValueError):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec}") from None
    try:
        return cast(CodecModule, import_module(name, __package__))
    except ModuleNotFoundError:
        raise
    except (ImportError, OSError) as error:
        # The linker's failures have no number. Nothing of the module stays, and the next batch has it loaded anew.
        raise OSError(EMFILE, f"the library of codec {codec} cannot be loaded: {error}") from error


def compress(codec: int, data: bytes | bytearray | memoryview, *, level: int | None = None, magic: int = 2) -> bytes:
    """`data` as a Kafka producer would send it with this codec.

    `level` is Kafka's `compression.<codec>.level`, None its default; snappy has none. `magic` 0 asks for LZ4 with the
    header checksum of message format v0.
    """
    view = memoryview(data)
    if codec == Compression.NONE:
        return bytes(view)
    return _module(codec).compress(view, level, magic)


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
        plain = _module(codec).decompress(view, room, max_size, magic) if codec else bytes(view)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"cannot decompress records: {error}") from error
    if plain is None or len(plain) > max_size:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"records decompress to more than {max_size} bytes")
    return plain
