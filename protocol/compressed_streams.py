"""Streaming decompressors run over one member or frame after another, never giving back more than is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .errors import ProtocolError

# RFC 1952 and RFC 8878 allow several members or frames. Nobody sends more than a few; each costs a copy of the rest.
_MAX_FRAMES = 16
_STEP = 4 * 1024 * 1024
"""Output at a time: the decompressors hold what they give back twice for a moment."""


def decompress_frames(
    new_decompressor: Callable[[], Any], data: memoryview, max_size: int
) -> bytes | memoryview | None:
    """What the members or frames of `data` hold together, by decompressors of the standard library's kind.

    None if that is more than `max_size` bytes. Raises ProtocolError for what ends too early, and what they raise.
    """
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
