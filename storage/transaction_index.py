"""The transaction index of a segment: the aborted transactions whose markers are in the segment."""

from typing import NamedTuple
from zlib import crc32

from ..protocol.file_layouts import TRANSACTION_INDEX_ENTRY, TRANSACTION_INDEX_VERSION
from .errors import FILE_ERRORS, CorruptIndexError
from .filesystem import File, FileSystem, write_all
from .partition_files import clear_name

_ENTRY = TRANSACTION_INDEX_ENTRY.struct


class AbortedTxn(NamedTuple):
    """An aborted transaction; `last_offset` is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """The last stable offset when the marker was appended: no transaction that ends later can reach below it."""


class IndexChecksum(NamedTuple):
    """The content of a segment's transaction index at a clean stop, and the size of the segment's `.log` file.

    A segment of another size was written to since then, by Apache Kafka for example, so its checksum is void.
    """

    log_size: int
    entries: int
    crc: int
    """CRC-32 of the file."""


class TransactionIndex:
    """`<base offset>.txnindex`: Kafka's TransactionIndex. The file exists only once there is an aborted transaction.

    Layout: `TransactionIndexEntry`, ascending by last offset. Written by: the log, when the segment is rolled, flushed
    or closed; aborts are rare, so the entries remain in memory as well. A crash can leave missing or torn last entries;
    after an unclean stop the file is rebuilt from the markers.
    """

    __slots__ = ("_entries", "_file", "_fs", "_is_unsynced", "_may_be_longer", "_written", "base_offset", "path")

    def __init__(self, path: str, base_offset: int, fs: FileSystem) -> None:
        self.path = path
        self.base_offset = base_offset
        self._fs = fs
        self._file: File | None = None
        self._entries: list[AbortedTxn] | None = None
        self._written = 0
        self._may_be_longer = False
        self._is_unsynced = False

    @property
    def entries(self) -> list[AbortedTxn]:
        """All aborted transactions, ascending by last offset. Raises `CorruptIndexError`."""
        if self._entries is None:
            self._entries = self._load()
        return self._entries

    def append(self, aborted: AbortedTxn) -> None:
        """Add an entry; its last offset must be above the last one's. Raises `CorruptIndexError` if it is not."""
        entries = self.entries
        if entries and entries[-1].last_offset >= aborted.last_offset:
            raise CorruptIndexError(f"{self.path}: {aborted} after {entries[-1]}")
        entries.append(aborted)

    def collect_aborted(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
        """Return aborted transactions that overlap [fetch_offset, upper_bound), and whether the search is complete."""
        found = []
        for aborted in self.entries:
            if aborted.last_offset >= fetch_offset and aborted.first_offset < upper_bound:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions whose marker is at or above `offset`."""
        kept = [aborted for aborted in self.entries if aborted.last_offset < offset]
        if len(kept) < len(self.entries):
            if len(kept) < self._written:
                self._is_unsynced = True
                self._open().truncate(len(kept) * _ENTRY.size)
                self._written = len(kept)
            self._entries = kept

    def reset(self) -> None:
        """Drop all entries, readable or not, so that they can be added again.

        The file is overwritten and never emptied: a crash in between leaves the durable entries unchanged.
        """
        self._entries = []
        self._written = 0
        self._may_be_longer = True

    def replace(self, entries: list[AbortedTxn]) -> None:
        """Replace the content of the file with these entries; not yet durable. Raises OSError."""
        if not entries and self._fs.exists(self.path):
            # A file without entries may have lost some, so each start would read the segment for them.
            self.close_handle()
            clear_name(self._fs, self.path)
        self.reset()
        self._entries = entries
        self.write()

    def sanity_check(self, end_offset: int) -> None:
        """Raise OSError, and `CorruptIndexError` if the file is not an index of a segment that ends at an offset."""
        for aborted in self.entries:
            if not self.base_offset <= aborted.last_offset < end_offset:
                raise CorruptIndexError(f"{self.path}: {aborted} is not in the segment, which ends at {end_offset}")
            if not 0 <= aborted.first_offset < aborted.last_offset:
                raise CorruptIndexError(f"{self.path}: {aborted} ends before it begins")
            if aborted.last_stable_offset > aborted.last_offset + 1:
                raise CorruptIndexError(f"{self.path}: {aborted} has a last stable offset beyond its marker")
        if not self.entries:
            raise CorruptIndexError(f"{self.path} is empty")

    def checksum(self, log_size: int) -> IndexChecksum | None:
        """Return the checksum of the entries in memory, next to a log of `log_size` bytes; None if there are none.

        A start loads every index that exists, and new entries are added in memory.
        """
        if not self._entries:
            return None
        content = b"".join(_ENTRY.pack(TRANSACTION_INDEX_VERSION, *aborted) for aborted in self._entries)
        return IndexChecksum(log_size, len(self._entries), crc32(content))

    def check(self, expected: IndexChecksum) -> None:
        """Raise OSError, and `CorruptIndexError` if the file has other entries than at the last clean stop."""
        found = len(self.entries)
        if self.checksum(expected.log_size) != expected:
            raise CorruptIndexError(
                f"{self.path}: its {found} entries are not the {expected.entries} entries of the last clean stop"
            )

    @property
    def has_news(self) -> bool:
        """Return whether there are entries that the file lacks, or that have not been handed out for a sync."""
        return self._is_unsynced or self._may_be_longer or len(self._entries or ()) > self._written

    def write(self) -> None:
        """Bring the file up to the entries, if there are any. Raises OSError; nothing is lost then."""
        entries = self._entries
        if entries is not None and len(entries) > self._written:
            waiting = b"".join(_ENTRY.pack(TRANSACTION_INDEX_VERSION, *aborted) for aborted in entries[self._written :])
            self._is_unsynced = True
            try:
                write_all(self._open(), waiting, self._written * _ENTRY.size)
            except OSError:
                self._may_be_longer = True  # by entries that may be cut before the next attempt
                raise
            self._written = len(entries)
        if self._may_be_longer and (self._file is not None or self._fs.exists(self.path)):
            file = self._open()
            if file.size() > self._written * _ENTRY.size:
                self._is_unsynced = True
                file.truncate(self._written * _ENTRY.size)
        self._may_be_longer = False

    def unsynced_file(self) -> File | None:
        """Return the open file, with every entry written, for a sync; None if there is none."""
        self.write()
        file = self._open() if self._file is not None or self._fs.exists(self.path) else None
        self._is_unsynced = False
        return file

    def close_handle(self) -> None:
        """Give the descriptor back; the next use opens the file again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> File:
        if self._file is None:
            try:
                self._file = self._fs.open(self.path, create=True)
            except OSError as error:
                if error.errno not in FILE_ERRORS or self._written or not self._fs.exists(self.path):
                    raise
                # A directory, or another user's file. All entries are in memory, so a new file can replace it.
                clear_name(self._fs, self.path)
                self._file = self._fs.open(self.path, create=True)
        return self._file

    def _load(self) -> list[AbortedTxn]:
        try:
            data = self._fs.read_bytes(self.path) if self._fs.exists(self.path) else b""
        except OSError as error:
            if error.errno not in FILE_ERRORS:
                raise
            raise CorruptIndexError(f"{self.path}: {error.strerror}") from error
        if len(data) % _ENTRY.size:
            raise CorruptIndexError(f"{self.path}: {len(data)} bytes are not a multiple of {_ENTRY.size}")
        entries: list[AbortedTxn] = []
        for version, *values in _ENTRY.iter_unpack(data):
            aborted = AbortedTxn(*values)
            if version != TRANSACTION_INDEX_VERSION or (entries and entries[-1].last_offset >= aborted.last_offset):
                raise CorruptIndexError(f"{self.path}: {aborted}, version {version}, is out of order or unknown")
            entries.append(aborted)
        self._written = len(entries)
        return entries
