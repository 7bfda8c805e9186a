"""What the simulated disk keeps and loses, and how it fails."""

import errno
import os

import pytest

from barnabas.simulation.disk import Mode, SimCrash, SimDisk
from barnabas.simulation.disk_nodes import SECTOR
from barnabas.storage.filesystem import write_all

SEEDS = range(60)
POWER_LOSS: tuple[Mode, Mode] = ("A", "B")


def _disk() -> SimDisk:
    disk = SimDisk()
    disk.mkdir("/d")
    disk.make_everything_durable()
    return disk


def _images(disk: SimDisk, modes: tuple[Mode, ...] = POWER_LOSS) -> list[dict[str, bytes]]:
    return [disk.survivor(seed, mode).tree() for mode in modes for seed in SEEDS]


def test_an_unsynced_write_may_be_lost_kept_or_torn_at_sectors() -> None:
    disk = _disk()
    file = disk.open("/d/a", create=True)
    file.fsync()
    disk.fsync_dir("/d")
    file.pwrite(b"x" * (3 * SECTOR), 0)
    seen = {tree["/d/a"] for tree in _images(disk)}
    assert b"" in seen
    assert b"x" * (3 * SECTOR) in seen
    assert bytes(SECTOR) + b"x" * SECTOR in {content[: 2 * SECTOR] for content in seen}, "a hole reads as zeros"
    for content in seen:
        for start in range(0, len(content), SECTOR):
            assert len(set(content[start : start + SECTOR])) == 1, "sectors are whole"


def test_synced_bytes_survive_every_power_loss() -> None:
    disk = _disk()
    file = disk.open("/d/a", create=True)
    file.pwrite(b"kept", 0)
    file.fdatasync()
    disk.fsync_dir("/d")
    file.pwrite(b"more", 4)
    for tree in _images(disk):
        assert tree["/d/a"][:4] == b"kept"


def test_fsync_of_a_file_does_not_make_its_name_durable() -> None:
    disk = _disk()
    file = disk.open("/d/a", create=True)
    file.pwrite(b"kept", 0)
    file.fsync()
    names = {tuple(tree) for tree in _images(disk)}
    assert names == {(), ("/d/a",)}
    assert all(tree.get("/d/a", b"kept") == b"kept" for tree in _images(disk))


def test_fsync_dir_makes_names_durable_and_not_their_content() -> None:
    disk = _disk()
    disk.open("/d/a", create=True).pwrite(b"x", 0)
    disk.fsync_dir("/d")
    contents = {tree["/d/a"] for tree in _images(disk)}
    assert {b"", b"x"} <= contents


def test_a_directory_needs_an_fsync_of_its_parent() -> None:
    disk = _disk()
    disk.mkdir("/d/e")
    disk.open("/d/e/a", create=True)
    disk.fsync_dir("/d/e")
    assert any("/d/e/a" not in tree for tree in _images(disk))
    disk.fsync_dir("/d")
    assert all("/d/e/a" in tree for tree in _images(disk))


def test_mode_a_keeps_a_prefix_of_directory_changes() -> None:
    disk = _disk()
    for name in "abc":
        disk.open(f"/d/{name}", create=True)
    names = {"".join(path[-1] for path in tree) for tree in _images(disk, ("A",))}
    assert names == {"", "a", "ab", "abc"}


def test_mode_b_keeps_any_subset_but_the_order_of_one_name() -> None:
    disk = _disk()
    for name in "ab":
        disk.open(f"/d/{name}", create=True)
    disk.rename("/d/a", "/d/c")
    names = {"".join(path[-1] for path in tree) for tree in _images(disk, ("B",))}
    assert names == {"", "a", "b", "ab", "c", "bc"}


def test_a_replaced_file_is_the_old_or_the_new_one() -> None:
    disk = _disk()
    disk.write_atomic("/d/checkpoint", b"old")
    calls = disk.calls
    disk.write_atomic("/d/checkpoint", b"newer")
    steps = disk.calls - calls
    for step in range(1, steps + 1):
        disk = _disk()
        disk.write_atomic("/d/checkpoint", b"old")
        disk.crash_at(step)
        with pytest.raises(SimCrash):
            disk.write_atomic("/d/checkpoint", b"newer")
        assert {tree["/d/checkpoint"] for tree in _images(disk, ("A", "B", "kill"))} <= {b"old", b"newer"}


