"""The only access to the disk: the ports `FileSystem` and `File`, and `OsFileSystem`, which calls the system.

Everything else in this room receives a `FileSystem`, so that a simulated disk can lose unsynced writes, tear them, fill
up or fail. Callers may rely on these guarantees, and on no others:

* `fsync`/`fdatasync` make a file's bytes durable, not its name; `fsync_dir` makes the names in one directory durable.
* `pwrite` may be short; `write_all` loops. Reads and writes carry their position, so a file has no cursor to share.
* `OSError` passes through unchanged: the caller decides on its meaning.
"""

# Paths are plain `str` throughout the port, as a simulated disk keys its tables by them; hence no pathlib:
# ruff: noqa: PTH102, PTH105, PTH106, PTH108, PTH112, PTH116, PTH208
import errno
import fcntl
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import ClassVar, Protocol

from ..protocol.native import native

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
_READ_SIZE = 16 * 1024
_COPIED_BYTES = 256 * 1024
_NO_SENDFILE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
"""Errors of systems whose sendfile does not support the file."""

_fdatasync = getattr(os, "fdatasync", os.fsync)
"""macOS has no fdatasync."""
_SYNC_FILE_RANGE_WAIT_BEFORE = 1


class File(Protocol):
    """An open file. All positions and lengths are bytes; after `close` every call raises `OSError`."""

    def pread(self, length: int, position: int, /) -> bytes:
        """Return at most `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def pwrite(self, data: bytes | bytearray | memoryview, position: int, /) -> int:
        """Write at `position` and return how many bytes were taken, which may be fewer than given."""
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros) to `size`."""
        ...

    def size(self) -> int: ...

    def fallocate(self, position: int, length: int) -> None:
        """Reserve real disk space for a range, growing the file with zeros if it ends before the range does."""
        ...

    def fsync(self) -> None: ...

    def fdatasync(self) -> None: ...

    def check_writeback(self) -> None:
        """Raise `OSError` if the system failed to write bytes of this file, as `fdatasync` does, without a sync.

        Use it after `sync_disk`, which does not report earlier failures.
        """
        ...

    def start_writeback(self, position: int, length: int) -> None:
        """Let the system begin to bring a stretch to the disk, so that less is left for `fsync`. Promises nothing."""
        ...

    def close(self) -> None: ...

    def slice(self, length: int, position: int) -> "Sendable":
        """Return the bytes as `pread`, or a `FileSlice` if a descriptor is available, which outlives `close`."""
        ...


class FileSlice:
    """A stretch of an open file to be sent without being read.

    It has a descriptor of its own, which is closed with the last reference to the slice, so dropping a response
    closes it.
    """

    __slots__ = ("_fd", "_length", "_position")

    def __init__(self, fd: int, length: int, position: int) -> None:
        """Take ownership of the descriptor."""
        self._fd = fd
        self._length = length
        self._position = position

    def __len__(self) -> int:
        return self._length

    def read(self, start: int = 0, most: int | None = None) -> bytes:
        """Read up to `most` of the bytes from `start` on, by default all that remain.

        Raises OSError, also if the file has been truncated.
        """
        left = self._length - start
        count = left if most is None else min(left, most)
        data = os.pread(self._fd, count, self._position + start)
        if len(data) < count:
            raise _cut()
        return data

    def narrow(self, start: int, length: int) -> None:
        """Drop the bytes before `start` and after `length` bytes from there on."""
        assert start >= 0 and 0 <= length <= self._length - start, f"{length} bytes from {start} of {self._length}"
        self._position += start
        self._length = length

    def send(self, receiver: int, start: int, most: int) -> int:
        """Have the kernel send up to `most` of the bytes from `start` on to a socket; return the number sent.

        Raises BlockingIOError if the socket accepts none now, OSError if the file has been truncated.
        """
        position, count = self._position + start, min(self._length - start, most)
        try:
            sent = os.sendfile(receiver, self._fd, position, count)
        except OSError as error:
            if error.errno not in _NO_SENDFILE:
                raise
            sent = os.write(receiver, os.pread(self._fd, min(count, _COPIED_BYTES), position))
        if not sent:
            raise _cut()
        return sent

    def __del__(self) -> None:
        os.close(self._fd)


