"""A file that reserves space on a disk, to be released for essential work when the disk is full."""

from contextlib import suppress

from .errors import NO_SPACE
from .filesystem import FileSystem, parent_of

DISK_SHARE = 16
"""A reserve takes at most this fraction (1/n) of its disk."""
PARTS = 16
"""A reserve consists of this number of parts, of which half can be released."""
_SMALLEST = 4096


class Reserve:
    """Space for a start, which has to write a little, and for deletion, which first has to write the log start offset.

    Layout: arbitrary bytes; a crash can leave any number of them. One thread at a time. If the disk has no space now,
    a later `fill` restores the reserve.
    """

    def __init__(self, fs: FileSystem, path: str, size: int) -> None:
        """Create a reserve of `size` bytes; 0 for no reserve. `fill` writes the file."""
        self._fs = fs
        self._path = path
        self._size = size

    def give_up(self) -> None:
        """Free the whole reserve, before a start or a stop, if the disk has less space than it. Raises OSError."""
        if self._held and self._free < self._target:
            self._resize(0)

    def release_part(self) -> bool:
        """Free a sixteenth of the reserve, unless the disk has that much space left; return whether there is space now.

        The half for the next start is kept. Raises OSError.
        """
        part = self._target // PARTS
        if self._free >= part:
            return part > 0
        left = self._held - part
        if part == 0 or left < self._target // 2:
            return False
        self._resize(left)
        return True

    def fill(self) -> None:
        """Restore the reserve as far as the disk has space. Raises OSError, but not for lack of space."""
        if self._size == 0:
            return
        held = self._held
        missing = min(self._target - held, self._free)
        while missing > 0 and not self._grow(held, missing):
            missing = missing // 2 if missing > _SMALLEST else 0

    def can_grow(self, size: int) -> bool:
        """Return whether the disk has space for `size` more bytes: allocate them, and free them again. Raises OSError.

        The free bytes of a file system do not show the disk quota of a user.
        """
        exists = self._fs.exists(self._path)
        try:
            file = self._fs.open(self._path, create=True)
            try:
                held = file.size()
                try:
                    file.fallocate(held, size)
                    file.pwrite(b"\0", held)
                finally:
                    file.truncate(held)
            finally:
                file.close()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            return False
        finally:
            if not exists:
                with suppress(OSError):
                    self._fs.unlink(self._path)
        return True

    def _grow(self, held: int, missing: int) -> bool:
        file = self._fs.open(self._path, create=True)
        try:
            file.fallocate(held, missing)
        except OSError as error:
            file.truncate(held)
            if error.errno not in NO_SPACE:
                raise
            return False
        finally:
            file.close()
        return True

    def _resize(self, size: int) -> None:
        file = self._fs.open(self._path)
        try:
            file.truncate(size)
        finally:
            file.close()

    @property
    def _held(self) -> int:
        return self._fs.size(self._path) if self._size and self._fs.exists(self._path) else 0

    @property
    def _free(self) -> int:
        return self._fs.free_bytes(parent_of(self._path))

    @property
    def _target(self) -> int:
        return min(self._size, self._fs.total_bytes(parent_of(self._path)) // DISK_SHARE) if self._size else 0