def test_a_rename_without_fsync_may_leave_an_empty_file() -> None:
    disk = _disk()
    file = disk.open("/d/checkpoint.tmp", create=True)
    file.pwrite(b"new", 0)
    disk.rename("/d/checkpoint.tmp", "/d/checkpoint")
    disk.fsync_dir("/d")
    assert b"" in {tree["/d/checkpoint"] for tree in _images(disk)}


def test_kill_keeps_the_cache_and_what_is_pending_stays_pending() -> None:
    disk = _disk()
    disk.open("/d/a", create=True).pwrite(b"x" * 1000, 0)
    disk.crash()
    after_kill = disk.survivor(0, "kill")
    assert after_kill.tree() == {"/d/a": b"x" * 1000}
    assert any(tree != {"/d/a": b"x" * 1000} for tree in _images(after_kill))


def test_the_same_seed_gives_the_same_disk() -> None:
    def images() -> list[dict[str, bytes]]:
        disk = _disk()
        for name in "abcdef":
            disk.open(f"/d/{name}", create=True).pwrite(name.encode() * 2000, 0)
        return _images(disk)

    assert images() == images()
    assert len({str(tree) for tree in images()}) > len(SEEDS)


def test_a_crash_stops_the_machine_at_the_call_and_for_ever() -> None:
    disk = _disk()
    disk.crash_at(2)
    file = disk.open("/d/a", create=True)
    with pytest.raises(SimCrash, match="pwrite"):
        file.pwrite(b"abcdef", 0)
    for call in (lambda: file.pread(1, 0), file.fsync, lambda: disk.exists("/d/a"), lambda: disk.list_dir("/d")):
        with pytest.raises(SimCrash):
            call()
    assert disk.survivor(0, "kill").tree() == {"/d/a": b"abc"}, "half of the interrupted write reached the cache"
    assert "CRASH at pwrite /d/a" in disk.log[-1]


def test_after_a_failed_fsync_the_next_one_succeeds_and_the_bytes_are_gone() -> None:
    disk = _disk()
    file = disk.open("/d/a", create=True)
    disk.fsync_dir("/d")
    file.pwrite(b"lost", 0)
    disk.fail("fsync", errno.EIO, "/d/a")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.fsync()
    file.fsync()
    assert file.pread(4, 0) == b"lost", "the cache still shows them"
    assert {tree["/d/a"] for tree in _images(disk)} == {b""}


def test_a_full_disk_takes_part_of_a_write_and_then_none() -> None:
    disk = SimDisk(capacity=10)
    file = disk.open("/a", create=True)
    assert file.pwrite(b"x" * 8, 0) == 8
    assert disk.free_bytes("/") == 2
    assert file.pwrite(b"y" * 8, 8) == 2
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        file.pwrite(b"y", 10)
    assert file.pwrite(b"z", 0) == 1, "no new space is needed"
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        disk.open("/b", create=True).fallocate(0, 1)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        write_all(file, b"long enough", 5)
    file.truncate(4)
    assert disk.free_bytes("/") == 6
    disk.unlink("/a")
    assert disk.free_bytes("/") == 6, "an open handle holds the space"
    file.close()
    assert disk.free_bytes("/") == 10


def test_injected_errors_strike_where_they_were_put() -> None:
    disk = _disk()
    file = disk.open("/d/a.log", create=True)
    disk.fail("pwrite", errno.EIO, ".log", skip=1, times=1)
    file.pwrite(b"1", 0)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.pwrite(b"2", 1)
    file.pwrite(b"2", 1)
    disk.fail_read("/d/a.log", 1, 1)
    assert file.pread(1, 0) == b"1"
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.pread(2, 0)
    disk.heal()
    assert file.pread(2, 0) == b"12"


def test_open_files_are_limited() -> None:
    disk = SimDisk(max_open_files=2)
    first = disk.open("/a", create=True)
    disk.open("/b", create=True)
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        disk.open("/c", create=True)
    first.close()
    disk.open("/c", create=True)


def test_locks_end_with_the_incarnation() -> None:
    disk = SimDisk()
    disk.lock("/.lock")
    disk.crash()
    disk.survivor(0, "kill").lock("/.lock")


def test_rot_changes_cache_and_durable_image() -> None:
    disk = _disk()
    file = disk.open("/d/a", create=True)
    file.pwrite(b"good", 0)
    file.fsync()
    disk.fsync_dir("/d")
    disk.overwrite("/d/a", 1, b"X")
    assert all(tree["/d/a"] == b"gXod" for tree in _images(disk))
    disk.cut("/d/a", 1)
    assert all(tree["/d/a"] == b"g" for tree in _images(disk))
