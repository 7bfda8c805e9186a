"""Checks the batches of a segment while it is copied or read back."""

from __future__ import annotations

import zlib

from ....protocol.batch_header import ATTRIBUTES_POSITION, BATCH_HEADER
from ....protocol.checksum import crc32c
from ....protocol.errors import ProtocolError
from ....protocol.record import MAGIC_POSITION, MIN_ENTRY_HEADER_SIZE, entry_size

_header = BATCH_HEADER.reader("base_offset", "crc", "last_offset_delta")


class BatchCheck:
    """A check of lengths, CRCs and increasing offsets, which receives a segment in pieces of any size.

    The first piece begins at the start of a batch. The check stops at the first damage. It has one batch and one piece
    in memory.
    """

    def __init__(self, next_offset: int, size: int, position: int = 0) -> None:
        """Begin at byte `position` of a segment of `size` bytes, at a batch with offset `next_offset` or higher."""
        self.damage: str | None = None
        """The position of the first damaged batch, and the reason."""
        self.next_offset = next_offset
        """The offset after the last batch."""
        self._size = size
        self._position = position
        self._rest = b""

    def feed(self, piece: bytes) -> None:
        """Check the batches that end in this piece."""
        if self.damage is not None:
            return
        data = self._rest + piece if self._rest else piece
        view, at, end = memoryview(data), 0, len(data)
        try:
            while end - at >= MIN_ENTRY_HEADER_SIZE:
                size = entry_size(data, at)
                if self._position + size > self._size:
                    raise ProtocolError(f"its size of {size} bytes exceeds the rest of the segment")
                if at + size > end:
                    break
                self._check(view[at : at + size])
                at += size
                self._position += size
        except ProtocolError as error:
            self.damage = f"the batch at position {self._position} is damaged: {error}"
        self._rest = data[at:]

    def finish(self) -> None:
        """End the segment: the last batch must be complete."""
        if self.damage is None and self._position != self._size:
            self.damage = f"the batch at position {self._position} is cut off"

    def _check(self, batch: memoryview) -> None:
        """Check one batch. Raises ProtocolError."""
        if batch[MAGIC_POSITION] == 2:
            base_offset, stated, delta = _header(batch, 0)
            last_offset, crc = base_offset + delta, crc32c(batch[ATTRIBUTES_POSITION:])
        else:
            base_offset = last_offset = int.from_bytes(batch[:8], "big")
            stated, crc = int.from_bytes(batch[12:16], "big"), zlib.crc32(batch[MAGIC_POSITION:])
            base_offset = max(base_offset, self.next_offset)  # a compressed message has the offset of its last record
        if crc != stated:
            raise ProtocolError(f"CRC {crc:#010x} instead of {stated:#010x}")
        if base_offset < self.next_offset or last_offset < base_offset:
            raise ProtocolError(f"offsets {base_offset} to {last_offset} after offset {self.next_offset - 1}")
        self.next_offset = last_offset + 1
