"""The transaction index of a segment: the aborted transactions whose markers lie in it."""

from typing import NamedTuple

from ..protocol.file_layouts import TRANSACTION_INDEX_ENTRY, TRANSACTION_INDEX_VERSION
from .errors import CorruptIndexError
from .filesystem import File, FileSystem, write_all

_ENTRY = TRANSACTION_INDEX_ENTRY.struct


class AbortedTxn(NamedTuple):
    """An aborted transaction; `last_offset` is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """The last stable offset when the marker was appended: no transaction that ends later can reach below it."""


class TransactionIndex:
    """`<base offset>.txnindex`: Kafka's TransactionIndex. The file exists only once there is an aborted transaction.

    Layout: `TransactionIndexEntry`, ascending by last offset. Written by: the log, when the segment is rolled, flushed
    or closed; aborts are rare, so the entries stay in memory as well. A crash can leave: missing or torn last entries;
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
        """The aborted transactions that overlap [fetch_offset, upper_bound), and whether no later one can."""
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
        """Forget everything, readable or not, to be told it again.

        The file is written over and never emptied: a crash in between leaves what was durable as it was.
        """
        self._entries = []
        self._written = 0
        self._may_be_longer = True

    def sanity_check(self) -> None:
        """Raises `CorruptIndexError` if the file is no transaction index of this segment."""
        for aborted in self.entries:
            if aborted.last_offset < self.base_offset:
                raise CorruptIndexError(f"{self.path}: {aborted} ends below the segment")

    @property
    def has_news(self) -> bool:
        """Whether there are entries that the file lacks, or that nobody has been asked to sync."""
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
        """The open file, with every entry written, for somebody to sync; None if there is none."""
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
            self._file = self._fs.open(self.path, create=True)
        return self._file

    def _load(self) -> list[AbortedTxn]:
        data = self._fs.read_bytes(self.path) if self._fs.exists(self.path) else b""
        if len(data) % _ENTRY.size:
            raise CorruptIndexError(f"{self.path}: {len(data)} bytes are no multiple of {_ENTRY.size}")
        entries: list[AbortedTxn] = []
        for version, *values in _ENTRY.iter_unpack(data):
            aborted = AbortedTxn(*values)
            if version != TRANSACTION_INDEX_VERSION or (entries and entries[-1].last_offset >= aborted.last_offset):
                raise CorruptIndexError(f"{self.path}: {aborted}, version {version}, is out of order or unknown")
            entries.append(aborted)
        self._written = len(entries)
        return entries
