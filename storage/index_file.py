"""The common part of the offset index and the time index: a file of fixed-width, sorted, big-endian entries.

Layout: entries one after the other, nothing else. Written by: the log that owns the segment. A crash can leave: fewer
entries than were appended, or a torn last one; nothing is checksummed, since after an unclean stop the indexes of every
segment that may not have been flushed are rebuilt from the log.

Entries are written with `pwrite` in groups: the newest ones wait in memory, where lookups near the end of the log
find them without a system call. Older ones are read with `pread`, a block at a time, and the newest block is kept. The
file is never mapped: a store to a mapping on a full disk, and a load from a mapping of a file that became shorter, are
a SIGBUS, which Python cannot survive. The file therefore needs no preallocation: it always has exactly the size of its
entries, as Kafka leaves it when a segment is rolled or closed.
"""

from abc import ABC, abstractmethod
from array import array
from typing import ClassVar

from .errors import CorruptIndexError
from .filesystem import File, FileSystem, write_all

PENDING_BYTES_MAX = 4096
"""Entries that wait in memory before they are written: at 4 KiB between entries, some MiB of log per write."""
BLOCK_BYTES = 4080
"""The size of one read of the file: whole entries of either index, 8 and 12 bytes, and less than a page."""


class IndexFile(ABC):
    """Entries of `ENTRY_SIZE` bytes, appended in order, looked up by binary search, cut from the end.

    Invariant: the first `_written` of its `entries` are in the file, the others in `_pending`, and `_block` holds some
    of the written ones, from the byte `_block_start` of the file on.
    """

    __slots__ = (
        "_block",
        "_block_firsts",
        "_block_start",
        "_file",
        "_fs",
        "_has_content",
        "_pending",
        "_torn_bytes",
        "_written",
        "base_offset",
        "entries",
        "full_at",
        "max_entries",
        "path",
    )

    ENTRY_SIZE: ClassVar[int]
    RESERVED: ClassVar[int] = 0
    """Slots that are kept for the end."""

    def __init__(self, path: str, base_offset: int, max_index_size: int, fs: FileSystem) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_index_size // self.ENTRY_SIZE
        self.full_at = self.max_entries - self.RESERVED
        """The index is full with this number of entries."""
        self._fs = fs
        self._file: File | None = None
        self._block = b""
        self._block_firsts = array("q")
        """The first entries of the blocks that a search has met, else -1: 4 KB for a GiB of log."""
        self._block_start = 0
        self._pending = bytearray()
        # One call of the file system: a start may load the indexes of ten thousand segments.
        try:
            size, self._has_content = fs.size(path), True
        except FileNotFoundError:
            size, self._has_content = 0, False
        self.entries = self._written = size // self.ENTRY_SIZE
        self._torn_bytes = size % self.ENTRY_SIZE
        """The bytes after the last whole entry of the opened file."""
        self._load_last_entry()

    @abstractmethod
    def _load_last_entry(self) -> None:
        """Refresh the subclass's copy of the last entry, after loading and after a truncation."""

    @property
    def size_in_bytes(self) -> int:
        """Bytes of valid entries, whether written yet or not."""
        return self.entries * self.ENTRY_SIZE

    @property
    def is_full(self) -> bool:
        return self.entries >= self.full_at

    def sanity_check(self) -> None:
        """Raise `CorruptIndexError` if the file that was opened cannot be an index of this segment."""
        if self._torn_bytes:
            size = self._written * self.ENTRY_SIZE + self._torn_bytes
            raise CorruptIndexError(f"{self.path}: {size} bytes are not a multiple of {self.ENTRY_SIZE}")

    def truncate(self) -> None:
        """Remove every entry."""
        self._truncate_to_entries(0)

    def trim_to_valid_size(self) -> None:
        """Write the waiting entries and cut the file to exactly the entries; it exists afterwards, even if empty."""
        file = self._open()
        if self._pending:
            end = self._written * self.ENTRY_SIZE
            try:
                write_all(file, self._pending, end)
            except OSError:
                file.truncate(end)  # entries that are cut before the next attempt must not be found there
                raise
            self._has_content = True
            self._written = self.entries
            self._pending = bytearray()

    def write_if_many_wait(self) -> None:
        """Write the waiting entries once they fill a page. Raises OSError; nothing is lost then."""
        if len(self._pending) >= PENDING_BYTES_MAX:
            self.trim_to_valid_size()

    def unsynced_file(self) -> File | None:
        """Return the open file, with every entry written, for a sync; None if nothing was ever written.

        A new, empty file need not be durable: a missing file has the same meaning.
        """
        self.trim_to_valid_size()
        return self._open() if self._has_content else None

    def flush(self) -> None:
        """Write the waiting entries and sync the file."""
        file = self.unsynced_file()
        if file is not None:
            file.fsync()

    def close_handle(self) -> None:
        """Give the descriptor back; the next use opens the file again."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._forget_blocks()

    def _open(self) -> File:
        if self._file is None:
            self._file = self._fs.open(self.path, create=True)
        return self._file

    def _last_entries(self, count: int) -> bytes:
        """Return the bytes of the last `count` entries, or of all if there are fewer."""
        size = count * self.ENTRY_SIZE
        if len(self._pending) >= size or not self._written:
            return bytes(self._pending[-size:])
        end = self._written * self.ENTRY_SIZE
        first = max(end + len(self._pending) - size, 0)
        return self._read(end - first, first) + self._pending

    def _read(self, length: int, position: int) -> bytes:
        """Exactly these bytes of the file. Raises OSError, `CorruptIndexError` if the file became shorter."""
        data = self._open().pread(length, position)
        if len(data) < length:
            raise CorruptIndexError(f"{self.path}: ends at {position + len(data)}, before its {self._written} entries")
        return data

    def _locate(self, slot: int) -> tuple[bytes | bytearray, int]:
        """Return a buffer holding entry `slot`, and the entry's position in it. Raises as `_read`."""
        if slot >= self._written:
            return self._pending, (slot - self._written) * self.ENTRY_SIZE
        position = slot * self.ENTRY_SIZE
        if not 0 <= position - self._block_start < len(self._block):
            start = position - position % BLOCK_BYTES
            self._block = self._read(min(BLOCK_BYTES, self._written * self.ENTRY_SIZE - start), start)
            self._block_start = start
        return self._block, position - self._block_start

    def _forget_blocks(self) -> None:
        """Drop the cached blocks of the file, which is about to change or may be replaced."""
        self._block = b""
        del self._block_firsts[:]

    def _truncate_to_entries(self, entries: int) -> None:
        if entries >= self.entries:
            return
        if entries >= self._written:
            del self._pending[(entries - self._written) * self.ENTRY_SIZE :]
        else:
            self._forget_blocks()
            self._open().truncate(entries * self.ENTRY_SIZE)
            self._torn_bytes = 0
            self._pending = bytearray()
            self._written = entries
        self.entries = entries
        self._load_last_entry()