def _cut() -> OSError:
    return OSError(errno.EIO, "the file is shorter than the range that is being sent")


Sendable = bytes | memoryview | FileSlice
"""Bytes of a file, in memory or not."""


class Lock(Protocol):
    """A held lock on a directory's lock file."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """The operations on names. Paths are `str`, joined with `/`."""

    @property
    def open_files(self) -> int:
        """The number of open files."""
        ...

    def before_opening_above(self, limit: int, make_room: Callable[[], None]) -> None:
        """Call `make_room`, on any thread, before a file is opened while `limit` or more are open."""
        ...

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False) -> File:
        """Open for reading and writing. `create` makes a missing file, `exclusive` refuses an existing one."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, in no particular order."""
        ...

    def scan_dir(self, path: str) -> dict[str, bool]:
        """Return the names in a directory, each with whether it is a plain file's: no directory's, no link's."""
        ...

    def mkdir(self, path: str) -> None: ...

    def make_dirs(self, path: str) -> None:
        """Create a directory and its missing parents; an existing directory is not an error."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomically give a file or directory a new name, replacing a file that has it."""
        ...

    def make_folders(self, folders: Mapping[str, Mapping[str, bytes]], made: list[str]) -> None:
        """Make directories, each with new files of these names and contents, and add each new path to `made`.

        An existing directory is left as it is. Raises `OSError`; the last directory in `made` may then lack files.
        """
        ...

    def rename_all(self, names: Mapping[str, str]) -> None:
        """Give files or directories new names, as `rename`, in this order. Raises `OSError`, and leaves the rest."""
        ...

    def unlink(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def sync_disk(self, path: str) -> bool:
        """Sync all files and names on the disk that contains `path`, whichever process wrote them.

        Returns False, and does nothing, on systems without a call that reports errors. Raises `OSError`.
        """
        ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock on a file, creating it. Raises `BlockingIOError` if the file is locked already."""
        ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a small file so that a crash leaves the old or the new content, and the new one once this returns."""
        ...

    def free_bytes(self, path: str) -> int:
        """Space left to an ordinary user on the disk that holds `path`."""
        ...

    def total_bytes(self, path: str) -> int:
        """Size of the disk that holds `path`."""
        ...


def write_all(file: File, data: bytes | bytearray | memoryview, position: int) -> None:
    """Write all of `data` at `position`, also if single writes are short. Raises `OSError`."""
    written = file.pwrite(data, position)
    length = len(data)
    while written < length:
        taken = file.pwrite(memoryview(data)[written:], position + written)
        if taken <= 0:
            raise OSError(errno.EIO, "a write to the disk wrote no bytes and returned no error")
        written += taken


def parent_of(path: str) -> str:
    """Return the directory that holds `path`."""
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")


def write_atomic(fs: FileSystem, path: str, data: bytes) -> None:
    """`FileSystem.write_atomic` in terms of the other operations: temp file, fsync, rename, fsync of the directory."""
    temporary = path + ".tmp"
    file = fs.open(temporary, create=True)
    try:
        file.truncate(0)
        write_all(file, data, 0)
        file.fsync()
    finally:
        file.close()
    fs.rename(temporary, path)
    fs.fsync_dir(parent_of(path))


class TemporaryFile:
    """`FileSystem.write_atomic` in steps, for callers that take each step for many files together.

    No handle is kept between the steps. The caller finishes with `fsync_dir`. All steps raise `OSError`.
    """

    __slots__ = ("_fs", "_path", "_temporary")

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._temporary = path + ".tmp"

    def write(self, data: bytes) -> None:
        """Write the content, under the temporary name."""
        file = self._fs.open(self._temporary, create=True)
        try:
            file.truncate(0)
            write_all(file, data, 0)
        finally:
            file.close()

    def sync(self) -> None:
        """Make the content durable."""
        file = self._fs.open(self._temporary)
        try:
            file.fsync()
        finally:
            file.close()

    def rename(self) -> None:
        """Replace the file with the temporary one."""
        self._fs.rename(self._temporary, self._path)


def make_dirs(fs: FileSystem, path: str) -> None:
    """`FileSystem.make_dirs` in terms of the other operations; each new name is made durable in its parent."""
    if fs.is_dir(path):
        return
    parent = parent_of(path)
    if parent != path:
        make_dirs(fs, parent)
    fs.mkdir(path)
    fs.fsync_dir(parent)


def make_folders(fs: FileSystem, folders: Mapping[str, Mapping[str, bytes]], made: list[str]) -> None:
    """`FileSystem.make_folders` in terms of the other operations."""
    for path, files in folders.items():
        try:
            fs.mkdir(path)
        except FileExistsError:
            continue
        made.append(path)
        for name, content in files.items():
            file = fs.open(f"{path}/{name}", create=True, exclusive=True)
            try:
                if content:
                    write_all(file, content, 0)
            finally:
                file.close()


def rename_all(fs: FileSystem, names: Mapping[str, str]) -> None:
    """`FileSystem.rename_all` in terms of the other operations."""
    for old, new in names.items():
        fs.rename(old, new)


class OsFile:
    """A `File` over a descriptor. `pread` and `pwrite` are bound straight to the system calls: the data path."""

    __slots__ = ("_fd", "_open_files", "pread", "pwrite")

    def __init__(self, fd: int, open_files: set[object]) -> None:
        """Add the file to `open_files` until it is closed."""
        self._fd = fd
        self._open_files = open_files
        open_files.add(self)
        self.pread = partial(os.pread, fd)
        self.pwrite = partial(os.pwrite, fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def fallocate(self, position: int, length: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, position, length)
        elif self.size() < position + length:
            os.ftruncate(self._fd, position + length)

    def fsync(self) -> None:
        fd = self.fileno()
        if hasattr(fcntl, "F_FULLFSYNC"):
            # On macOS fsync stops at the drive's own cache.
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fsync(fd)

    def fdatasync(self) -> None:
        fd = self.fileno()
        if hasattr(fcntl, "F_FULLFSYNC"):
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            _fdatasync(fd)

    def check_writeback(self) -> None:
        # Even for a file without dirty pages fdatasync flushes the disk's cache, which takes over a millisecond.
        sync_file_range = _linux_call("sync_file_range", "i", "q", "q", "I")
        if sync_file_range is None:
            self.fdatasync()
        else:
            sync_file_range(self.fileno(), 0, 0, _SYNC_FILE_RANGE_WAIT_BEFORE)

    def start_writeback(self, position: int, length: int) -> None:
        if sys.platform == "linux":
            # Starts to write the dirty pages, and drops from the cache only pages that are clean already.
            os.posix_fadvise(self.fileno(), position, length, os.POSIX_FADV_DONTNEED)

    def fileno(self) -> int:
        """Return the descriptor. Raises `OSError` for a closed file, because some calls accept -1."""
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            # The system may reuse the number immediately: a late read through this object must not read another file.
            self.pread = partial(os.pread, -1)
            self.pwrite = partial(os.pwrite, -1)
            self._open_files.discard(self)
            os.close(fd)

    def slice(self, length: int, position: int) -> Sendable:
        try:
            return FileSlice(os.dup(self.fileno()), length, position)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        return self.pread(length, position)


class OsLock:
    """A `Lock` held through an open descriptor; the system releases it when the process ends."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


@lru_cache
def _linux_call(name: str, *types: str) -> Callable[..., None] | None:
    """Return a system call without a function in `os`, whose arguments are of these types of `array`.

    It raises OSError. None before Linux 5.8, where syncfs(2) reports no errors, and elsewhere.
    """
    if sys.platform != "linux" or tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (5, 8):
        return None
    import ctypes  # half a megabyte that only a broker with many partitions needs

    call = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if call is None:
        return None
    call.argtypes = [{"i": ctypes.c_int, "q": ctypes.c_int64, "I": ctypes.c_uint}[one] for one in types]

    def checked(*arguments: int) -> None:
        if call(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return checked


def _raise_at(steps: Sequence[tuple[bytes, bytes | None]], done: int, error: int) -> None:
    """Raise the error that ended steps, if one did, as Python's own functions."""
    if error:
        raise OSError(error, os.strerror(error), os.fsdecode(steps[done][0]))


class OsFileSystem:
    """The `FileSystem` of the machine."""

    __slots__ = ("_make_room", "_open_files", "_open_files_limit")

    file_class: ClassVar[type[OsFile]] = OsFile

    def __init__(self) -> None:
        self._open_files: set[object] = set()
        self._open_files_limit = sys.maxsize
        self._make_room: Callable[[], None] = lambda: None

    @property
    def open_files(self) -> int:
        return len(self._open_files)

    def before_opening_above(self, limit: int, make_room: Callable[[], None]) -> None:
        self._open_files_limit, self._make_room = limit, make_room

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False) -> OsFile:
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_RDONLY if readonly else os.O_RDWR)
        if create:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_CREAT | os.O_EXCL
        if len(self._open_files) >= self._open_files_limit:
            self._make_room()
        return self.file_class(os.open(path, flags, FILE_MODE), self._open_files)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_dir(self, path: str) -> list[str]:
        return os.listdir(path)

    def scan_dir(self, path: str) -> dict[str, bool]:
        with os.scandir(path) as entries:
            return {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}

    def mkdir(self, path: str) -> None:
        os.mkdir(path, DIRECTORY_MODE)

    def make_dirs(self, path: str) -> None:
        make_dirs(self, path)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def make_folders(self, folders: Mapping[str, Mapping[str, bytes]], made: list[str]) -> None:
        if not self._has_compiled_names:
            make_folders(self, folders, made)
            return
        steps: list[tuple[bytes, bytes | None]] = []
        for path, files in folders.items():
            steps.append((os.fsencode(path), None))
            steps += [(os.fsencode(f"{path}/{name}"), content) for name, content in files.items()]
        done, error, existing = native.make_folders(steps)
        # A directory whose first file failed is made, and therefore among the steps that are done.
        made += [
            os.fsdecode(path)
            for (path, content), exists in zip(steps, existing, strict=False)
            if content is None and not exists
        ]
        _raise_at(steps, done, error)

    def rename_all(self, names: Mapping[str, str]) -> None:
        if not self._has_compiled_names:
            rename_all(self, names)
            return
        steps = [(os.fsencode(old), os.fsencode(new)) for old, new in names.items()]
        _raise_at(steps, *native.rename_all(steps))

    @property
    def _has_compiled_names(self) -> bool:
        """Whether many names are changed by one call. A derived class may have replaced the single operations."""
        return type(self) is OsFileSystem and hasattr(native, "rename_all")

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_disk(self, path: str) -> bool:
        syncfs = _linux_call("syncfs", "i")
        if syncfs is None:
            return False
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            syncfs(fd)
        finally:
            os.close(fd)
        return True

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def lock(self, path: str) -> OsLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            # flock also separates two brokers in one process; Apache Kafka's broker takes a record lock.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if sys.platform == "linux":
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(error.errno, "the file is locked by another process", path) from error
            raise
        return OsLock(fd)

    def read_bytes(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(fd, _READ_SIZE)
            if len(data) == _READ_SIZE:
                chunks = [data]
                while data := os.read(fd, os.fstat(fd).st_size + 1):
                    chunks.append(data)
                return b"".join(chunks)
            return data
        finally:
            os.close(fd)

    def write_atomic(self, path: str, data: bytes) -> None:
        write_atomic(self, path, data)

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize
