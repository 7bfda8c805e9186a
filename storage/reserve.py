"""A file that keeps some room on a disk, to be given up for what has to be done when nothing else is left."""

from .errors import NO_SPACE
from .filesystem import FileSystem, parent_of

DISK_SHARE = 16
"""A reserve takes no more than one part in so many of its disk."""
LOANS = 16
"""So many parts a reserve has, half of which can be lent."""
_SMALLEST = 4096


class Reserve:
    """Room for a start, which has to write a little, and for deletion, which has to write down what goes.

    Layout: bytes that mean nothing; a crash can leave any number of them. One thread at a time. What cannot be taken
    now, for want of room, is taken by a later `fill`.
    """

    def __init__(self, fs: FileSystem, path: str, size: int) -> None:
        """Of `size` bytes; 0 for none."""
        self._fs = fs
        self._path = path
        self._size = size

    def give_up(self) -> None:
        """Frees all of it if the disk has less room than it is to take; before a start or a stop. Raises OSError."""
        if self._held and self._free < self._target:
            self._resize(0)

    def lend(self) -> bool:
        """Frees a sixteenth of it, unless the disk has that much room left; whether there is room now. Raises OSError.

        The half that the next start may need stays.
        """
        part = self._target // LOANS
        if self._free >= part:
            return part > 0
        left = self._held - part
        if part == 0 or left < self._target // 2:
            return False
        self._resize(left)
        return True

    def fill(self) -> None:
        """Takes what is missing, or as much of it as the disk has left. Raises OSError, but not for want of room."""
        if self._size == 0:
            return
        held = self._held
        missing = min(self._target - held, self._free)
        while missing > 0 and not self._grow(held, missing):
            missing = missing // 2 if missing > _SMALLEST else 0

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
