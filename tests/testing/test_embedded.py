"""The broker inside another program: on a thread or on the caller's loop, several at once, leaving nothing behind."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition

from barnabas import Broker
from barnabas.clients.consumer import Consumer
from barnabas.clients.producer import Producer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.config.broker_config import ConfigError
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.storage import filesystem
from barnabas.storage.held_logs import AllLogDirsFailedError

ROUNDS = 5
MAX_MILLISECONDS = 400
"""Half of a busy two-core machine; alone it takes less than 150."""
MAX_MEGABYTES = 120
MANY = 20
MAX_SECONDS_OF_MANY = 3.0
"""Of processor time; it takes 0.2."""


@pytest.fixture(autouse=True)
def leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Holds every test here to this: no thread, no temporary folder, no open file outlives its brokers."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    threads = set(threading.enumerate())
    yield folder
    assert set(threading.enumerate()) <= threads
    assert list(folder.iterdir()) == []
    assert open_files(tmp_path) == []


def open_files(folder: Path) -> list[str]:
    """Files below `folder` that this process has open or mapped."""
    opened = []
    for number in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            opened.append(str(number.readlink()))
    mapped = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    return [path for path in opened + mapped if path.startswith(str(folder))]


def write_and_read(bootstrap: str, topic: str, *values: bytes) -> list[bytes]:
    """Produce with a blocking client and read everything that is in partition 0."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    try:
        for value in values:
            producer.send(topic, value, partition=0).get(60)
    finally:
        producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000)
    try:
        partition = KafkaTopicPartition(topic, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[bytes] = []
        while len(found) < end:
            found.append(next(consumer).value)
        return found
    finally:
        consumer.close()


async def partition_count(broker: Broker, topic: str) -> int:
    image = broker.server.state.metadata.topic(topic)
    return 0 if image is None else len(image.partitions)


# -- the two ways to run it -----------------------------------------------------------------------------------------


def test_a_blocking_client_in_the_same_process() -> None:
    with Broker(topics=["orders"]) as broker:
        assert broker.bootstrap == f"127.0.0.1:{broker.port}"
        assert write_and_read(broker.bootstrap, "orders", b"a", b"b") == [b"a", b"b"]


async def test_on_the_callers_loop() -> None:
    async with Broker(topics={"orders": 3}) as broker:
        assert await partition_count(broker, "orders") == 3
        async with Producer(broker.bootstrap) as producer:
            await producer.send_and_wait("orders", b"value", partition=2)
        async with Consumer(broker.bootstrap) as consumer:
            consumer.assign([TopicPartition("orders", 2)])
            consumer.seek(TopicPartition("orders", 2), 0)
            record = await asyncio.wait_for(anext(consumer), 60)
        assert record.value == b"value"


def test_several_brokers_in_one_interpreter() -> None:
    with Broker(topics=["t"]) as first, Broker(topics=["t"]) as second, Broker() as third:
        brokers = (first, second, third)
        assert len({broker.port for broker in brokers}) == 3
        assert len({broker.server.state.cluster_id for broker in brokers}) == 3
        assert write_and_read(first.bootstrap, "t", b"first") == [b"first"]
        assert write_and_read(second.bootstrap, "t", b"second") == [b"second"]
        assert list(third.server.state.metadata.topic_names) == []


async def test_several_brokers_on_one_loop() -> None:
    async with Broker(topics=["t"]) as first, Broker() as second:
        assert first.port != second.port
        assert (await partition_count(first, "t"), await partition_count(second, "t")) == (1, 0)


def test_one_broker_object_starts_again() -> None:
    broker = Broker(topics=["t"])
    for _ in range(2):
        with broker:
            assert write_and_read(broker.bootstrap, "t", b"v") == [b"v"]
        with pytest.raises(RuntimeError, match="not running"):
            _ = broker.bootstrap


# -- topics ---------------------------------------------------------------------------------------------------------


def test_a_topic_is_there_when_create_returns_and_gone_when_delete_returns() -> None:
    with Broker() as broker:
        state = broker.server.state
        ids = set()
        for number in range(4):
            broker.create_topic("t", 2, {"retention.ms": "1000000"})
            topic_id = state.metadata.topic_id("t")
            ids.add(topic_id)
            assert write_and_read(broker.bootstrap, "t", b"%d" % number) == [b"%d" % number]
            broker.delete_topic("t")
            assert "t" not in state.metadata
            assert state.replica_manager.get_partition("t", 0) is None
            assert not any((Path(state.config.log_dirs[0]) / f"t-{index}").exists() for index in (0, 1))
        assert len(ids) == 4


def test_topics_that_cannot_be_made_or_deleted() -> None:
    with Broker(topics=["t"]) as broker:
        for refused, code in (
            (lambda: broker.create_topic("t"), ErrorCode.TOPIC_ALREADY_EXISTS),
            (lambda: broker.create_topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (lambda: broker.create_topic("u", 0), ErrorCode.INVALID_PARTITIONS),
            (lambda: broker.create_topic("u", 1, {"no.such.key": "1"}), ErrorCode.INVALID_CONFIG),
            (lambda: broker.delete_topic("nothing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            with pytest.raises(KafkaError) as caught:
                refused()
            assert caught.value.code is code
        assert write_and_read(broker.bootstrap, "t", b"v") == [b"v"]


async def test_the_blocking_calls_are_refused_on_the_callers_loop() -> None:
    async with Broker() as broker:
        with pytest.raises(RuntimeError, match="await the method"):
            broker.create_topic("t")
        await broker.acreate_topic("t")
        await broker.adelete_topic("t")
        assert await partition_count(broker, "t") == 0


def test_a_start_that_failed_may_be_tried_again(tmp_path: Path) -> None:
    in_the_way = tmp_path / "data"
    in_the_way.write_text("no folder")
    broker = Broker(["t"], data_dir=in_the_way / "logs")

    async def enter() -> None:
        async with broker:
            raise AssertionError("there is no such folder")

    with pytest.raises(AllLogDirsFailedError):
        asyncio.run(enter())
    with pytest.raises(AllLogDirsFailedError):
        broker.start()
    in_the_way.unlink()
    with broker:
        assert broker.has_topic("t")


# -- data and settings ----------------------------------------------------------------------------------------------


def test_a_given_folder_is_kept_and_opened_again(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    with Broker(topics=["t"], data_dir=folder) as broker:
        assert write_and_read(broker.bootstrap, "t", b"first") == [b"first"]
        cluster_id = broker.server.state.cluster_id
    assert (folder / "t-0").is_dir()
    with Broker(topics=["t"], data_dir=str(folder)) as broker:
        assert broker.server.state.cluster_id == cluster_id
        assert write_and_read(broker.bootstrap, "t", b"second") == [b"first", b"second"]


def test_settings_override_the_defaults() -> None:
    settings = {"message.max.bytes": "1000", "acks.all.durability": "disk", "broker.id": "7"}
    with Broker(topics=["t"], config=settings) as broker:
        state = broker.server.state
        assert state.broker_id == 7
        assert state.replica_manager.acks_all_on_disk
        assert state.replica_manager.get_leader_partition("t", 0).log.config.max_message_bytes == 1000


def test_the_host_and_port_asked_for() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Broker(host="localhost", port=port) as broker:
        assert broker.bootstrap == f"localhost:{port}"


# -- failures -------------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken() -> None:
    with Broker() as broker:
        with pytest.raises(OSError, match=str(broker.port)), Broker(port=broker.port):
            pytest.fail("two brokers on one port")
        assert len(list(Path(tempfile.gettempdir()).iterdir())) == 1


async def test_a_port_that_is_taken_on_the_callers_loop() -> None:
    async with Broker() as broker:
        with pytest.raises(OSError, match=str(broker.port)):
            await Broker(port=broker.port).__aenter__()
        assert len(list(Path(tempfile.gettempdir()).iterdir())) == 1


@pytest.mark.parametrize(
    "settings",
    [{"num.partitions": "many"}, {"log.segment.bytes": "-1"}, {"listeners": "nonsense"}],
)
def test_settings_that_make_no_sense(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))), Broker(config=settings):
        pytest.fail("started")


def test_a_topic_declared_wrongly() -> None:
    with pytest.raises(KafkaError) as caught, Broker(topics=["a b"]):
        pytest.fail("started")
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_folder_that_another_broker_has(tmp_path: Path) -> None:
    with Broker(topics=["t"], data_dir=tmp_path / "one") as broker:
        with pytest.raises(Exception, match="one"), Broker(data_dir=tmp_path / "one"):
            pytest.fail("two brokers in one folder")
        assert write_and_read(broker.bootstrap, "t", b"v") == [b"v"]


def test_an_error_inside_the_block_stops_the_broker() -> None:
    with pytest.raises(ZeroDivisionError), Broker() as broker:
        port = broker.port
        _ = 1 / 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


# -- how fast and how large -----------------------------------------------------------------------------------------

MEASURE = f"""
import re, socket, time
from barnabas import Broker
from barnabas.protocol.headers import RequestHeader, encode_request_header
asked = encode_request_header(RequestHeader(18, 0, 1, "x"))
took, first = [], 0
for _ in range({ROUNDS}):
    began, busy = time.perf_counter(), time.process_time()
    with Broker() as broker:
        with socket.create_connection(("127.0.0.1", broker.port)) as client:
            client.sendall(len(asked).to_bytes(4, "big") + asked)
            assert client.recv(4)
            took.append((time.perf_counter() - began) * 1000)
            first = first or (time.process_time() - busy) * 1000
# Not getrusage: its maximum counts the process that this one was forked from.
kilobytes = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
print(min(took), first, int(kilobytes) / 1024)
"""


def test_it_answers_soon_and_stays_small() -> None:
    output = subprocess.run([sys.executable, "-c", MEASURE], check=True, capture_output=True, text=True, timeout=60)
    best, first, megabytes = map(float, output.stdout.split())
    print(f"from the call to an answer: {best:.0f} ms, the first {first:.0f} ms of the processor; {megabytes:.0f} MB")
    assert best < MAX_MILLISECONDS
    assert first < 3 * MAX_MILLISECONDS
    assert megabytes < MAX_MEGABYTES


def test_twenty_brokers_start_without_waiting_for_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    monkeypatch.setattr(os, "fsync", forced.append)
    monkeypatch.setattr(filesystem, "_fdatasync", forced.append)
    with ExitStack() as stack:
        began = time.process_time()
        brokers = [stack.enter_context(Broker()) for _ in range(MANY)]
        spent = time.process_time() - began
        assert len({broker.port for broker in brokers}) == MANY
        for number, broker in enumerate(brokers):
            broker.produce("t", [f"of {number}"])
        assert [broker.records("t")[0].value for broker in brokers] == [f"of {n}".encode() for n in range(MANY)]
        for broker in brokers:
            store = broker.server.state.store
            assert isinstance(store, EmbeddedStore)
            journal = store.request_processor._journal
            assert journal is not None
            assert journal._connection.execute("PRAGMA synchronous").fetchone() == (0,)
    assert forced == []
    assert spent < MAX_SECONDS_OF_MANY, f"{spent} s of processor time"


def test_data_that_stay_are_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    really = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: [forced.append(number), really(number)])
    with Broker(["t"], data_dir=tmp_path / "data"):
        assert forced != []
    forced.clear()
    with Broker(["t"], config={"acks.all.durability": "disk"}):
        assert forced != []


FORKED_INSIDE = """
import os, sys
from barnabas import Broker

with Broker(["t"]) as broker:
    child = os.fork()
    if child == 0:
        try:
            broker.create_topic("u")
        except RuntimeError as error:
            print(error)
    else:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        broker.produce("t", [b"after"])
        assert [record.value for record in broker.records("t")] == [b"after"]
if child == 0:
    print("left")
    os._exit(7)  # as multiprocessing's children end; at exit() libuv joins threads that only the parent has
print("stopped")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_forked_child_leaves_the_block_and_the_broker_goes_on_in_its_parent() -> None:
    done = subprocess.run(
        [sys.executable, "-u", "-c", FORKED_INSIDE], capture_output=True, text=True, timeout=60, check=False
    )
    refused, *rest = done.stdout.splitlines()
    assert "the parent of this one" in refused
    assert rest == ["left", "stopped"], done.stderr
    assert done.returncode == 0


FORKED_ON_A_LOOP = """
import asyncio, os, sys
from barnabas import Broker

async def main():
    async with Broker(["t"]) as broker:
        child = os.fork()
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            await broker.aproduce("t", [b"after"])
            assert len(await broker.arecords("t")) == 1
    if child == 0:
        os._exit(7)
    print("stopped")

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_child_that_was_forked_on_the_loop_of_a_broker_stops_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED_ON_A_LOOP], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "stopped\n"), done.stderr
