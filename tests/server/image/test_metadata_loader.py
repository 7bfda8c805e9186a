"""Batches, metadata transactions and snapshots, and what publishers receive of them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import pytest
from tests.server.image.metadata_history import image_after

from barnabas.protocol import metadata_records as r
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.metadata_records import encode_metadata_record
from barnabas.server.image.metadata_batch_loader import CommittedBatch, Manifest
from barnabas.server.image.metadata_delta import MetadataDelta
from barnabas.server.image.metadata_error import MetadataError
from barnabas.server.image.metadata_image import MetadataImage
from barnabas.server.image.metadata_loader import LoadedSnapshot, MetadataLoader

BEGIN, END, ABORT = r.BeginTransactionRecord(name="n"), r.EndTransactionRecord(), r.AbortTransactionRecord()


def topic(number: int) -> r.TopicRecord:
    return r.TopicRecord(name=f"t{number}", topic_id=UUID(int=number))


class Publisher:
    """Records what it receives."""

    name = "a test"

    def __init__(self) -> None:
        self.updates: list[tuple[MetadataDelta, MetadataImage, Manifest]] = []

    async def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        self.updates.append((delta, image, manifest))

    @property
    def topics(self) -> list[list[str]]:
        """The topics of each image."""
        return [sorted(image.topics.ids) for _, image, _ in self.updates]

    @property
    def offsets(self) -> list[tuple[int, bool]]:
        """The position of each image."""
        provenances = [manifest.provenance for _, _, manifest in self.updates]
        return [(one.last_contained_offset, one.is_offset_batch_aligned) for one in provenances]


class Log:
    """A metadata log in front of a loader."""

    def __init__(self) -> None:
        self.end = 0
        self.high_watermark: int | None = None
        self.loader = MetadataLoader(high_watermark=lambda: self.high_watermark, lock=asyncio.Lock())
        self.publisher = Publisher()
        self._is_installed = False

    async def _install(self) -> None:
        if not self._is_installed:
            self._is_installed = True
            await self.loader.install_publishers(self.publisher)

    async def commit(self, *records: Any, high_watermark: int | None = None) -> None:
        await self._install()
        values = [encode_metadata_record(record) for record in records]
        last = self.end + max(len(values), 1) - 1
        batch = CommittedBatch(self.end, last, 1, 5, values, 100)
        self.end = last + 1
        self.high_watermark = high_watermark or self.end
        await self.loader.handle_commit(batch)

    async def load(self, offset: int, *records: Any) -> None:
        await self._install()
        self.end = self.high_watermark = offset + 1
        await self.loader.handle_load_snapshot(LoadedSnapshot(offset, 2, 6, batches(records)))


async def batches(records: Sequence[Any]) -> AsyncIterator[Sequence[bytes]]:
    for record in records:
        yield [encode_metadata_record(record)]


async def test_each_batch_is_published() -> None:
    log = Log()
    await log.commit(topic(1))
    await log.commit()  # a control batch
    await log.commit(topic(2), topic(3))
    assert log.publisher.topics == [["t1"], ["t1"], ["t1", "t2", "t3"]]
    assert log.publisher.offsets == [(0, True), (1, True), (3, True)]
    delta, image, manifest = log.publisher.updates[-1]
    assert delta.topics is not None
    assert set(delta.topics.created) == {"t2", "t3"}
    assert (manifest.is_snapshot, manifest.num_batches, manifest.num_bytes) == (False, 1, 100)
    assert (image.provenance.last_contained_epoch, image.provenance.last_contained_log_time_ms) == (1, 5)
    assert log.loader.image is image


async def test_publishers_wait_until_the_replica_has_caught_up_once() -> None:
    log = Log()
    await log.commit(topic(1), high_watermark=3)
    await log.commit(topic(2), high_watermark=3)
    assert log.publisher.updates == []
    await log.commit(topic(3), high_watermark=3)
    assert log.publisher.topics == [["t1", "t2", "t3"]]
    assert log.publisher.updates[0][2].is_snapshot
    # Later the replica may be behind again.
    await log.commit(topic(4), high_watermark=9)
    assert log.publisher.topics[1:] == [["t1", "t2", "t3", "t4"]]


async def test_unknown_high_watermark_means_behind() -> None:
    log = Log()
    await log.loader.handle_commit(CommittedBatch(0, 0, 1, 5, [encode_metadata_record(topic(1))], 1))
    assert log.publisher.updates == []


async def test_later_publisher_receives_the_whole_image_first() -> None:
    log = Log()
    await log.commit(topic(1))
    second = Publisher()
    await log.loader.install_publishers(second)
    # The quorum may write no record for a long time.
    assert second.topics == [["t1"]]
    await log.commit(topic(2))
    await log.commit(topic(3))
    assert second.topics == [["t1"], ["t1", "t2"], ["t1", "t2", "t3"]]
    delta = second.updates[0][0]
    assert delta.topics is not None
    assert set(delta.topics.created) == {"t1"}


async def test_publisher_that_is_installed_during_a_publication_receives_each_change_once() -> None:
    log = Log()
    await log.commit(topic(1))
    second = Publisher()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(log.commit(topic(2)))
        tasks.create_task(log.loader.install_publishers(second))
        tasks.create_task(log.commit(topic(3)))
    assert second.topics == [["t1", "t2"], ["t1", "t2", "t3"]]


async def test_transaction_is_published_at_its_end() -> None:
    log = Log()
    await log.commit(topic(1), BEGIN, topic(2))
    await log.commit(topic(3))
    assert log.publisher.topics == [["t1"]]
    # The image ends in the middle of a batch, before the transaction.
    assert log.publisher.offsets == [(0, False)]
    await log.commit(topic(4), END, topic(5))
    assert log.publisher.topics[1:] == [["t1", "t2", "t3", "t4", "t5"]]
    assert log.publisher.offsets[1:] == [(6, True)]


async def test_aborted_transaction_has_no_effect() -> None:
    log = Log()
    await log.commit(topic(1))
    await log.commit(BEGIN, topic(2))
    await log.commit(topic(3), ABORT, topic(4))
    assert log.publisher.topics == [["t1"], ["t1", "t4"]]
    await log.commit(BEGIN, topic(2), ABORT)
    assert log.publisher.topics[2:] == [["t1", "t4"]]
    delta = log.publisher.updates[-1][0]
    assert delta.topics is None
    assert log.publisher.offsets[-1] == (8, True)


async def test_log_that_begins_with_a_transaction_is_published_after_it() -> None:
    log = Log()
    await log.commit(BEGIN, topic(1))
    assert log.publisher.updates == []
    await log.commit(END)
    assert log.publisher.topics == [["t1"]]


@pytest.mark.parametrize("records", [(BEGIN, BEGIN), (END,), (ABORT,), (BEGIN, END, END), (topic(1), topic(1))])
async def test_contradiction_is_fatal(records: tuple[Any, ...]) -> None:
    log = Log()
    if records == (topic(1), topic(1)):
        await log.commit(topic(1))
    with pytest.raises(MetadataError):
        await log.commit(*records)
    # Nothing can be loaded after it: the image misses records.
    with pytest.raises(AssertionError):
        await log.commit(topic(9))


async def test_unknown_record_is_fatal() -> None:
    for value in (bytes((1, 99, 0, 0)), bytes((1, 2, 1, 0))):
        log = Log()
        log.high_watermark = 1
        with pytest.raises(ProtocolError):
            await log.loader.handle_commit(CommittedBatch(0, 0, 1, 5, [value], 1))
        assert log.publisher.updates == []


async def test_snapshot_publishes_the_difference() -> None:
    log = Log()
    config = r.ConfigRecord(resource_type=4, resource_name="", name="x", value="1")
    await log.commit(topic(1), topic(2), topic(3), config)
    await log.load(9, topic(2), topic(3), topic(4), config)
    delta, image, manifest = log.publisher.updates[-1]
    assert sorted(image.topics.ids) == ["t2", "t3", "t4"]
    assert delta.topics is not None
    assert ([one.name for one in delta.topics.deleted.values()], list(delta.topics.created)) == (["t1"], ["t4"])
    assert delta.configs is None
    assert manifest.is_snapshot
    assert (*image.provenance,) == (9, 2, 6, True)
    await log.commit(topic(5))
    assert log.publisher.topics[-1] == ["t2", "t3", "t4", "t5"]
    assert log.publisher.offsets[-1] == (10, True)


async def test_snapshot_discards_an_open_transaction() -> None:
    log = Log()
    await log.commit(topic(1))
    await log.commit(BEGIN, topic(2))
    await log.load(9, topic(3))
    await log.commit(topic(4))
    assert log.publisher.topics == [["t1"], ["t3"], ["t3", "t4"]]


async def test_failing_publisher_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Publisher):
        name = "a failing publisher"

        async def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
            raise ValueError("no")

    log = Log()
    second = Publisher()
    await log.loader.install_publishers(Failing(), second)
    await log.commit(topic(1))
    await log.commit(topic(2))
    assert second.topics == log.publisher.topics == [["t1"], ["t1", "t2"]]
    assert caplog.text.count("a failing publisher cannot publish") == 2


async def test_loop_runs_other_tasks_while_a_large_batch_is_loaded() -> None:
    turns = 0
    is_loaded = False

    async def count() -> None:
        nonlocal turns
        while not is_loaded:
            turns += 1
            await asyncio.sleep(0)

    log, records = Log(), [topic(number) for number in range(3000)]
    other = asyncio.create_task(count())
    await log.commit(*records)
    after_commit = turns
    await log.load(9999, *records[:2000])
    is_loaded = True
    await other
    assert after_commit >= 30
    assert turns - after_commit >= 20
    assert len(log.loader.image.topics.ids) == 2000
    assert log.loader.image.topics == (await image_after(records[:2000])).topics
