"""Reads that end before their last record: Ctrl-C, abandoned readers, forks, brokers that fail."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.arrow.conftest import KEEP_ALL, batch, folder_of
from tests.barnabas_server import BarnabasServer
from tests.foreign_tools import CHECKOUT
from tests.server_process import wait_until

from barnabas.arrow import Json, RecordStream, read_folder, read_topic
from barnabas.arrow.client import BlockingClient, ClientSettings
from barnabas.protocol.errors import KafkaError

PARTITIONS = 4
ROWS, SIZE = 24_000, 4000
"""About 96 MB: three times the bytes that wait for the consumer of a stream."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasServer]:
    """A broker in a process of its own, which can be stopped and killed, with the topic `t`."""
    with BarnabasServer(tmp_path_factory.mktemp("broker"), properties=KEEP_ALL) as server:
        fill(server.bootstrap)
        yield server


def fill(bootstrap: str) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic("t", PARTITIONS, 1)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
    for i in range(ROWS):
        producer.produce("t", value=b"%06d" % i + b"x" * SIZE, partition=i % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0


def reading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "barnabas-arrow"]


def connections_to(server: Any) -> int:
    """The open sockets of this process that are connected to the broker, in any state but TIME_WAIT."""
    inodes = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            inodes.add(os.readlink(entry))
        except FileNotFoundError:
            continue
    found = 0
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        is_to_broker = int(fields[2].rpartition(":")[2], 16) == server.port
        found += is_to_broker and f"socket:[{fields[9]}]" in inodes
    return found


def is_everything_received(server: Any) -> bool:
    """Whether the kernel holds no byte on the way from the broker to its clients."""
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        ports = [int(address.rpartition(":")[2], 16) for address in (local, remote)]
        unsent, unread = (int(size, 16) for size in queues.split(":"))
        if (ports[0] == server.port and unsent) or (ports[1] == server.port and unread):
            return False
    return True


def nothing_is_left(server: Any) -> None:
    wait_until(lambda: not reading_threads(), timeout_s=5, what="the threads of the read end")
    assert connections_to(server) == 0


@pytest.fixture
def stalled(server: BarnabasServer) -> Iterator[Callable[[], None]]:
    """A function that stops the process of the broker, which then neither responds nor closes its connections."""
    yield lambda: os.kill(server.pid, signal.SIGSTOP)
    os.kill(server.pid, signal.SIGCONT)


INTERRUPTED = """
import sys, threading
from types import SimpleNamespace
from barnabas.arrow import read_topic
from tests.arrow.test_end_of_read import is_everything_received, nothing_is_left
from tests.server_process import wait_until

def report_when_it_waits():
    wait_until(lambda: is_everything_received(server), timeout_s=30, what="all bytes that the broker has sent")
    print("waits", flush=True)

bootstrap = sys.argv[1]
server = SimpleNamespace(port=int(bootstrap.rpartition(":")[2]))
batches = iter(read_topic(bootstrap, "t", threads=4))
next(batches)
print("reads", flush=True)
sys.stdin.readline()
threading.Thread(target=report_when_it_waits).start()
try:
    for _ in batches:
        pass
except KeyboardInterrupt:
    print("interrupted", flush=True)
nothing_is_left(server)
"""


