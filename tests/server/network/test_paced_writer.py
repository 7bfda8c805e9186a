"""Pieces of answers over TLS: joined where they are small, cut where they are large."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from barnabas.server.network.output import PIECE_BYTES, PacedWriter
from barnabas.storage.filesystem import FileSlice


class Transport:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, piece: bytes | memoryview) -> None:
        self.pieces.append(bytes(piece))


def written(*parts: Any) -> list[bytes]:
    transport: Any = Transport()
    writer = PacedWriter(transport)
    writer.add(list(parts))
    while writer.unsent:
        writer.write()
    return list(transport.pieces)


def test_an_answer_and_its_head_are_written_at_once() -> None:
    assert written(b"head", b"", b"body") == [b"headbody"]


def test_a_large_answer_is_cut_wherever_its_parts_end(tmp_path: Path) -> None:
    stored, part = os.urandom(3 * PIECE_BYTES), os.urandom(PIECE_BYTES - 1)
    (tmp_path / "segment").write_bytes(stored)
    segment = os.open(tmp_path / "segment", os.O_RDONLY)
    pieces = written(b"head", part, FileSlice(segment, len(stored) - 5, 5), b"end")
    assert b"".join(pieces) == b"head" + part + stored[5:] + b"end"
    assert {len(piece) for piece in pieces[:-1]} == {PIECE_BYTES}
