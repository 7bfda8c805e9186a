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
