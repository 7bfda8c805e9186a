"""Snapshots of `__cluster_metadata` (KIP-630): files `<end offset>-<epoch>.checkpoint` next to the segments of its log.

Layout: record batches of format v2, whose first record is a SnapshotHeader and whose last record is a SnapshotFooter
(control records). The file replaces all records below its end offset. It is written under a temporary name
(`….checkpoint.part`), synced, renamed, and never changed; a temporary file that a crash leaves is removed, and so is
a snapshot that Kafka has marked as deleted.
"""

import re
from typing import NamedTuple

from .filesystem import FileSystem, write_all

CHECKPOINT_SUFFIX = ".checkpoint"
PARTIAL_SUFFIX = ".checkpoint.part"
DELETED_SUFFIX = ".checkpoint.deleted"
"""Kafka renames a snapshot some time before it removes it."""
_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint", re.ASCII)


class OffsetAndEpoch(NamedTuple):
    """An end offset (exclusive), and the leader epoch of the record before it. It identifies a snapshot."""

    offset: int
    epoch: int


def age_of(snapshot_id: OffsetAndEpoch) -> tuple[int, int]:
    """Return the sort key that orders snapshots from the oldest to the newest: by epoch, then by offset."""
    return snapshot_id.epoch, snapshot_id.offset


def snapshot_file_name(snapshot_id: OffsetAndEpoch, suffix: str = CHECKPOINT_SUFFIX) -> str:
    """Return the name of the file of a snapshot."""
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}{suffix}"


def find_snapshots(fs: FileSystem, directory: str) -> list[OffsetAndEpoch]:
    """Return the complete snapshots in a directory, oldest first; remove the other ones. Raises OSError."""
    found = []
    for name in fs.list_dir(directory):
        match = _NAME.fullmatch(name)
        if match is not None:
            found.append(OffsetAndEpoch(int(match[1]), int(match[2])))
        elif name.endswith((PARTIAL_SUFFIX, DELETED_SUFFIX)):
            fs.unlink(f"{directory}/{name}")
    return sorted(found, key=age_of)


class FileRawSnapshotWriter:
    """Writes one snapshot from its first byte to its last one. All methods raise OSError. Used by one thread."""

    def __init__(self, fs: FileSystem, directory: str, snapshot_id: OffsetAndEpoch) -> None:
        """Create the temporary file."""
        self.snapshot_id = snapshot_id
        self.size = 0
        self._fs = fs
        self._directory = directory
        self._partial = f"{directory}/{snapshot_file_name(snapshot_id, PARTIAL_SUFFIX)}"
        self._file = fs.open(self._partial, create=True)
        self._file.truncate(0)

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write the next bytes, which need not end with a batch."""
        write_all(self._file, data, self.size)
        self.size += len(data)

    def freeze(self) -> None:
        """Make the content durable and give the file its final name."""
        self._file.fsync()
        self._file.close()
        self._fs.rename(self._partial, f"{self._directory}/{snapshot_file_name(self.snapshot_id)}")
        self._fs.fsync_dir(self._directory)

    def abort(self) -> None:
        """Remove the temporary file of a snapshot that will not be completed."""
        self._file.close()
        self._fs.unlink(self._partial)
