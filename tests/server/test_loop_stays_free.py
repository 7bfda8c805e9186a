"""Nothing waits for a disk on the loop's thread: every sync of a running broker is a lane's, whatever asks for it."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from barnabas.clients.admin import Admin, NewTopic
from barnabas.clients.producer import Producer
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.broker import BrokerServer
from barnabas.server.cleaning.worker_pool import WorkerPool
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.runtime.host import host_ports
from barnabas.storage.filesystem import OsFileSystem
from barnabas.storage.log_dir import CHECKPOINTS, CLEAN_SHUTDOWN_FILE, LOG_START_OFFSET_CHECKPOINT

SYNCS = ("fsync", "fdatasync")
IMPATIENT = {
    "log.flush.offset.checkpoint.interval.ms": "20",
    "log.flush.start.offset.checkpoint.interval.ms": "20",
    "replica.high.watermark.checkpoint.interval.ms": "20",
    "log.retention.check.interval.ms": "20",
    "log.initial.task.delay.ms": "0",
    "log.segment.delete.delay.ms": "0",
    "log.segment.bytes": "4000",
    "log.retention.bytes": "8000",
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
LOAD_SECONDS = 100.0
"""A deadline; a few seconds do on a machine that has nothing else to do."""


class WatchedFile:
    """A file that tells of its syncs."""

    def __init__(self, inner: Any, path: str, disk: WatchedFileSystem) -> None:
        self._inner = inner
        self._path = path
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        if name in SYNCS:
            self._disk.note(self._path)
        return getattr(self._inner, name)


class WatchedFileSystem(OsFileSystem):
    """The real disk. `synced` has the name of everything that was synced, by `loop_thread` and by others."""

    def __init__(self) -> None:
        super().__init__()
        self.loop_thread = threading.get_ident()
        self.on_loop: list[str] = []
        self.elsewhere: list[str] = []

    def note(self, path: str) -> None:
        """Somebody syncs it."""
        is_loop = threading.get_ident() == self.loop_thread
        (self.on_loop if is_loop else self.elsewhere).append(path.rpartition("/")[2])

    def open(self, path: str, **options: Any) -> Any:
        return WatchedFile(super().open(path, **options), path, self)

    def fsync_dir(self, path: str) -> None:
        self.note(path)
        super().fsync_dir(path)

    def sync_disk(self, path: str) -> bool:
        self.note(path)
        return super().sync_disk(path)


@asynccontextmanager
async def watched_broker(folder: Path) -> AsyncIterator[tuple[BrokerServer, WatchedFileSystem]]:
    """A broker with timers that never rest. Only what is synced while it runs is noted, and by its stop."""
    loop, disk = asyncio.get_running_loop(), WatchedFileSystem()
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": f"{folder}/one,{folder}/two", **IMPATIENT}
    ports = dataclasses.replace(host_ports(loop, WorkerPool(loop)), filesystem=disk)
    server = BrokerServer(BrokerConfig.from_properties(settings), ports, loop)
    try:
        await server.start()
        disk.on_loop.clear()
        disk.elsewhere.clear()
        yield server, disk
    finally:
        await server.stop()


async def test_every_sync_is_a_lanes(tmp_path: Path) -> None:
    async with watched_broker(tmp_path) as (server, disk):
        (listener,) = server.listeners
        bootstrap = f"127.0.0.1:{listener.port}"
        wanted = {f"{name}.tmp" for name in CHECKPOINTS}
        async with Admin(bootstrap) as admin, Producer(bootstrap, acks=1, batch_size=2000) as producer:
            compacted = NewTopic("compacted", 1, configs={"cleanup.policy": "compact", "segment.bytes": "4000"})
            indexed = NewTopic("indexed", 1, configs={"segment.bytes": "100000"})
            assert (await admin.create_topics([NewTopic("load", 4), compacted, indexed]))["load"] is None
            for _ in range(4):
                await producer.send("indexed", b"x" * 5000)  # more than stands between two entries of an index
                await producer.flush()
            async with asyncio.timeout(LOAD_SECONDS):
                while not (wanted <= set(disk.elsewhere) and server.state.cleaner.reports):
                    for number in range(16):
                        await producer.send("load", b"x" * 200, partition=number % 4)
                        await producer.send("compacted", b"x" * 200, key=b"%d" % (number % 3))
                    await producer.flush()
                    await asyncio.sleep(0.02)  # the disk, not the broker, is what limits this
            low = server.state.log_manager.logs[TopicPartition("load", 0)].high_watermark - 1
            deleted = TopicPartition("load", 0)
            assert await admin.delete_records({deleted: low}) == {deleted: low}
            checkpoint = (
                tmp_path / Path(server.state.log_manager.logs[deleted].directory).name
            ) / LOG_START_OFFSET_CHECKPOINT
            assert f"load 0 {low}\n" in checkpoint.read_text(), "on disk before the answer"
            assert (await admin.delete_topics(["load"]))["load"] is None
        assert f"{0:020d}.log" in disk.elsewhere
        assert disk.on_loop == []
    assert disk.on_loop == []
    assert f"{CLEAN_SHUTDOWN_FILE}.tmp" in disk.elsewhere
