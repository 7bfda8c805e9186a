"""A simulated disk: a file system in memory that can lose power, tear writes, fill up and fail."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..storage.filesystem import make_dirs, make_folders, rename_all, write_atomic
from .chance import chance
from .disk_names import DiskNames, os_error
from .disk_nodes import DirectoryNode, DiskWrite, FileNode, NameChange, Resize

_ENDLESS = 1 << 62

Mode: TypeAlias = Literal["A", "B", "kill"]
"""The effect of a crash: power loss with directory changes as a prefix (A) or per name (B), or none (kill -9)."""


class SimCrash(BaseException):
    """The machine stopped at a file-system call. Not an Exception: no handler of the product may catch it."""


@dataclass(slots=True)
class DiskFault:
    """An error of calls of one kind whose path contains a text."""

    operation: str
    error: int
    path_contains: str = ""
    skip: int = 0
    times: int | None = None

    def strikes(self, operation: str, path: str) -> bool:
        """Return whether this call fails; counts down."""
        if operation != self.operation or self.path_contains not in path or self.times == 0:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class SimDisk:
    """Implements the FileSystem port in memory.

    Every file keeps a cache, a durable image and the changes in between; every directory its durable names and
    the changes in between. `fsync` of a file makes its data durable but not its name; `fsync_dir` makes names durable.

    Calls that change the disk, or make something durable, are numbered from 1 (`calls`). `crash_at(k)` stops the
    machine just before the k-th: `SimCrash` is raised there and at every later call, so that nothing can be repaired on
    the way out. `survivor(seed, mode)` is the disk that the next start finds. All random choices depend on the seed.
    """

    def __init__(
        self,
        *,
        now_ms: Callable[[], int] = lambda: 0,
        capacity: int | None = None,
        max_open_files: int | None = None,
        keep_log: bool = True,
    ) -> None:
        self.now_ms = now_ms
        self.capacity = capacity
        self.max_open_files = max_open_files
        self._names = DiskNames()
        self.calls = 0
        self.open_files = 0
        self._open_files_limit = _ENDLESS
        self._make_room: Callable[[], None] = lambda: None
        self.crashed = False
        self.log: list[str] = []
        self.faults: list[DiskFault] = []
        self._keep_log = keep_log
        self._crash_at: int | None = None
        self._kill_fraction = 0.5
        self._bad_ranges: list[tuple[FileNode, int, int]] = []
        self._locks: set[str] = set()
        self._used = 0

    # Control of the simulation

    def crash_at(self, call: int | None, *, written_fraction: float = 0.5) -> None:
        """Stop the machine at the `call`-th counted call from now; a part of a write still reaches the cache."""
        self._crash_at = None if call is None else self.calls + call
        self._kill_fraction = written_fraction

    def crash(self) -> None:
        """Stop the machine now: every later call raises SimCrash."""
        self.crashed = True

    def survivor(self, seed: int, mode: Mode) -> SimDisk:
        """Return the disk for the next start. This disk is unchanged, so that many survivors can be drawn."""
        rng = chance(f"{seed}/{mode}")
        disk = SimDisk(now_ms=self.now_ms, capacity=self.capacity, max_open_files=self.max_open_files)
        disk._names = self._names.clone() if mode == "kill" else self._names.after_power_loss(rng, mode)
        disk._used = sum(len(node.cache) for node in disk._names.files())
        return disk

    def make_everything_durable(self) -> None:
        """Write back all caches: a starting point for a test, not a counted call."""
        self._names.make_everything_durable()

    @property
    def used(self) -> int:
        """Return the used bytes of `capacity`."""
        return self._used

    def fail(
        self, operation: str, error: int, path_contains: str = "", *, skip: int = 0, times: int | None = 1
    ) -> DiskFault:
        """Let calls fail: the next `times` (None: all) of `operation` whose path contains the text, after `skip`."""
        fault = DiskFault(operation, error, path_contains, skip, times)
        self.faults.append(fault)
        return fault

    def heal(self) -> None:
        """Remove all injected errors and bad sectors."""
        self.faults.clear()
        self._bad_ranges.clear()

    def fail_read(self, path: str, position: int, length: int) -> None:
        """Make a range of a file unreadable: reads that touch it raise EIO."""
        self._bad_ranges.append((self._names.file(path), position, position + length))

    def overwrite(self, path: str, position: int, data: bytes) -> None:
        """Change bytes outside of the product, in cache and durable image: rot, a lost or misdirected write."""
        node = self._names.file(path)
        node.make_durable()
        node.change(DiskWrite(position, data))
        node.make_durable()

    def cut(self, path: str, size: int) -> None:
        """Truncate a file outside of the product, in cache and durable image."""
        node = self._names.file(path)
        self._used -= max(0, len(node.cache) - size)
        node.change(Resize(size))
        node.make_durable()

    def tree(self) -> dict[str, bytes]:
        """Return all files by path with the bytes that reads return."""
        found: dict[str, bytes] = {}

        def walk(directory: DirectoryNode, path: str) -> None:
            for name in sorted(directory.entries):
                node = directory.entries[name]
                if isinstance(node, DirectoryNode):
                    walk(node, f"{path}/{name}")
                else:
                    found[f"{path}/{name}"] = bytes(node.cache)

        walk(self._names.root, "")
        return found

    # The FileSystem port

    def before_opening_above(self, limit: int, make_room: Callable[[], None]) -> None:
        """Call a function before a file is opened while `limit` or more are open."""
        self._open_files_limit, self._make_room = limit, make_room

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False) -> SimFile:
        """Open a file; see FileSystem.open."""
        parent, name = self._names.place(path)
        node = parent.entries.get(name)
        create = create or exclusive
        if node is None and not create:
            self._look("open", path)
            raise os_error(errno.ENOENT, path)
        if node is not None and exclusive:
            self._look("open", path)
            raise os_error(errno.EEXIST, path)
        if isinstance(node, DirectoryNode):
            raise os_error(errno.EISDIR, path)
        if self.open_files >= self._open_files_limit:
            self._make_room()
        if self.max_open_files is not None and self.open_files >= self.max_open_files:
            raise os_error(errno.EMFILE, path)
        if node is None:
            self._step("open", path)
            node = FileNode(modified_ms=self.now_ms())
            self._change_names(NameChange(node, target=(parent, name)))
        else:
            self._look("open", path)
        return SimFile(self, path, node, readonly=readonly)

    def exists(self, path: str) -> bool:
        """Return whether the path exists."""
        self._look("exists", path)
        return self._names.find(path) is not None

    def is_dir(self, path: str) -> bool:
        """Return whether the path is a directory."""
        self._look("is_dir", path)
        return isinstance(self._names.find(path), DirectoryNode)

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, in arbitrary order."""
        self._look("list_dir", path)
        return sorted(self._names.directory(path).entries)

    def scan_dir(self, path: str) -> dict[str, bool]:
        """Return the names in a directory, each with whether it is a file."""
        self._look("scan_dir", path)
        return {name: isinstance(node, FileNode) for name, node in self._names.directory(path).entries.items()}

    def mkdir(self, path: str) -> None:
        """Create one directory."""
        parent, name = self._names.place(path)
        if name in parent.entries:
            raise os_error(errno.EEXIST, path)
        self._step("mkdir", path)
        self._change_names(NameChange(DirectoryNode(modified_ms=self.now_ms()), target=(parent, name)))

    def make_dirs(self, path: str) -> None:
        """Create a directory and all missing parents."""
        make_dirs(self, path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory, replacing an existing one."""
        source, target = self._names.place(old), self._names.place(new)
        node = self._names.node(old)
        replaced = target[0].entries.get(target[1])
        if isinstance(replaced, DirectoryNode) and (replaced.entries or isinstance(node, FileNode)):
            raise os_error(errno.ENOTEMPTY if isinstance(node, DirectoryNode) else errno.EISDIR, new)
        if isinstance(replaced, FileNode) and isinstance(node, DirectoryNode):
            raise os_error(errno.ENOTDIR, new)
        self._step("rename", old, f"-> {new}")
        if replaced is node:
            return
        if isinstance(replaced, FileNode):
            self._unlinked(replaced)
        self._change_names(NameChange(node, source=source, target=target))

    def make_folders(self, folders: Mapping[str, Mapping[str, bytes]], made: list[str]) -> None:
        """Make directories with files, one operation after the other."""
        make_folders(self, folders, made)

    def rename_all(self, names: Mapping[str, str]) -> None:
        """Rename files or directories, one after the other."""
        rename_all(self, names)

    def unlink(self, path: str) -> None:
        """Remove a file's name; its space is freed when the last handle is closed."""
        parent, name = self._names.place(path)
        node = self._names.node(path)
        if isinstance(node, DirectoryNode):
            raise os_error(errno.EISDIR, path)
        self._step("unlink", path)
        self._change_names(NameChange(node, source=(parent, name)))
        self._unlinked(node)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        parent, name = self._names.place(path)
        node = self._names.directory(path)
        if node.entries:
            raise os_error(errno.ENOTEMPTY, path)
        self._step("rmdir", path)
        self._change_names(NameChange(node, source=(parent, name)))

    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory durable, not their contents."""
        directory = self._names.directory(path)
        self._step("fsync_dir", path)
        self._names.make_durable(directory)

    def sync_disk(self, path: str) -> bool:
        """Make all files and names durable."""
        self._step("sync_disk", path)
        self._names.make_everything_durable()
        return True

    def size(self, path: str) -> int:
        """Return the length of a file in bytes."""
        self._look("size", path)
        return len(self._names.file(path).cache)

    def modified_ms(self, path: str) -> int:
        """Return the last change of a file, milliseconds since the epoch."""
        self._look("modified_ms", path)
        return self._names.node(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the last change of a file."""
        node = self._names.node(path)
        self._step("set_modified_ms", path)
        node.modified_ms = modified_ms

    def lock(self, path: str) -> SimLock:
        """Take an exclusive lock; raises BlockingIOError while another holder has it."""
        if self._names.find(path) is None:
            self.open(path, create=True).close()
        self._look("lock", path)
        if path in self._locks:
            raise os_error(errno.EWOULDBLOCK, path)
        self._locks.add(path)
        return SimLock(self._locks, path)

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content of a file."""
        file = self.open(path, readonly=True)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a file's content so that a crash leaves the old or the new, by the steps visible to a real disk."""
        write_atomic(self, path, data)

    def free_bytes(self, path: str) -> int:
        """Return the free bytes."""
        self._look("free_bytes", path)
        return _ENDLESS if self.capacity is None else max(0, self.capacity - self._used)

    def total_bytes(self, path: str) -> int:
        """Return the size of the disk."""
        self._look("total_bytes", path)
        return _ENDLESS if self.capacity is None else self.capacity

    # Internals

    def _look(self, operation: str, path: str) -> None:
        """Handle a call without changes: a crash just before it equals a crash just before the next changing call."""
        if self.crashed:
            raise SimCrash(f"{operation} {path} after the crash")
        for fault in self.faults:
            if fault.strikes(operation, path):
                raise os_error(fault.error, path)

    def _step(self, operation: str, path: str, detail: str = "") -> None:
        """Handle a counted call, at which a crash can happen."""
        if self.crashed:
            raise SimCrash(f"{operation} {path} after the crash")
        self.calls += 1
        if self.calls == self._crash_at:
            self.crashed = True
            if self._keep_log:
                self.log.append(f"{self.calls:5} CRASH at {operation} {path} {detail}")
            raise SimCrash(f"call {self.calls}: {operation} {path} {detail}")
        if self._keep_log:
            self.log.append(f"{self.calls:5} {operation} {path} {detail}")
        for fault in self.faults:
            if fault.strikes(operation, path):
                raise os_error(fault.error, path)

    def _reserve(self, wanted: int, path: str, *, partly: bool) -> int:
        """Return how many of the new bytes fit; ENOSPC if none does, or not all and a part is useless."""
        if self.capacity is None:
            granted = wanted
        else:
            granted = min(wanted, max(0, self.capacity - self._used))
            if granted < wanted and (granted == 0 or not partly):
                raise os_error(errno.ENOSPC, path)
        self._used += granted
        return granted

    def _unlinked(self, node: FileNode) -> None:
        node.links = 0
        if node.handles == 0:
            self._used -= len(node.cache)

    def _change_names(self, change: NameChange) -> None:
        self._names.change(change, self.now_ms())


class SimLock:
    """A held lock of a simulated disk; it ends with the incarnation that took it."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        """Release the lock."""
        self._held.discard(self._path)


class SimFile:
    """An open file of a simulated disk. It refers to its file through renames and after unlink."""

    def __init__(self, disk: SimDisk, path: str, node: FileNode, *, readonly: bool) -> None:
        self._disk = disk
        self._node = node
        self._readonly = readonly
        self._closed = False
        self.path = path
        disk.open_files += 1
        node.handles += 1

    def pread(self, length: int, position: int) -> bytes:
        """Return up to `length` bytes from `position`; fewer at the end of the file."""
        self._check_open()
        self._disk._look("pread", self.path)
        for node, start, end in self._disk._bad_ranges:
            if node is self._node and position < end and start < position + length:
                raise os_error(errno.EIO, self.path)
        return bytes(self._node.cache[position : position + length])

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        """Write at a position; return the number of written bytes, which near the end of space may be less."""
        self._check_writable()
        content = bytes(data)
        was_running = not self._disk.crashed
        try:
            self._disk._step("pwrite", self.path, f"{len(content)} bytes at {position}")
        except SimCrash:
            if was_running:
                self._put(content[: int(len(content) * self._disk._kill_fraction)], position)
            raise
        growth = max(0, position + len(content) - len(self._node.cache))
        granted = self._disk._reserve(growth, self.path, partly=position <= len(self._node.cache)) if growth else 0
        return self._put(content[: len(content) - (growth - granted)], position)

    def _put(self, content: bytes, position: int) -> int:
        if content:
            self._node.change(DiskWrite(position, content))
            self._node.modified_ms = self._disk.now_ms()
        return len(content)

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with zeros."""
        self._check_writable()
        self._disk._step("truncate", self.path, f"to {size}")
        self._disk._used += size - len(self._node.cache)
        self._node.change(Resize(size))
        self._node.modified_ms = self._disk.now_ms()

    def fallocate(self, offset: int, length: int) -> None:
        """Reserve space so that later writes cannot fail with ENOSPC; extends the file with zeros."""
        self._check_writable()
        self._disk._step("fallocate", self.path, f"{length} bytes at {offset}")
        growth = offset + length - len(self._node.cache)
        if growth > 0:
            self._disk._reserve(growth, self.path, partly=False)
            self._node.change(Resize(offset + length))

    def size(self) -> int:
        """Return the length of the file in bytes."""
        self._check_open()
        self._disk._look("size", self.path)
        return len(self._node.cache)

    def fsync(self) -> None:
        """Make the content durable. After an error the changes remain in the cache only, and the next call succeeds."""
        self._sync("fsync")

    def fdatasync(self) -> None:
        """Make the data durable, and the metadata that is required to read them, as fsync does."""
        self._sync("fdatasync")

    def check_writeback(self) -> None:
        """Raise the error of a write-back that failed. It changes nothing: `sync_disk` has made the file durable."""
        self._check_open()
        self._disk._step("check_writeback", self.path)

    def start_writeback(self, position: int, length: int) -> None:
        """Change nothing: any unsynced write may or may not be on the disk anyway."""
        self._check_open()

    def _sync(self, operation: str) -> None:
        self._check_open()
        try:
            self._disk._step(operation, self.path)
        except OSError:
            self._node.pending.clear()
            raise
        self._node.make_durable()

    def close(self) -> None:
        """Close the handle; makes nothing durable."""
        if self._closed:
            return
        self._closed = True
        self._disk.open_files -= 1
        self._node.handles -= 1
        if self._node.handles == 0 and self._node.links == 0:
            self._disk._used -= len(self._node.cache)

    def slice(self, length: int, position: int) -> bytes:
        """A simulated file has no descriptor of the operating system that could be sent."""
        return self.pread(length, position)

    def _check_open(self) -> None:
        if self._closed:
            raise os_error(errno.EBADF, self.path)

    def _check_writable(self) -> None:
        self._check_open()
        if self._readonly:
            raise os_error(errno.EBADF, self.path)
