"""The metadata log of a KRaft quorum in a folder: snapshots, segments, and damage."""

import random
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from tests.server.controller.metadata_folder import ImmediateWork, MetadataFolder, batch
from tests.server.image.metadata_history import History, image_after

from barnabas.protocol import metadata_records as r
from barnabas.server.controller.kraft_metadata_log import KraftMetadataLog
from barnabas.server.image.metadata_image import EMPTY_IMAGE, MetadataImage
from barnabas.storage.filesystem import OsFileSystem


def topic(number: int) -> r.TopicRecord:
    return r.TopicRecord(name=f"t{number}", topic_id=UUID(int=number))


async def read(folder: MetadataFolder) -> MetadataImage:
    return await KraftMetadataLog(OsFileSystem(), cast(Any, ImmediateWork()), str(folder.path)).read_image()


async def topics(folder: MetadataFolder) -> list[str]:
    return sorted((await read(folder)).topics.ids)


@pytest.fixture
def folder(tmp_path: Path) -> MetadataFolder:
    return MetadataFolder(tmp_path)


async def test_snapshot_is_read_first_and_the_log_from_its_end_on(folder: MetadataFolder) -> None:
    folder.snapshot(2, topic(9))
    folder.snapshot(4, topic(10))
    change = r.LeaderChangeMessage(leader_id=1, voters=[r.Voter(voter_id=1)])
    # The record at offset 4 is in a batch that begins before the end of the snapshot.
    folder.log(0).write_bytes(batch(0, topic(1), topic(2), topic(3)) + batch(3, topic(4), topic(5)) + batch(5, change))
    folder.log(6).write_bytes(batch(6, topic(6)))
    image = await read(folder)
    assert sorted(image.topics.ids) == ["t10", "t5", "t6"]
    assert tuple(image.provenance) == (6, 1, 5, True)


async def test_log_without_a_snapshot_and_empty_folder(folder: MetadataFolder) -> None:
    assert await read(folder) is EMPTY_IMAGE
    folder.log().write_bytes(batch(0, topic(1)))
    (folder.path / "quorum-state").write_text("{}")
    (folder.path / f"{9:020d}-{1:010d}.checkpoint.part").write_bytes(b"partial")
    assert await topics(folder) == ["t1"]


async def test_batch_larger_than_one_read(folder: MetadataFolder) -> None:
    values = [r.ConfigRecord(resource_type=2, resource_name=f"t{n}", name="x", value="v" * 1000) for n in range(2000)]
    folder.log().write_bytes(batch(0, topic(1)) + batch(1, *values) + batch(2001, topic(2)))
    image = await read(folder)
    assert sorted(image.topics.ids) == ["t1", "t2"]
    assert len(image.configs.configs) == 2000


async def test_transaction_without_an_end_has_no_effect(folder: MetadataFolder) -> None:
    begin = r.BeginTransactionRecord()
    folder.log().write_bytes(batch(0, topic(1)) + batch(1, begin, topic(2)) + batch(3, topic(3)))
    assert await topics(folder) == ["t1"]


UNKNOWN = bytes((1, 99, 0, 0))
DAMAGED = bytearray(batch(2, topic(3)))
DAMAGED[-1] ^= 1


@pytest.mark.parametrize(
    "tail",
    [
        bytes(DAMAGED),
        batch(2, topic(3))[:-1],
        batch(2, topic(3))[:5],
        bytes(100),
        batch(3, topic(3)),
        batch(2, topic(3), UNKNOWN),
        batch(2, topic(3), r.RemoveTopicRecord(topic_id=UUID(int=77))),
        (b"\0" * 8 + b"\x7f" + b"\xff" * 90),
    ],
    ids=["crc", "half a batch", "half a header", "zeros", "gap", "unknown record", "contradiction", "huge batch"],
)
async def test_log_is_read_up_to_the_damage(
    folder: MetadataFolder, tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    folder.log().write_bytes(batch(0, topic(1)) + batch(1, topic(2)) + tail)
    assert await topics(folder) == ["t1", "t2"]
    assert "is damaged at offset 2" in caplog.text
    # Nothing that follows the damage is read.
    folder.log(9).write_bytes(batch(9, topic(9)))
    assert await topics(folder) == ["t1", "t2"]


async def test_older_snapshot_replaces_a_damaged_one(folder: MetadataFolder, caplog: pytest.LogCaptureFixture) -> None:
    folder.snapshot(1, topic(1))
    folder.log().write_bytes(batch(0, topic(1)) + batch(1, topic(2)))
    data = folder.snapshot(2, topic(1), topic(2)).read_bytes()
    newest = folder.path / f"{2:020d}-{1:010d}.checkpoint"
    newest.unlink()
    # One without its footer, one with a damaged byte, and one that ends in the middle.
    for damaged in (data[: -len(batch(3, r.SnapshotFooterRecord()))], data[:-9] + b"\xff" + data[-8:], data[:40], b""):
        newest.write_bytes(damaged)
        caplog.clear()
        assert await topics(folder) == ["t1", "t2"]
        assert f"{newest.name} is damaged" in caplog.text


async def test_missing_segment_after_a_damaged_snapshot_leaves_nothing(folder: MetadataFolder) -> None:
    (folder.path / f"{5:020d}-{1:010d}.checkpoint").write_bytes(b"damaged")
    folder.log(5).write_bytes(batch(5, topic(1)))
    assert (await read(folder)).topics.ids == {}


@pytest.mark.parametrize("seed", range(3))
async def test_log_that_ends_anywhere_is_a_prefix(folder: MetadataFolder, seed: int) -> None:
    history, rng = History(seed), random.Random(seed)
    batches, prefixes, records = [], [EMPTY_IMAGE], list[Any]()
    for _ in range(6):
        added = [history.next() for _ in range(rng.randint(1, 4))]
        batches.append(batch(len(records), *added))
        records += added
        prefixes.append(await image_after(records))
    data = b"".join(batches)
    ends = [sum(map(len, batches[:count])) for count in range(len(batches) + 1)]
    for end in range(0, len(data) + 1, 7):
        folder.log().write_bytes(data[:end])
        image = await read(folder)
        expected = prefixes[max(number for number, size in enumerate(ends) if size <= end)]
        assert (image.topics, image.configs, image.acls) == (expected.topics, expected.configs, expected.acls)
