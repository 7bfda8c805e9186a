"""What the offset index and the time index share: a file of fixed-width, sorted, big-endian entries of one segment.

Layout: entries one after the other, nothing else. Written by: the log that owns the segment. A crash can leave: fewer
entries than were appended, or a torn last one; nothing is checksummed, since after an unclean stop the indexes of every
segment that may not have been flushed are rebuilt from the log.

Entries are written with `pwrite` in groups: the newest ones wait in memory, where lookups near the end of the log
find them without a system call. Older ones are read through a mapping. A store through a mapping is never made, as it
is a SIGBUS on a full disk, which Python cannot survive. The file therefore needs no preallocation: it always has
exactly the size of its entries, as Kafka leaves it when a segment is rolled or closed.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from .errors import CorruptIndexError
from .filesystem import File, FileSystem, write_all

PENDING_BYTES_MAX = 4096
"""Entries that wait in memory before they are written: at 4 KiB between entries, some MiB of log a write."""


class IndexFile(ABC):
    """Entries of `ENTRY_SIZE` bytes, appended in order, looked up by binary search, cut from the end.

    Invariant: the first `_written` of its `entries` are in the file, the others in `_pending`, and `_mapping` shows a
    prefix of the written ones (it is dropped before the file shrinks, as reading beyond the end through it would be
    fatal).
    """

    __slots__ = (
        "_file",
        "_fs",
        "_has_content",
        "_mapping",
        "_pending",
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
        """With so many entries it takes no more."""
        self._fs = fs
        self._file: File | None = None
        self._mapping: memoryview | bytes = b""
        self._pending = bytearray()
        self._has_content = fs.exists(path)
        size = fs.size(path) if self._has_content else 0
        self.entries = self._written = size // self.ENTRY_SIZE
        self._load_last_entry()

    @abstractmethod
    def _load_last_entry(self) -> None:
        """Refresh what the subclass remembers of the last entry, after loading and after a cut."""

    @property
    def size_in_bytes(self) -> int:
        """Bytes of valid entries, whether written yet or not."""
        return self.entries * self.ENTRY_SIZE

    @property
    def is_full(self) -> bool:
        return self.entries >= self.full_at

    def sanity_check(self) -> None:
        """Raises `CorruptIndexError` if the file cannot be an index of this segment."""
        size = self._fs.size(self.path) if self._fs.exists(self.path) else 0
        if size % self.ENTRY_SIZE:
            raise CorruptIndexError(f"{self.path}: {size} bytes are no multiple of {self.ENTRY_SIZE}")

    def truncate(self) -> None:
        """Remove every entry."""
        self._truncate_to_entries(0)

    def trim_to_valid_size(self) -> None:
        """Write what still waits, so that the file holds exactly the entries; it exists afterwards, even if empty."""
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
        """The open file, with every entry written, for somebody to sync; None if nothing was ever written.

        A new, empty file need not last: a missing one says the same.
        """
        self.trim_to_valid_size()
        return self._open() if self._has_content else None

    def flush(self) -> None:
        """Write what still waits and make it durable."""
        file = self.unsynced_file()
        if file is not None:
            file.fsync()

    def close_handle(self) -> None:
        """Give the descriptor back; the next use opens the file again."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._mapping = b""

    def _open(self) -> File:
        if self._file is None:
            self._file = self._fs.open(self.path, create=True)
        return self._file

    def _last_entries(self, count: int) -> bytes:
        """The bytes of the last `count` entries, or of all if there are fewer."""
        size = count * self.ENTRY_SIZE
        if len(self._pending) >= size or not self._written:
            return bytes(self._pending[-size:])
        first = max(self._written * self.ENTRY_SIZE + len(self._pending) - size, 0)
        return self._open().pread(self._written * self.ENTRY_SIZE - first, first) + self._pending

    def _locate(self, slot: int) -> tuple[memoryview | bytes | bytearray, int]:
        """A buffer holding entry `slot`, and the entry's position in it."""
        if slot >= self._written:
            return self._pending, (slot - self._written) * self.ENTRY_SIZE
        position = slot * self.ENTRY_SIZE
        if position >= len(self._mapping):
            self._mapping = self._open().mmap_read(self._written * self.ENTRY_SIZE)
        return self._mapping, position

    def _truncate_to_entries(self, entries: int) -> None:
        if entries >= self.entries:
            return
        if entries >= self._written:
            del self._pending[(entries - self._written) * self.ENTRY_SIZE :]
        else:
            self._mapping = b""
            self._open().truncate(entries * self.ENTRY_SIZE)
            self._pending = bytearray()
            self._written = entries
        self.entries = entries
        self._load_last_entry()
