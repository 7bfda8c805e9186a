"""A real file system that fills up: appends are refused, reads go on, and appends work again once there is room."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.storage.crash_check import read_everything
from tests.storage.crash_world import NOW_MS, make_manager

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.record_batch import RecordBatchBuilder
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.filesystem import OsFileSystem
from barnabas.storage.log_config import LogConfig

pytestmark = pytest.mark.verify
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


def test_a_full_disk_is_survived_again_and_again(small_disk: Path) -> None:
    config = LogConfig(segment_bytes=200_000, file_delete_delay_ms=0)
    manager = make_manager(OsFileSystem(), (str(small_disk / "logs"),), config=config)
    manager.open_dirs()
    manager.load()
    log = manager.get_or_create_log(TopicPartition("t", 0), is_new=True)
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
        manager.tick_checkpoint()
        assert manager.online_dirs, cycle
        filler.unlink()
        log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=0)
        assert log.log_end_offset == end + 1
        log.flush()
        log.update_high_watermark(end + 1)
        log.config = config.with_changes(retention_bytes=200_000)
        manager.tick_retention()
        manager.tick_deletions()
        log.config = config
    manager.shutdown()
    assert (small_disk / "logs" / ".kafka_cleanshutdown").exists()
