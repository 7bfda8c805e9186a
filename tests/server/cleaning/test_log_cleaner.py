"""The cleaner of a running broker: by itself, at somebody's wish, and when its processes die."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.waiting import until

from barnabas import Broker
from barnabas.clients.admin import Admin, ConfigChange, ConfigResource, raise_first
from barnabas.clients.consumer import Consumer
from barnabas.clients.producer import Producer
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.cleaning import cleaning_pass, worker_pool
from barnabas.server.cleaning.cleaner_status import CleanerStatus
from barnabas.server.cleaning.log_cleaner import LogCleaner
from barnabas.storage.cleaning.clean_job import CleanJob
from barnabas.storage.errors import LogDirFailedError
from barnabas.storage.segment_swap import SegmentSwap

TOPIC, TP = "t", TopicPartition("t", 0)
PROCESS = {"log.cleaner.worker": "process"}
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "20000"}
ENDLESS = {"log.cleaner.io.max.bytes.per.second": "1000", "log.cleaner.backoff.ms": "50"}
"""A pass begins as soon as a segment is full, and the smallest of them takes longer than the test."""
DEADLINE = 60.0


async def fill(broker: Broker, pairs: Iterable[tuple[str, str | None]], topic: str = TOPIC) -> None:
    async with Producer(broker.bootstrap, batch_size=2000) as producer:
        sent = [
            await producer.send(topic, None if value is None else value.encode(), key=key.encode(), partition=0)
            for key, value in pairs
        ]
        await asyncio.gather(*sent)


def churn(count: int = 3000, keys: int = 20) -> list[tuple[str, str | None]]:
    return [(f"k{number % keys}", f"{number}" + "x" * 30) for number in range(count)]


async def state_of(broker: Broker, topic: str = TOPIC) -> dict[str, str]:
    """What a consumer from offset 0 ends with."""
    latest: dict[str, str] = {}
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        partition = TopicPartition(topic, 0)
        end = (await consumer.end_offsets([partition]))[partition]
        consumer.assign([partition])
        while await consumer.position(partition) < end:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    key = record.key.decode()
                    if record.value is None:
                        latest.pop(key, None)
                    else:
                        latest[key] = record.value.decode()
    return latest


def cleaner_of(broker: Broker) -> LogCleaner:
    return broker.server.state.cleaner


def children() -> list[int]:
    """The processes that this one started for the cleaner."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == os.getpid() and b"cleaning.worker" in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
            except (OSError, IndexError):
                continue
    return found


async def test_a_dirty_log_is_cleaned_without_being_asked_for(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path, config={"log.cleaner.backoff.ms": "50"}) as broker:
        await broker.acreate_topic(TOPIC, 1, COMPACT)
        pairs = churn()
        await fill(broker, pairs)
        log = broker.server.state.log_manager.logs[TP]
        await until(lambda: TP in cleaner_of(broker).reports, "a pass of the cleaner")
        await until(lambda: log.size < 45_000, "the log has been cleaned")
        assert await state_of(broker) == dict(pairs)
        assert log.log_end_offset == len(pairs)
        checkpoint = tmp_path / "cleaner-offset-checkpoint"
        await until(checkpoint.exists, "a cleaner checkpoint")


def test_an_embedded_broker_compacts_when_told() -> None:
    with Broker() as broker:
        broker.create_topic(TOPIC, 2, {"cleanup.policy": "compact"})
        pairs = churn(500)
        asyncio.run(fill(broker, pairs))
        (report,) = broker.compact(TOPIC)
        assert report.stats.messages_written == 20 and report.reclaimed_bytes > 0
        assert asyncio.run(state_of(broker)) == dict(pairs)
        assert broker.compact(TOPIC, 0) == [], "nothing is dirty any more"
        asyncio.run(fill(broker, [("k1", None)]))
        assert broker.compact(TOPIC, 1) == []
        assert len(broker.compact(TOPIC, 0)) == 1
        assert "k1" not in asyncio.run(state_of(broker))


def test_tombstones_go_from_a_clean_log_when_their_time_is_over() -> None:
    with Broker() as broker:
        broker.create_topic(TOPIC, 1, {"cleanup.policy": "compact", "delete.retention.ms": "0"})
        asyncio.run(fill(broker, [*churn(200), ("k1", None)]))
        log = broker.server.state.log_manager.logs[TopicPartition(TOPIC, 0)]
        assert len(broker.compact(TOPIC)) == 1, "which gives the tombstone its time"
        (report,) = broker.compact(TOPIC)
        assert report.reclaimed_bytes > 0 and (report.first_dirty_offset, report.next_dirty_offset) == (201, 201)
        assert all(
            record.value is not None for _, batch in log.segments[0].records.batches() for record in batch.records()
        )
        assert broker.compact(TOPIC) == [], "there is nothing left that could go"
        assert log.log_end_offset == 201 and "k1" not in asyncio.run(state_of(broker))


