"""A full disk: it is reported once, clients get an error within seconds, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.barnabas_server import BarnabasServer
from tests.crash.test_failing_disk import STORAGE_ERROR, live_broker
from tests.crash.test_failing_disk import fill as write_some
from tests.crash.test_no_free_byte import fill
from tests.server_process import free_port, wait_until
from tests.tools.cli.test_consistency import COMMAND
from tests.waiting import until

from barnabas.clients import Consumer, Producer
from barnabas.clients.errors import DeliveryTimeoutError
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.tools.cli.app import main

SIZE = 16 << 20


def lines(caplog: pytest.LogCaptureFixture, words: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if words in record.getMessage()]


async def test_a_full_disk_is_logged_once_and_its_end_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with live_broker(tmp_path) as broker:
        await write_some(broker, "a", 3)
        directory = broker.directory_of("a")
        assert broker.server._health()[1]["full.log.dirs"] == {}
        broker.disk.faults["pwrite", directory] = errno.ENOSPC
        for acks in (1, -1, 1, -1):
            assert await broker.produce("a", acks) is STORAGE_ERROR
        await until(lambda: lines(caplog, f"{directory} is full"), "the measurement of the disk")
        (line,) = lines(caplog, f"{directory} is full")
        assert line.levelname == "ERROR"
        is_ready, facts = broker.server._health()
        assert is_ready
        assert facts["full.log.dirs"].keys() == {directory}  # type: ignore[attr-defined]
        assert facts["offline.log.dirs"] == {}
        with pytest.raises(AssertionError, match="the connection was closed"):
            await broker.produce("a", 0)  # there is no response to report the error
        assert await broker.produce("b") is ErrorCode.NONE, "the other disk has room"
        await broker.server._disk_space.check()
        assert directory in broker.server.state.disk_space.full, "still no room"
        broker.disk.faults.clear()
        await broker.server._disk_space.check()
        assert broker.server._health()[1]["full.log.dirs"] == {}
        (line,) = lines(caplog, f"{directory} has room again")
        assert line.levelname == "INFO"
        assert len(lines(caplog, "is full")) == 1
        await write_some(broker, "a", 3)
        acknowledged = broker.acknowledged["a"]
        await broker.assert_all_there("a", acknowledged)
    async with live_broker(tmp_path) as again:
        await again.assert_all_there("a", acknowledged)


async def test_clients_do_not_wait_for_the_measurement_of_a_full_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with live_broker(tmp_path) as broker:
        directory, is_quick, free_bytes = broker.directory_of("a"), threading.Event(), broker.disk.free_bytes

        def slow_free_bytes(path: str) -> int:
            assert is_quick.wait(60)
            return free_bytes(path)

        monkeypatch.setattr(broker.disk, "free_bytes", slow_free_bytes)
        broker.disk.faults["pwrite", directory] = errno.ENOSPC
        for _ in range(2):
            assert await broker.produce("a", 1) is STORAGE_ERROR
        assert directory in broker.server.state.disk_space.full
        assert not lines(caplog, "is full")
        is_quick.set()
        await until(lambda: lines(caplog, f"{directory} is full"), "the measurement of the disk")
        assert "bytes are free" in lines(caplog, f"{directory} is full")[0].getMessage()


@pytest.mark.parametrize("operation", ["open", "fallocate"])
async def test_appends_around_a_roll_on_a_full_disk(tmp_path: Path, operation: str) -> None:
    async with live_broker(tmp_path) as broker:
        await write_some(broker, "a", 3)
        broker.disk.faults[operation, broker.directory_of("a")] = errno.ENOSPC
        for _ in range(30):  # several segments of 5000 bytes
            assert await broker.produce("a", timeout_ms=2000) in (ErrorCode.NONE, STORAGE_ERROR)
        broker.disk.faults.clear()
        await write_some(broker, "a", 20)
        acknowledged = broker.acknowledged["a"]
        await broker.assert_all_there("a", acknowledged)
    async with live_broker(tmp_path) as again:
        await again.assert_all_there("a", acknowledged)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[BarnabasServer]:
    """A broker on a file system of its own."""
    properties = {
        "log.segment.bytes": "1000000",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "metrics.listeners": f"127.0.0.1:{free_port()}",
        "group.initial.rebalance.delay.ms": "0",
        "log.index.size.max.bytes": "65536",
    }
    broker = BarnabasServer(tmp_path / "broker", properties=properties)
    broker.log_dir.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(broker.log_dir)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        with broker:
            wait_until(lambda: "started in" in broker.log.read_text(), timeout_s=60, what="the end of the start")
            yield broker
    finally:
        subprocess.run(["umount", "-l", str(broker.log_dir)], check=True)


def get(broker: BarnabasServer, path: str) -> str:
    address = broker._properties["metrics.listeners"]
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def gauge(broker: BarnabasServer, name: str) -> float:
    (line,) = [line for line in get(broker, "/metrics").splitlines() if line.startswith(f"{name}{{")]
    return float(line.rpartition(" ")[2])


async def read_all(broker: BarnabasServer, topic: str, **options: Any) -> list[bytes | None]:
    """Return the values of partition 0 up to its present end."""
    found: list[bytes | None] = []
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest", **options) as consumer:
        place = TopicPartition(topic, 0)
        end = (await consumer.end_offsets([place]))[place]
        consumer.assign([place])
        async with asyncio.timeout(60):
            while await consumer.position(place) < end:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    found += [record.value for record in records]
    return found


@pytest.mark.verify
async def test_transactions_and_all_acks_survive_a_disk_without_room(
    small: BarnabasServer, capfd: pytest.CaptureFixture[str]
) -> None:
    acknowledged: list[bytes] = []
    quick: dict[str, Any] = {"delivery_timeout_ms": 3000, "request_timeout_ms": 1000, "max_block_ms": 3000}
    async with Producer(small.bootstrap, transactional_id="x", **quick) as producer:
        async with producer.transaction():
            await producer.send_and_wait("t", b"committed 0")
        acknowledged.append(b"committed 0")
        fill(small.log_dir)
        (small.log_dir / "filler").rename(small.log_dir / "filler-1")
        with pytest.raises((KafkaError, TimeoutError)):
            async with asyncio.timeout(5):
                async with producer.transaction():
                    for _ in range(20):
                        await producer.send_and_wait("t", bytes(200_000))
        (small.log_dir / "filler-1").unlink()
        wait_until(lambda: '"full.log.dirs": {}' in get(small, "/ready"), timeout_s=60, what="room again")
    refused = 0
    levels: tuple[Literal[1, "all"], ...] = (1, "all")
    for acks in levels:
        async with Producer(small.bootstrap, acks=acks, **quick) as plain:
            await plain.send_and_wait("plain", f"{acks} before".encode())
            acknowledged.append(f"{acks} before".encode())
            fill(small.log_dir)
            for _ in range(3):
                try:
                    await plain.send_and_wait("plain", bytes(300_000))
                except DeliveryTimeoutError as error:
                    assert "KAFKA_STORAGE_ERROR: no space is left in log directory" in str(error)
                    refused += 1
                    break
            (small.log_dir / "filler").unlink()
            await until(lambda: '"full.log.dirs": {}' in get(small, "/ready"), "room again")
            await plain.send_and_wait("plain", f"{acks} after".encode())
            acknowledged.append(f"{acks} after".encode())
    assert refused == 2
    log = small.log.read_text()
    assert log.count("is full") == log.count("has room again")
    assert log.count("is full") in (2, 3)
    assert "Traceback" not in log
    small.kill()
    small.start()
    found = await read_all(small, "t", isolation_level="read_committed")
    plain_records = [value for value in await read_all(small, "plain") if value is not None and len(value) < 100]
    assert [*found, *plain_records] == acknowledged


def test_produce_names_a_full_disk_within_seconds(small: BarnabasServer, tmp_path: Path) -> None:
    before = gauge(small, "barnabas_log_directory_total_bytes"), gauge(small, "barnabas_log_directory_full")
    assert before == (SIZE, 0)
    records = tmp_path / "records"
    records.write_bytes(b"\n".join([b"x" * 10_000] * 100))
    assert main(["topic", "create", "t", "-b", small.bootstrap]) == 0
    fill(small.log_dir)
    began = time.monotonic()
    command = [*COMMAND, "produce", "t", "-l", str(records), "-b", small.bootstrap]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        elapsed = time.monotonic() - began
        process.terminate()
    assert line.startswith("barnabas: records for t-0 are not written yet")
    assert f"KAFKA_STORAGE_ERROR: no space is left in log directory {small.log_dir}" in line
    assert elapsed < 20, "long before delivery.timeout.ms, two minutes"
    facts = json.loads(get(small, "/ready"))
    assert facts["ready"] is True
    assert facts["full.log.dirs"].keys() == {str(small.log_dir)}
    wait_until(lambda: gauge(small, "barnabas_log_directory_full") == 1, timeout_s=60, what="the gauge")
    assert gauge(small, "barnabas_log_directory_free_bytes") < 1 << 20
    (small.log_dir / "filler").unlink()
    wait_until(lambda: gauge(small, "barnabas_log_directory_full") == 0, timeout_s=60, what="room again")
    assert main(["produce", "t", "-l", str(records), "-b", small.bootstrap]) == 0
    assert small.stop() == 0


async def test_a_disk_that_is_almost_full_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    async with live_broker(tmp_path, directories=1, store_elsewhere=False) as broker:
        free = [1000 << 20]
        monkeypatch.setattr(broker.disk, "total_bytes", lambda path: 1000 << 20)
        monkeypatch.setattr(broker.disk, "free_bytes", lambda path: free[0])
        space = broker.server.state.disk_space
        expectations: tuple[tuple[int, list[str]], ...] = (
            (51, []),
            (49, ["WARNING"]),
            (48, ["WARNING"]),
            (51, ["WARNING"]),
            (60, ["WARNING", "INFO"]),
            (0, ["WARNING", "INFO", "ERROR"]),
            (30, ["WARNING", "INFO", "ERROR", "INFO"]),
        )
        for megabytes, expected in expectations:
            free[0] = megabytes << 20
            space._due = 0.0
            await space.check()
            levels = [r.levelname for r in caplog.records if r.name == "barnabas.storage"]
            assert levels == expected, megabytes


def test_the_metadata_store_on_a_full_disk(small: BarnabasServer) -> None:
    fill(small.log_dir)
    for number in range(60):
        if main(["topic", "create", f"t{number}", "--partitions", "20", "-b", small.bootstrap]) != 0:
            break
    else:
        pytest.fail("topics were created without room")
    wait_until(lambda: "is full" in small.log.read_text(), timeout_s=60, what="an error")
    (small.log_dir / "filler").unlink()
    wait_until(lambda: "has room again" in small.log.read_text(), timeout_s=60, what="room again")
    assert main(["topic", "create", "again", "-b", small.bootstrap]) == 0
    assert small.stop() == 0
