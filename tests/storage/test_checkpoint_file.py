"""The text checkpoints: what is written, what is read back, and what is refused."""

from __future__ import annotations

import pytest

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.disk import SimDisk
from barnabas.storage.checkpoint_file import OffsetCheckpointFile, read_lines
from barnabas.storage.errors import CorruptCheckpointError

PATH = "/checkpoint"


def disk_with(content: bytes) -> SimDisk:
    disk = SimDisk()
    disk.write_atomic(PATH, content)
    return disk


def test_offsets_are_written_as_kafka_writes_them() -> None:
    disk = SimDisk()
    offsets = {TopicPartition("a.b-c_d", 3): 7, TopicPartition("z", 0): 0}
    file = OffsetCheckpointFile(PATH, disk)
    file.write(offsets)
    assert disk.read_bytes(PATH) == b"0\n2\na.b-c_d 3 7\nz 0 0\n"
    assert file.read() == offsets
    file.write({})
    assert disk.read_bytes(PATH) == b"0\n0\n"
    assert file.read() == {}


def test_no_file_is_no_entry() -> None:
    assert read_lines(SimDisk(), PATH) == []


def test_an_empty_file_is_no_entry_as_kafka_begins_with_one() -> None:
    assert OffsetCheckpointFile(PATH, disk_with(b"")).read() == {}


@pytest.mark.parametrize(
    "content",
    [
        b"0\n",
        b"x\n0\n",
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n0\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na b 1\n",
        b"\xff\xfe",
    ],
)
def test_what_is_no_checkpoint_is_refused_by_name(content: bytes) -> None:
    with pytest.raises(CorruptCheckpointError, match=PATH):
        OffsetCheckpointFile(PATH, disk_with(content)).read()


@pytest.mark.parametrize("mode", ["A", "B"])
def test_a_crash_leaves_the_old_or_the_new_one(mode: str) -> None:
    before, after = {TopicPartition("t", 0): 1}, {TopicPartition("t", 0): 2, TopicPartition("u", 1): 3}
    disk = SimDisk()
    OffsetCheckpointFile(PATH, disk).write(before)
    OffsetCheckpointFile(PATH, disk).write(after)
    for seed in range(20):
        assert OffsetCheckpointFile(PATH, disk.survivor(seed, mode)).read() == after  # type: ignore[arg-type]
    for call in range(1, 6):
        disk = SimDisk()
        OffsetCheckpointFile(PATH, disk).write(before)
        disk.crash_at(call)
        with pytest.raises(BaseException, match="call"):
            OffsetCheckpointFile(PATH, disk).write(after)
        for seed in range(10):
            survivor = disk.survivor(seed, mode)  # type: ignore[arg-type]
            assert OffsetCheckpointFile(PATH, survivor).read() in (before, after)
