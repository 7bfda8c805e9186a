"""A real file system that fills up: appends are refused, reads go on, and appends work again once there is room."""

import random
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.storage.crash_check import read_everything
from tests.storage.crash_world import NOW_MS, make_manager
from tests.storage.lanes import checkpoint, delete_due, load, retain, run, shut_down

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.record_batch import RecordBatchBuilder
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.disk import SimDisk
from barnabas.storage.filesystem import OsFileSystem
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_manager import LogManager
from barnabas.storage.reserve import Reserve

SIZE = 4 << 20
CYCLES = 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 4 MiB."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(tmp_path)], check=False)
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.verify
def test_a_full_disk_is_survived_again_and_again(small_disk: Path) -> None:
    config = LogConfig(segment_bytes=200_000, file_delete_delay_ms=0)
    manager = make_manager(OsFileSystem(), (str(small_disk / "logs"),), config=config)
    manager.open_dirs()
    load(manager)
    log = manager.creation.get_or_create_log(TopicPartition("t", 0), is_new=True)
    builder = RecordBatchBuilder()
    builder.append(None, bytes(50_000), (), NOW_MS)
    batch = builder.build()
    filler = small_disk / "filler"
    for cycle in range(CYCLES):
        filler.write_bytes(bytes(SIZE // 2))
        with pytest.raises(KafkaError) as raised:
            for _ in range(SIZE // len(batch)):
                log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=0)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        end = log.log_end_offset
        assert len(read_everything(log)) == end - log.log_start_offset
        log.update_high_watermark(end)
        checkpoint(manager)
        assert manager.held.online_dirs, cycle
        filler.unlink()
        log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=0)
        assert log.log_end_offset == end + 1
        log.flush()
        log.update_high_watermark(end + 1)
        log.config = replace(config, retention_bytes=200_000)
        retain(manager)
        delete_due(manager)
        log.config = config
    shut_down(manager)
    assert (small_disk / "logs" / ".kafka_cleanshutdown").exists()


def test_retention_that_needs_room_itself_is_lent_some() -> None:
    disk = SimDisk(now_ms=lambda: NOW_MS, capacity=1 << 20)
    config = LogConfig(retention_ms=1, file_delete_delay_ms=0)
    manager = LogManager(
        ["/data"],
        fs=disk,
        config_for=lambda topic: config,
        now_ms=lambda: NOW_MS,
        rng=random.Random(7),
        reserve_bytes=32_000,
    )
    manager.open_dirs()
    load(manager)
    run(manager, manager.reserve_tasks(Reserve.fill))
    log = manager.creation.get_or_create_log(TopicPartition("t", 0), is_new=True)
    builder = RecordBatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
    builder.append(None, bytes(50_000), (), NOW_MS - 1000)
    log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=0)
    log.update_high_watermark(1)
    filler = disk.open("/data/filler", create=True)
    filler.pwrite(bytes(disk.free_bytes("/data")), 0)
    filler.close()
    retain(manager)
    delete_due(manager)
    assert log.log_start_offset == log.log_end_offset == 1
    assert disk.free_bytes("/data") > 50_000
    run(manager, manager.reserve_tasks(Reserve.fill))
    assert disk.size("/data/.reserve") == 32_000
