"""Files of producer snapshots as tests write them."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.protocol.checksum import crc32c
from barnabas.protocol.file_layouts import (
    SnapshotEntry,
    begin_snapshot_crc,
    encode_snapshot_header,
    pack_snapshot_entry,
)


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """Encode a `.snapshot` file: the header, then the entries."""
    packed = [pack_snapshot_entry(*entry) for entry in entries]
    data = b"".join(packed)
    return encode_snapshot_header(crc32c(data, begin_snapshot_crc(len(packed))), len(packed)) + data
