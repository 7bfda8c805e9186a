"""Room that is kept on a disk: taken when there is some, lent in parts, given up for a start."""

from __future__ import annotations

import errno

import pytest
from tests.storage.crash_world import NOW_MS

from barnabas.simulation.disk import SimDisk
from barnabas.storage.reserve import DISK_SHARE, PARTS, Reserve

SIZE = 64 << 10
CAPACITY = SIZE * DISK_SHARE
PATH = "/data/.reserve"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(now_ms=lambda: NOW_MS, capacity=CAPACITY)
    disk.mkdir("/data")
    return disk


def fill(disk: SimDisk) -> None:
    """Leave nothing."""
    file = disk.open("/data/filler", create=True)
    file.pwrite(bytes(disk.free_bytes("/data")), file.size())
    file.close()


def test_it_is_of_the_size_that_is_wanted_or_of_a_part_of_the_disk(disk: SimDisk) -> None:
    Reserve(disk, PATH, 10_000).fill()
    assert disk.size(PATH) == 10_000
    Reserve(disk, PATH, 1 << 30).fill()
    assert disk.size(PATH) == CAPACITY // DISK_SHARE
    Reserve(disk, "/data/none", 0).fill()
    assert not disk.exists("/data/none")


def test_it_is_given_up_only_where_there_is_no_room(disk: SimDisk) -> None:
    reserve = Reserve(disk, PATH, SIZE)
    reserve.fill()
    reserve.give_up()
    assert disk.size(PATH) == SIZE
    fill(disk)
    reserve.give_up()
    assert (disk.size(PATH), disk.free_bytes("/data")) == (0, SIZE)


def test_half_of_it_is_lent_in_parts(disk: SimDisk) -> None:
    reserve = Reserve(disk, PATH, SIZE)
    reserve.fill()
    assert reserve.release_part(), "there is room already"
    assert disk.size(PATH) == SIZE
    loans = 0
    fill(disk)
    while reserve.release_part():
        loans += 1
        fill(disk)
    assert loans == PARTS // 2
    assert disk.size(PATH) == SIZE // 2


def test_it_takes_what_is_left_and_later_the_rest(disk: SimDisk) -> None:
    reserve = Reserve(disk, PATH, SIZE)
    reserve.fill()
    fill(disk)
    reserve.give_up()
    used = disk.open("/data/used", create=True)
    used.pwrite(bytes(10_000), 0)
    reserve.fill()
    assert disk.size(PATH) == SIZE - 10_000
    disk.unlink("/data/filler")
    reserve.fill()
    assert disk.size(PATH) == SIZE


def test_a_disk_that_promises_too_much_is_no_error(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = Reserve(disk, PATH, SIZE)
    fill(disk)
    monkeypatch.setattr(SimDisk, "free_bytes", lambda self, path: SIZE)
    reserve.fill()
    assert disk.size(PATH) == 0
    disk.fail("fallocate", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        reserve.fill()
