"""The real and the simulated disk give the same answers to the same calls."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.simulation.disk import SimDisk
from barnabas.storage.filesystem import FileSystem, OsFileSystem, write_all

Disk = tuple[FileSystem, str]


def _real(tmp_path: Path) -> Disk:
    return OsFileSystem(), str(tmp_path)


def _simulated(tmp_path: Path) -> Disk:
    disk = SimDisk(now_ms=lambda: 1_700_000_000_000)
    disk.make_dirs("/data")
    return disk, "/data"


@pytest.fixture(params=[_real, _simulated], ids=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    make: Callable[[Path], Disk] = request.param
    return make(tmp_path)


def test_a_file_holds_what_was_written_at_each_position(disk: Disk) -> None:
    fs, root = disk
    file = fs.open(f"{root}/a", create=True)
    assert file.size() == 0
    assert file.pwrite(b"hello", 0) == 5
    assert file.pwrite(memoryview(b"HE"), 0) == 2
    assert file.pwrite(bytearray(b"!"), 8) == 1
    assert file.pread(100, 0) == b"HEllo\0\0\0!"
    assert file.pread(3, 2) == b"llo"
    assert file.pread(3, 9) == b""
    file.truncate(2)
    assert file.pread(100, 0) == b"HE"
    file.truncate(4)
    assert file.pread(100, 0) == b"HE\0\0"
    file.start_writeback(0, 4)
    file.fsync()
    file.fdatasync()
    file.close()
    assert fs.size(f"{root}/a") == 4
    assert fs.read_bytes(f"{root}/a") == b"HE\0\0"


def test_fallocate_grows_with_zeros_and_never_shrinks(disk: Disk) -> None:
    fs, root = disk
    file = fs.open(f"{root}/a", create=True)
    file.pwrite(b"xy", 0)
    file.fallocate(0, 8)
    assert file.pread(100, 0) == b"xy" + bytes(6)
    file.fallocate(0, 4)
    assert file.size() == 8
    file.close()


def test_opening_obeys_create_exclusive_and_readonly(disk: Disk) -> None:
    fs, root = disk
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/a")
    fs.open(f"{root}/a", create=True, exclusive=True).close()
    with pytest.raises(FileExistsError):
        fs.open(f"{root}/a", create=True, exclusive=True)
    readonly = fs.open(f"{root}/a", readonly=True)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        readonly.pwrite(b"x", 0)
    readonly.close()
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/missing/a", create=True)
    with pytest.raises(IsADirectoryError):
        fs.open(root)


def test_a_closed_file_refuses_every_call(disk: Disk) -> None:
    fs, root = disk
    file = fs.open(f"{root}/a", create=True)
    file.close()
    file.close()
    calls: list[Callable[[], object]] = [
        lambda: file.pread(1, 0),
        lambda: file.pwrite(b"x", 0),
        lambda: file.truncate(0),
        file.size,
        file.fsync,
        file.fdatasync,
        lambda: file.start_writeback(0, 1),
    ]
    for call in calls:
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
            call()


def test_names(disk: Disk) -> None:
    fs, root = disk
    fs.mkdir(f"{root}/d")
    fs.open(f"{root}/d/a", create=True).close()
    fs.open(f"{root}/d/b", create=True).close()
    assert sorted(fs.list_dir(f"{root}/d")) == ["a", "b"]
    assert fs.exists(f"{root}/d/a")
    assert not fs.is_dir(f"{root}/d/a")
    assert fs.is_dir(f"{root}/d")
    assert not fs.exists(f"{root}/e")
    assert not fs.is_dir(f"{root}/e")
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{root}/d")
    fs.unlink(f"{root}/d/a")
    with pytest.raises(FileNotFoundError):
        fs.unlink(f"{root}/d/a")
    with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)):
        fs.rmdir(f"{root}/d")
    fs.unlink(f"{root}/d/b")
    fs.rmdir(f"{root}/d")
    assert fs.list_dir(root) == []
    for call in (fs.list_dir, fs.rmdir, fs.size, fs.modified_ms, fs.fsync_dir, fs.read_bytes):
        with pytest.raises(FileNotFoundError):
            call(f"{root}/d")


def test_rename_replaces_files_and_carries_open_handles(disk: Disk) -> None:
    fs, root = disk
    file = fs.open(f"{root}/new", create=True)
    file.pwrite(b"new", 0)
    old = fs.open(f"{root}/old", create=True)
    old.pwrite(b"old", 0)
    fs.rename(f"{root}/new", f"{root}/old")
    assert fs.list_dir(root) == ["old"]
    assert fs.read_bytes(f"{root}/old") == b"new"
    assert old.pread(3, 0) == b"old"
    file.pwrite(b"NEW", 0)
    assert fs.read_bytes(f"{root}/old") == b"NEW"
    file.close()
    old.close()
    with pytest.raises(FileNotFoundError):
        fs.rename(f"{root}/new", f"{root}/old")


def test_rename_of_a_directory_takes_its_files_along(disk: Disk) -> None:
    fs, root = disk
    fs.mkdir(f"{root}/t-0")
    file = fs.open(f"{root}/t-0/log", create=True)
    fs.rename(f"{root}/t-0", f"{root}/t-0.x-delete")
    file.pwrite(b"x", 0)
    file.close()
    assert fs.read_bytes(f"{root}/t-0.x-delete/log") == b"x"
    fs.mkdir(f"{root}/t-1")
    with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)):
        fs.rename(f"{root}/t-1", f"{root}/t-0.x-delete")


def test_an_unlinked_file_stays_readable_through_its_handle(disk: Disk) -> None:
    fs, root = disk
    file = fs.open(f"{root}/a", create=True)
    file.pwrite(b"kept", 0)
    fs.unlink(f"{root}/a")
    assert file.pread(4, 0) == b"kept"
    file.close()


def test_directories_are_made_with_those_above_them(disk: Disk) -> None:
    fs, root = disk
    fs.make_dirs(f"{root}/a/b/c")
    fs.make_dirs(f"{root}/a/b/c")
    fs.open(f"{root}/a/b/file", create=True).close()
    assert fs.scan_dir(f"{root}/a/b") == {"c": False, "file": True}


def test_write_atomic_replaces_the_content_and_leaves_no_temporary(disk: Disk) -> None:
    fs, root = disk
    fs.write_atomic(f"{root}/checkpoint", b"a long first version")
    fs.write_atomic(f"{root}/checkpoint", b"second")
    assert fs.read_bytes(f"{root}/checkpoint") == b"second"
    assert fs.list_dir(root) == ["checkpoint"]


def test_a_lock_is_exclusive_until_released(disk: Disk) -> None:
    fs, root = disk
    lock = fs.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        fs.lock(f"{root}/.lock")
    lock.release()
    fs.lock(f"{root}/.lock").release()
    assert fs.exists(f"{root}/.lock")


def test_modification_times_are_kept(disk: Disk) -> None:
    fs, root = disk
    fs.open(f"{root}/a", create=True).close()
    assert fs.modified_ms(f"{root}/a") > 1_600_000_000_000
    fs.set_modified_ms(f"{root}/a", 1_650_000_000_123)
    assert fs.modified_ms(f"{root}/a") == 1_650_000_000_123


def test_free_space_is_a_number_of_bytes(disk: Disk) -> None:
    fs, root = disk
    assert 0 < fs.free_bytes(root) <= fs.total_bytes(root)


def test_write_all_writes_everything(disk: Disk) -> None:
    fs, root = disk
    file = fs.open(f"{root}/a", create=True)
    write_all(file, memoryview(bytes(range(256))), 10)
    assert file.pread(1000, 10) == bytes(range(256))
    file.close()