def test_tombstones_stay_while_their_time_lasts() -> None:
    with Broker() as broker:
        broker.create_topic(TOPIC, 1, {"cleanup.policy": "compact", "delete.retention.ms": "3600000"})
        asyncio.run(fill(broker, [*churn(200), ("k1", None)]))
        assert [len(broker.compact(TOPIC)) for _ in range(2)] == [1, 0]


async def test_what_cannot_be_compacted_is_refused(tmp_path: Path) -> None:
    async with Broker({TOPIC: 1}, data_dir=tmp_path) as broker:
        with pytest.raises(KafkaError) as refused:
            await broker.acompact(TOPIC)
        assert refused.value.code is ErrorCode.INVALID_CONFIG
        with pytest.raises(KafkaError) as unknown:
            await broker.acompact("nothing")
        assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_min_compaction_lag_is_heeded_unless_it_is_told_not_to_be(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path) as broker:
        await broker.acreate_topic(TOPIC, 1, {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"})
        await fill(broker, churn(200))
        assert await broker.acompact(TOPIC) == []
        (report,) = await cleaner_of(broker).compact(TOPIC, ignore_lag=True)
        assert report.stats.messages_written == 20


async def test_a_process_that_is_killed_costs_nothing_but_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = PROCESS | ENDLESS
    async with Broker(data_dir=tmp_path, config=settings) as broker:
        await broker.acreate_topic(TOPIC, 1, COMPACT)
        pairs = churn(8000)
        await fill(broker, pairs)
        await until(lambda: bool(children()), "a worker process")
        await until(lambda: TP in cleaner_of(broker).passes, "a pass of the cleaner")
        for process in children():
            os.kill(process, signal.SIGKILL)
        await until(lambda: "failed and is retried" in caplog.text, "a log line about the failure")
        assert cleaner_of(broker).manager.uncleanable == {}
        broker_config = ConfigResource(ConfigResourceType.BROKER, "")
        async with Admin(broker.bootstrap) as admin:
            fast = [ConfigChange("log.cleaner.io.max.bytes.per.second", "1e12")]
            raise_first(await admin.alter_configs({broker_config: fast}))
        await until(lambda: TP in cleaner_of(broker).reports, "a second pass of the cleaner")
        assert await state_of(broker) == dict(pairs)


async def test_the_rate_holds_for_what_is_read_and_written(tmp_path: Path) -> None:
    settings = {"log.cleaner.enable": "false", "log.cleaner.io.max.bytes.per.second": "1000000"}
    async with Broker(data_dir=tmp_path, config=settings) as broker:
        await broker.acreate_topic(TOPIC, 1, COMPACT)
        await fill(broker, churn(8000))
        (report, *_) = await broker.acompact(TOPIC)
        moved = report.stats.map_bytes_read + report.stats.bytes_read + report.stats.bytes_written
        assert moved > 400_000
        assert moved / report.seconds < 1_300_000


async def test_memory_goes_back_when_nobody_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(children())
    async with Broker(data_dir=tmp_path, config=PROCESS | {"log.cleaner.enable": "false"}) as broker:
        await broker.acreate_topic(TOPIC, 1, COMPACT)
        assert set(children()) == before, "none is started in advance"
        await fill(broker, churn(500))
        await broker.acompact(TOPIC)
        (process,) = set(children()) - before
        await fill(broker, churn(500))
        await broker.acompact(TOPIC)
        assert process in children(), "one process serves several passes"
        monkeypatch.setattr(worker_pool, "IDLE_SECONDS", 0.2)
        await fill(broker, churn(500))
        await broker.acompact(TOPIC)
        await until(lambda: process not in children(), "the end of the worker process")
        await fill(broker, churn(500))
        assert len(await broker.acompact(TOPIC)) == 1
    assert set(children()) == before, "none outlives its broker"


async def test_an_embedded_broker_starts_no_process(tmp_path: Path) -> None:
    before = set(children())
    async with Broker(data_dir=tmp_path, config={"log.cleaner.enable": "false"}) as broker:
        await broker.acreate_topic(TOPIC, 1, COMPACT)
        await fill(broker, churn(500))
        assert len(await broker.acompact(TOPIC)) == 1
        assert set(children()) == before


async def test_a_topic_can_be_deleted_in_the_middle_of_a_pass(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path, config=ENDLESS) as broker:
        await broker.acreate_topic(TOPIC, 1, COMPACT)
        await fill(broker, churn(8000))
        await until(lambda: TP in cleaner_of(broker).passes, "a pass of the cleaner")
        cleaner_of(broker).manager.clean_offsets[TP] = 5
        await broker.adelete_topic(TOPIC)
        assert cleaner_of(broker).passes == {} and cleaner_of(broker).manager.clean_offsets == {}
        await broker.acreate_topic(TOPIC, 1, COMPACT)
        await fill(broker, [("a", "1"), ("a", "2")])
        assert await state_of(broker) == {"a": "2"}


async def test_a_pass_that_is_given_up_while_its_beginning_is_written_down_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins, may_go_on, jobs = asyncio.Event(), asyncio.Event(), list[CleanJob]()
    write = LogCleaner._write_checkpoint

    async def held(cleaner: LogCleaner, directory: str) -> None:
        begins.set()
        await may_go_on.wait()
        await write(cleaner, directory)

    async def noted(job: CleanJob, told: object) -> None:
        jobs.append(job)

    monkeypatch.setattr(LogCleaner, "_write_checkpoint", held)
    async with Broker(data_dir=tmp_path, config=ENDLESS) as broker:
        monkeypatch.setattr(broker.server._ports.cleaning, "run", noted)
        await broker.acreate_topic(TOPIC, 1, COMPACT)
        await fill(broker, churn())
        await begins.wait()
        going = cleaner_of(broker).passes[TP]
        deleting = asyncio.create_task(broker.adelete_topic(TOPIC))
        await until(lambda: going._is_aborted, "the end of the aborted pass")
        may_go_on.set()
        await deleting
    assert jobs == []


async def test_a_change_of_policy_ends_the_pass(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path, config=ENDLESS) as broker:
        await broker.acreate_topic(TOPIC, 1, COMPACT)
        pairs = churn(8000)
        await fill(broker, pairs)
        await until(lambda: TP in cleaner_of(broker).passes, "a pass of the cleaner")
        async with Admin(broker.bootstrap) as admin:
            topic = ConfigResource(ConfigResourceType.TOPIC, TOPIC)
            raise_first(await admin.alter_configs({topic: [ConfigChange("cleanup.policy", "delete")]}))
        await until(lambda: not cleaner_of(broker).passes, "the end of the pass")
        assert TP not in cleaner_of(broker).reports
        assert await state_of(broker) == dict(pairs)


async def test_a_stop_in_the_middle_of_a_pass_is_a_clean_one(tmp_path: Path) -> None:
    pairs = churn(8000)
    async with Broker(data_dir=tmp_path, config=ENDLESS) as broker:
        await broker.acreate_topic(TOPIC, 1, COMPACT)
        await fill(broker, pairs)
        await until(lambda: TP in cleaner_of(broker).passes, "a pass of the cleaner")
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    async with Broker(data_dir=tmp_path) as broker:
        assert await state_of(broker) == dict(pairs)
        await broker.acompact(TOPIC)
        assert await state_of(broker) == dict(pairs)


async def test_a_damaged_log_is_marked_and_others_go_on(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path, config={"log.cleaner.enable": "false"}) as broker:
        for topic in (TOPIC, "sound"):
            await broker.acreate_topic(topic, 1, COMPACT)
            await fill(broker, churn(1500), topic)
        first = sorted((tmp_path / "t-0").glob("*.log"))[0]
        data = bytearray(first.read_bytes())
        data[16] = 9  # the magic of the first batch
        first.write_bytes(data)
        with pytest.raises(KafkaError, match="cannot be cleaned"):
            await broker.acompact(TOPIC)
        assert len(await broker.acompact("sound")) == 1
        state = broker.server.state
        facts = CleanerStatus(state.cleaner).facts()
        partitions = {one["topic"]: one for one in facts["partitions"]}  # type: ignore[attr-defined]
        assert partitions[TOPIC]["uncleanable"] and partitions["sound"]["uncleanable"] is None
        metrics = facts["metrics"]
        name = f"kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count,logDirectory={tmp_path}"
        assert metrics[name] == 1  # type: ignore[index]


async def test_a_disk_that_fails_in_a_swap_takes_its_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(data_dir=tmp_path, config={"log.cleaner.enable": "false"}) as broker:
        await broker.acreate_topic(TOPIC, 1, COMPACT)
        await fill(broker, churn(500))

        def failing(swap: SegmentSwap) -> None:
            raise OSError(5, "the disk failed")

        monkeypatch.setattr(SegmentSwap, "finish", failing)
        with pytest.raises(KafkaError):
            await broker.acompact(TOPIC)
        assert broker.server.failed.is_set()
        failure = broker.server.state.log_manager.dirs[0].failure
        assert isinstance(failure, LogDirFailedError)


async def test_a_swap_that_lacks_a_handle_is_finished_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning_pass, "FINISH_RETRY_SECONDS", 0.0)
    finish, attempts = SegmentSwap.finish, 0

    def lacking(swap: SegmentSwap) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise OSError(errno.EMFILE, "too many open files")
        finish(swap)

    monkeypatch.setattr(SegmentSwap, "finish", lacking)
    async with Broker(data_dir=tmp_path, config={"log.cleaner.enable": "false"}) as broker:
        await broker.acreate_topic(TOPIC, 1, COMPACT)
        await fill(broker, churn(1500))
        before = await state_of(broker)
        assert await broker.acompact(TOPIC)
        assert await state_of(broker) == before
        assert not list((tmp_path / "t-0").glob("*.swap"))


async def test_a_swap_that_lacks_handles_for_ever_takes_its_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning_pass, "FINISH_RETRY_SECONDS", 0.0)

    def lacking(swap: SegmentSwap) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(SegmentSwap, "finish", lacking)
    async with Broker(data_dir=tmp_path, config={"log.cleaner.enable": "false"}) as broker:
        await broker.acreate_topic(TOPIC, 1, COMPACT)
        await fill(broker, churn(500))
        with pytest.raises(KafkaError):
            await broker.acompact(TOPIC)
        assert broker.server.failed.is_set()