def test_ctrl_c_ends_a_read_that_waits_for_a_broker(server: BarnabasServer, stalled: Callable[[], None]) -> None:
    """In a process of its own: other libraries of the tests, such as Polars, install handlers of SIGINT."""
    command = [sys.executable, "-c", INTERRUPTED, server.bootstrap]
    with subprocess.Popen(
        command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as reader:
        assert reader.stdin is not None and reader.stdout is not None
        assert reader.stdout.readline() == "reads\n"
        stalled()
        reader.stdin.write("stalled\n")
        assert reader.stdout.readline() == "waits\n"
        sent = time.monotonic()
        reader.send_signal(signal.SIGINT)
        assert reader.stdout.readline() == "interrupted\n"
        assert time.monotonic() - sent < 2
        assert reader.wait(30) == 0


def test_a_read_is_interrupted_before_the_first_response_of_a_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = BlockingClient(ClientSettings(f"127.0.0.1:{silent.getsockname()[1]}", {}))
        thread = threading.Thread(target=suppressed, args=(KafkaError, lambda: client.refresh(None)))
        thread.start()
        with silent.accept()[0] as connection:
            assert connection.recv(1), "the client has sent its first request"
            client.interrupt()
            thread.join(10)
            assert not thread.is_alive()
        client.close()


def suppressed(error: type[Exception], work: Callable[[], object]) -> None:
    with suppress(error):
        work()


def to_engines() -> list[Any]:
    """Ways to begin a read and to leave it."""

    def polars_limit(stream: RecordStream) -> object:
        pl = pytest.importorskip("polars", reason="pip install 'barnabas[dev]'")
        from barnabas.arrow import scan_barnabas

        assert isinstance(scan_barnabas(stream).head(3).collect(), pl.DataFrame)
        return None

    def duckdb_limit(stream: RecordStream) -> object:
        duckdb = pytest.importorskip("duckdb", reason="pip install 'barnabas[dev]'")
        with duckdb.connect() as connection:
            connection.register("flights", stream)
            assert len(connection.execute('select "offset" from flights limit 3').fetchall()) == 3
        return None

    def iterator(stream: RecordStream) -> object:
        batches = iter(stream)
        next(batches)
        return batches

    def reader(stream: RecordStream) -> object:
        reader = stream.to_reader()
        reader.read_next_batch()
        return reader

    def capsule(stream: RecordStream) -> object:
        reader = pa.RecordBatchReader.from_stream(stream)
        reader.read_next_batch()
        return reader

    def scanner(stream: RecordStream) -> object:
        batches = stream.scanner(columns=["offset"]).to_batches()
        next(batches)
        return batches

    def in_a_cycle(stream: RecordStream) -> object:
        batches = iter(stream)
        next(batches)
        cycle: list[Any] = [batches]
        cycle.append(cycle)
        return None

    ways: list[Callable[[RecordStream], object]] = [iterator, reader, capsule, scanner, in_a_cycle]
    ways += [lambda stream: stream.head(5), polars_limit, duckdb_limit]
    return ways


@pytest.mark.parametrize("way", to_engines())
def test_an_abandoned_read_leaves_no_thread_and_no_socket(
    server: BarnabasServer, way: Callable[[RecordStream], object]
) -> None:
    begun = way(read_topic(server.bootstrap, "t", threads=4))
    if begun is not None and not isinstance(begun, pa.Table):
        assert reading_threads()
    del begun
    gc.collect()
    nothing_is_left(server)


def test_an_abandoned_read_of_a_broker_that_does_not_respond(
    server: BarnabasServer, stalled: Callable[[], None]
) -> None:
    batches = iter(read_topic(server.bootstrap, "t", threads=4))
    next(batches)
    stalled()
    del batches
    nothing_is_left(server)


def test_a_consumer_that_fails_ends_the_read(server: BarnabasServer) -> None:
    def fail(done: int, total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read_topic(server.bootstrap, "t", progress=fail).to_table()
    nothing_is_left(server)


def test_an_unreadable_value_ends_the_other_threads(server: BarnabasServer) -> None:
    with pytest.raises(ValueError, match=r"value of t-\d at offset \d+: "):
        read_topic(server.bootstrap, "t", value=Json(pa.struct({"a": pa.int32()})), threads=4).to_table()
    nothing_is_left(server)


def test_an_abandoned_read_of_a_folder(tmp_path: Path) -> None:
    for partition in range(4):
        data = b"".join(batch(i, 100, size=10_000) for i in range(0, 2000, 100))
        folder_of(tmp_path, (0, data), name=f"t-{partition}")
    batches = iter(read_folder(str(tmp_path), threads=4))
    next(batches)
    assert reading_threads()
    del batches
    wait_until(lambda: not reading_threads(), timeout_s=5, what="the threads of the read end")
    open_files = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.exists()]
    assert not [name for name in open_files if str(tmp_path) in name]


FORK = """
import os, sys
from barnabas.arrow import read_topic
bootstrap = sys.argv[1]
stream = read_topic(bootstrap, "t", columns=["offset", "value"])
batches = iter(stream)
first = next(batches).num_rows
def sockets():
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sum(os.readlink(link).startswith("socket:") for link in links if os.path.lexists(link))
assert sockets() > 0
child = os.fork()
if child == 0:
    try:
        next(batches)
    except RuntimeError as error:
        print("child:", error, flush=True)
    print("child: sockets", sockets(), flush=True)
    del batches
    print("child: records", stream.count_rows(), flush=True)
    os._exit(0)
_, status = os.waitpid(child, 0)
print("status", status)
print("parent: records", first + sum(batch.num_rows for batch in batches))
"""


def test_a_forked_child_reads_again_and_leaves_the_read_of_its_parent_alone(server: BarnabasServer) -> None:
    env = {**os.environ, "PYTHONPATH": f"{CHECKOUT / '.src'}{os.pathsep}{CHECKOUT}"}
    command = [sys.executable, "-W", "ignore", "-c", FORK, server.bootstrap]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "child: a forked process cannot continue the read of its parent. Read the stream again",
        "child: sockets 0",
        f"child: records {ROWS}",
        "status 0",
        f"parent: records {ROWS}",
    ]


@pytest.mark.verify
def test_a_broker_that_is_gone_is_retried_and_then_named(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path, properties=KEEP_ALL) as server:
        fill(server.bootstrap)
        stream = read_topic(server.bootstrap, "t", config={"default.api.timeout.ms": "2000"})
        batches = iter(stream)
        next(batches)
        server.kill()
        killed = time.monotonic()
        with pytest.raises(KafkaError, match=rf"t-\d at offset \d+: .*{server.bootstrap}") as told:
            for _ in batches:
                pass
        assert 1 < time.monotonic() - killed < 10
        assert "\n" not in str(told.value)
        nothing_is_left(server)
        server.start()
        assert stream.count_rows() == ROWS, "the stream can be read again"


@pytest.mark.verify
def test_a_broker_that_restarts_during_a_read(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path, properties=KEEP_ALL) as server:
        fill(server.bootstrap)
        stream = read_topic(server.bootstrap, "t", threads=2)
        batches = iter(stream)
        values = [next(batches)["value"]]
        server.kill()
        server.start()
        values += [batch["value"] for batch in batches]
        numbers = sorted(int(value[:6]) for array in values for value in array.to_pylist())
        assert numbers == list(range(ROWS))


def test_settings_that_are_no_numbers(server: BarnabasServer) -> None:
    for name in ("default.api.timeout.ms", "request.timeout.ms", "max.partition.fetch.bytes"):
        with pytest.raises(ValueError, match=rf"{name}: invalid value 'x'"):
            read_topic(server.bootstrap, "t", config={name: "x"})
