"""The start offset of each leader epoch, which followers and consumers compare to find where two logs diverge."""

from bisect import bisect_right
from typing import NamedTuple

from ..common.room_logger import room_logger
from .checkpoint_file import MAX_INT32, MAX_INT64, parse_number, read_lines, write_lines
from .errors import FILE_ERRORS, CorruptCheckpointError
from .filesystem import FileSystem

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


logger = room_logger("storage")


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of the first record that its leader appended (or will append)."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """A leader epoch and the offset after the last record of it."""

    epoch: int
    end_offset: int


class LeaderEpochCache:
    """Kafka's LeaderEpochFileCache (KIP-101, KIP-279). Epochs and start offsets strictly increase.

    Layout of `leader-epoch-checkpoint`: text, `0`, number of entries, then `epoch startOffset` a line. Written by: the
    log, not when an epoch is assigned but with the next flush, which covers an entry before any record of its epoch
    counts as flushed. A crash can leave an older version: everything missing is in the headers of unflushed batches,
    which recovery reads, and entries beyond the log's end are cut when it is opened. A recovered small log gets the
    file with its next flush (`RecoveredFiles`).
    """

    __slots__ = ("_entries", "_fs", "is_dirty", "latest_epoch", "path")

    def __init__(self, path: str, fs: FileSystem, *, is_new: bool = False) -> None:
        """Load the file, unless the log `is_new`.

        A damaged or unreadable file counts as empty: the loader then reads the epochs from the log.
        """
        self.path = path
        self._fs = fs
        self.is_dirty = False
        """Whether the file is older than the cache."""
        self.latest_epoch = UNDEFINED_EPOCH
        self._entries: list[EpochEntry] = []
        try:
            for entry in () if is_new else self._load():
                self._append(entry)
        except CorruptCheckpointError as error:
            self._distrust(error)
        except OSError as error:
            if error.errno not in FILE_ERRORS:
                raise
            self._distrust(error)
        self._refresh()

    def _distrust(self, error: Exception) -> None:
        logger.warning("%s is treated as empty: %s", self.path, error)
        self._entries = []
        self.is_dirty = True

    def _load(self) -> list[EpochEntry]:
        entries: list[EpochEntry] = []
        for line in read_lines(self._fs, self.path):
            try:
                epoch, start_offset = line.split()
                entry = EpochEntry(parse_number(epoch, MAX_INT32), parse_number(start_offset, MAX_INT64))
            except ValueError as error:
                raise CorruptCheckpointError(f"{self.path}: no epoch and offset in {line!r}") from error
            if entries and (entry.epoch <= entries[-1].epoch or entry.start_offset <= entries[-1].start_offset):
                raise CorruptCheckpointError(f"{self.path}: {line!r} is out of order after {entries[-1]}")
            entries.append(entry)
        return entries

    @property
    def entries(self) -> list[EpochEntry]:
        return list(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` starts at `start_offset`; return whether that changes the cache.

        Entries that contradict it, of the same or a later epoch or offset, are removed. Epochs never fall, so this is
        logged unless the removed entry is an epoch without records.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}")
        latest = self._entries[-1] if self._entries else None
        if latest is not None and latest.epoch == epoch and start_offset >= latest.start_offset:
            return False
        entry = EpochEntry(epoch, start_offset)
        removed = self._append(entry)
        if any(one.start_offset != start_offset or one.epoch > epoch for one in removed):
            logger.warning("%s: %s removes the entries %s, which contradict it", self.path, entry, removed)
        self.is_dirty = True
        self._refresh()
        return True

    def _append(self, entry: EpochEntry) -> list[EpochEntry]:
        """Append an entry, and return the contradicting entries before it, which are removed."""
        entries, removed = self._entries, list[EpochEntry]()
        while entries and (entries[-1].epoch >= entry.epoch or entries[-1].start_offset >= entry.start_offset):
            removed.append(entries.pop())
        entries.append(entry)
        return removed

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> EpochEnd:
        """(largest epoch at or below the requested one, its end offset), or (-1, -1) if that is unknown."""
        entries = self._entries
        if requested_epoch == UNDEFINED_EPOCH or not entries or requested_epoch > entries[-1].epoch:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)
        if requested_epoch == entries[-1].epoch:
            return EpochEnd(requested_epoch, log_end_offset)
        slot = bisect_right(entries, requested_epoch, key=lambda entry: entry.epoch)
        if slot == 0:
            # Older than all that is known: everything before the first known epoch is that epoch's.
            return EpochEnd(requested_epoch, entries[0].start_offset)
        return EpochEnd(entries[slot - 1].epoch, entries[slot].start_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch whose leader appended `offset`; -1 below the first known one."""
        slot = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[slot - 1].epoch if slot else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that start at or above `end_offset`."""
        if end_offset >= 0 and self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries = [entry for entry in self._entries if entry.start_offset < end_offset]
            self.is_dirty = True
            self._refresh()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that end at or below `start_offset`; an epoch that contains it starts there afterwards."""
        slot = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset) - 1
        if slot > 0 or (slot == 0 and self._entries[0].start_offset < start_offset):
            self._entries = [EpochEntry(self._entries[slot].epoch, start_offset), *self._entries[slot + 1 :]]
            self.is_dirty = True

    def clear(self) -> None:
        """Forget everything: the log holds records of a format without epochs."""
        if self._entries:
            self._entries = []
            self.is_dirty = True
            self._refresh()

    def lines(self) -> list[str]:
        """Return the content that the file should have."""
        return [f"{entry.epoch} {entry.start_offset}" for entry in self._entries]

    def flush(self) -> None:
        """Make the file match, durably. Raises OSError."""
        if self.is_dirty:
            write_lines(self._fs, self.path, self.lines())
            self.is_dirty = False

    def _refresh(self) -> None:
        self.latest_epoch = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH
