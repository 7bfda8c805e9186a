"""Streaming decompressors for one member or frame after another, with a limit of their output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .errors import ProtocolError

# RFC 1952 and RFC 8878 allow several members or frames. Clients send a few at most; each costs a copy of the rest.
MAX_FRAMES = 16
_STEP = 4 * 1024 * 1024
"""Bytes per output: the decompressors hold their output twice for a moment."""


def decompress_frames(
    new_decompressor: Callable[[], Any], data: memoryview, max_size: int
) -> bytes | memoryview | None:
    """Decompress all members or frames of `data`, with decompressors of the standard library's interface.

    None beyond `max_size` bytes. Raises ProtocolError for truncated data, and the decompressors' exceptions.
    """
    whole = bytearray()
    rest: bytes | memoryview = data
    for _ in range(MAX_FRAMES):
        decompressor = new_decompressor()
        while not decompressor.eof:
            # One byte more than allowed distinguishes "exactly full" from "there is more".
            wanted = min(max_size + 1, _STEP)
            part = decompressor.decompress(rest, wanted)
            if len(part) > max_size:
                return None
            if len(part) < wanted and not decompressor.eof:
                raise ProtocolError("compressed data is truncated")
            max_size -= len(part)
            # zlib returns its unused input; zstd keeps it.
            rest = getattr(decompressor, "unconsumed_tail", b"")
            if not whole and decompressor.eof and not decompressor.unused_data:
                only_part: bytes = part
                return only_part
            whole += part
        rest = decompressor.unused_data
        if not rest:
            return memoryview(whole)
    raise ProtocolError(f"more than {MAX_FRAMES} compressed frames in one batch")
