"""The machine's own file system, where it promises more than the port does: modes, links, locks, descriptors."""

from __future__ import annotations

import errno
import gc
import os
import stat
from pathlib import Path

import pytest

from barnabas.storage.filesystem import OsFileSystem, TemporaryFile

FS = OsFileSystem()


def test_files_and_folders_are_their_owners_alone(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        FS.make_dirs(str(tmp_path / "a" / "b"))
        FS.open(str(tmp_path / "a" / "f"), create=True).close()
        FS.lock(str(tmp_path / "a" / ".lock")).release()
    finally:
        os.umask(umask)
    modes = [stat.S_IMODE((tmp_path / "a" / name).stat().st_mode) for name in ("b", "f", ".lock")]
    assert modes == [0o700, 0o600, 0o600]


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    for readonly in (False, True):
        with pytest.raises(OSError, match="link") as caught:
            FS.open(str(tmp_path / "link"), readonly=readonly)
        assert caught.value.errno == errno.ELOOP
    with pytest.raises(OSError, match="link"):
        FS.lock(str(tmp_path / "link"))
    assert (tmp_path / "secret").read_bytes() == b"mine"


def test_a_link_without_a_target_exists(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert FS.exists(str(tmp_path / "link"))


def test_a_closed_file_never_reaches_the_next_holder_of_its_number(tmp_path: Path) -> None:
    first = FS.open(str(tmp_path / "first"), create=True)
    number = first._fd
    first.close()
    second = FS.open(str(tmp_path / "second"), create=True)
    assert second._fd == number
    second.pwrite(b"second", 0)
    first.close()
    uses = (
        lambda: first.pread(6, 0),
        lambda: first.pwrite(b"first", 0),
        lambda: first.truncate(0),
        first.size,
        first.fsync,
        first.check_writeback,
        first.fdatasync,
    )
    for use in uses:
        with pytest.raises(OSError, match="Bad file descriptor"):
            use()
    assert second.pread(10, 0) == b"second"
    second.close()


@pytest.mark.parametrize("size", [0, 1, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 100_000])
def test_small_and_large_files_are_read_whole(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "f").write_bytes(content)
    assert FS.read_bytes(str(tmp_path / "f")) == content


def test_nothing_stays_open(tmp_path: Path) -> None:
    folder = Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("no /proc here to count descriptors in")
    gc.collect()
    before = len(list(folder.iterdir()))
    path = str(tmp_path / "f")
    FS.write_atomic(path, b"1")
    lock = FS.lock(f"{path}.lock")
    with pytest.raises(BlockingIOError):
        FS.lock(f"{path}.lock")
    lock.release()
    FS.fsync_dir(str(tmp_path))
    file = FS.open(path)
    file.close()
    assert len(list(folder.iterdir())) == before


def test_an_atomic_write_can_be_taken_in_steps(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    (tmp_path / "f.tmp").write_bytes(b"left behind by a crash, and longer")
    file = TemporaryFile(FS, str(path))
    file.write(b"new")
    file.sync()
    assert path.read_bytes() == b"old"
    file.rename()
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["f"]


class SingleOperations(OsFileSystem):
    """Makes folders and renames files with one call for each: the twin of the compiled functions."""


BOTH = pytest.mark.parametrize("fs", [OsFileSystem(), SingleOperations()], ids=["compiled", "twin"])


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """The names below a folder, with their modes and contents."""
    found = sorted(folder.rglob("*"))
    return {
        str(path.relative_to(folder)): (stat.S_IMODE(path.stat().st_mode), path.read_bytes() if path.is_file() else b"")
        for path in found
    }


@BOTH
def test_many_folders_are_made_with_their_files(tmp_path: Path, fs: OsFileSystem) -> None:
    if type(fs) is OsFileSystem:
        assert fs._has_compiled_names, "without compiled code both are the same"
    existing = tmp_path / "b"
    existing.mkdir(mode=0o755)
    (existing / "kept").write_bytes(b"as it was")
    files = {"empty": b"", "data": b"x" * 10_000, "null": b"a\0b"}
    made: list[str] = []
    umask = os.umask(0o077)
    try:
        fs.make_folders({f"{tmp_path}/{name}": files for name in ("a", "b", "c-\u00e9")}, made)
    finally:
        os.umask(umask)
    assert made == [f"{tmp_path}/a", f"{tmp_path}/c-\u00e9"]
    expected = {"b": (0o755, b""), "b/kept": ((existing / "kept").stat().st_mode & 0o777, b"as it was")}
    for name in ("a", "c-\u00e9"):
        expected |= {name: (0o700, b"")} | {f"{name}/{file}": (0o600, content) for file, content in files.items()}
    assert tree(tmp_path) == expected
    fs.make_folders({}, made)
    assert len(made) == 2


@BOTH
def test_a_folder_that_cannot_be_filled_is_among_those_that_were_made(tmp_path: Path, fs: OsFileSystem) -> None:
    made: list[str] = []
    folders = {f"{tmp_path}/a": {"f": b"1"}, f"{tmp_path}/b": {"n" * 300: b"2", "g": b"3"}, f"{tmp_path}/c": {}}
    with pytest.raises(OSError, match="nnn") as caught:
        fs.make_folders(folders, made)
    assert caught.value.errno == errno.ENAMETOOLONG
    assert made == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert tree(tmp_path).keys() == {"a", "a/f", "b"}
    with pytest.raises(FileNotFoundError, match="missing"):
        fs.make_folders({f"{tmp_path}/missing/d": {"f": b""}}, made)
    assert len(made) == 2


@BOTH
def test_a_file_of_a_new_folder_replaces_no_other(tmp_path: Path, fs: OsFileSystem) -> None:
    made: list[str] = []
    folders = {f"{tmp_path}/a": {"b/../f": b"1"}}
    with pytest.raises(FileNotFoundError):
        fs.make_folders(folders, made)
    folders = {f"{tmp_path}/d": {"f": b"1", "./f": b"2"}}
    with pytest.raises(FileExistsError):
        fs.make_folders(folders, made)
    assert (tmp_path / "d" / "f").read_bytes() == b"1"


@BOTH
def test_many_files_are_renamed_in_order_up_to_an_error(tmp_path: Path, fs: OsFileSystem) -> None:
    for name in ("a", "b", "d"):
        (tmp_path / name).write_bytes(name.encode())
    names = {"a": "b", "b": "e", "missing": "f", "d": "g"}
    with pytest.raises(FileNotFoundError, match="missing"):
        fs.rename_all({f"{tmp_path}/{old}": f"{tmp_path}/{new}" for old, new in names.items()})
    assert {name: content for name, (_, content) in tree(tmp_path).items()} == {"d": b"d", "e": b"a"}


def test_names_for_compiled_code_have_no_null_byte(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="null byte"):
        FS.make_folders({f"{tmp_path}/a\0b": {}}, [])
    with pytest.raises(ValueError, match="null byte"):
        FS.rename_all({f"{tmp_path}/a": f"{tmp_path}/b\0c"})
    assert not list(tmp_path.iterdir())