async def test_compact_and_delete_does_both(tmp_path: Path) -> None:
    config = {"log.cleaner.enable": "false"}
    async with Broker(data_dir=tmp_path, config=config) as broker:
        await broker.acreate_topic(TOPIC, 1, COMPACT | {"cleanup.policy": "compact,delete", "retention.bytes": "30000"})
        await fill(broker, churn(6000, keys=2000))
        log = broker.server.state.log_manager.logs[TP]
        await broker.acompact(TOPIC)
        assert log.log_start_offset > 0
        assert log.size < 60_000


async def test_offsets_of_groups_are_compacted(tmp_path: Path) -> None:
    config = {"offsets.topic.num.partitions": "1", "offsets.topic.segment.bytes": "100000"}
    async with Broker({TOPIC: 1}, data_dir=tmp_path, config=config) as broker:
        await fill(broker, [("a", "1")])
        async with Consumer(broker.bootstrap, group_id="g", enable_auto_commit=False) as consumer:
            consumer.assign([TP])
            for number in range(200):
                await consumer.commit({TP: number})
        log = broker.server.state.log_manager.logs[TopicPartition("__consumer_offsets", 0)]
        before = log.size
        assert await broker.acompact("__consumer_offsets")
        assert log.size < before / 20
    async with (
        Broker({TOPIC: 1}, data_dir=tmp_path, config=config) as broker,
        Consumer(broker.bootstrap, group_id="g", enable_auto_commit=False) as consumer,
    ):
        found = (await consumer.committed([TP]))[TP]
        assert found is not None and found.offset == 199


async def test_a_pass_logs_its_start_and_its_phases(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "barnabas.cleaner"):
        async with Broker(data_dir=tmp_path, config={"log.cleaner.enable": "true"}) as broker:
            await broker.acreate_topic(TOPIC, config=COMPACT)
            await fill(broker, churn())
            await broker.acompact(TOPIC)
            (report,) = cleaner_of(broker).reports.values()
    lines = [record.message for record in caplog.records if record.name == "barnabas.cleaner"]
    assert lines[0] == "Starting the log cleaner"
    assert lines[-1] == "Shutting down the log cleaner"
    begun = lines.index("Beginning cleaning of log t-0")
    segments = report.segments_before
    found = f"Building offset map for log t-0 for {segments} segments in offset range [0, {report.next_dirty_offset})"
    assert lines[begun + 1 : begun + 3] == [found, "Offset map for log t-0 complete"]
    assert lines[begun + 3] == "Cleaning log t-0"
    assert lines[begun + 4].startswith(f"cleaned t-0 up to offset {report.next_dirty_offset}: ")
