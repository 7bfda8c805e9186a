"""Appends to a slow disk: how many of them other requests wait for, their order, and connections that are closed."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from bench.wire import connect, metadata_request, one_record_batch, produce_request, request_frame, text
from confluent_kafka import Producer
from tests.server.apis.test_joint_produce import one_turn
from tests.server.network.test_response_batcher import exactly
from tests.server.security.test_tls_listener import Files
from tests.server_process import wait_until

from barnabas.protocol.batch_header import stamp_producer
from barnabas.server.network.connection import Connection
from barnabas.server.network.memory_pool import MemoryPool
from barnabas.server.replication import replica_manager
from barnabas.server.replication.partition import Partition
from barnabas.server.runtime import write_queue
from barnabas.storage.log_values import LogAppendInfo
from barnabas.testing import embedded
from barnabas.testing.broker import Broker

CLIENTS = 8


class SlowDisk:
    """A disk whose writes each use up the time of a turn of the broker's loop. It counts them."""

    def __init__(self) -> None:
        self.writes: list[str] = []
        """The partitions of the writes."""
        self.on_write: Callable[[], None] = lambda: None
        """Called on the broker's loop at the end of each write."""


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    monkeypatch.setattr(embedded, "event_loop", request.param)
    monkeypatch.setattr(replica_manager, "MIN_COUNTED_SECONDS", 0.0)
    monkeypatch.setattr(replica_manager, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(write_queue, "SECONDS_PER_TURN", 0.0)
    disk = SlowDisk()
    original = Partition.append_records_to_leader

    def append(self: Partition, *arguments: Any) -> LogAppendInfo:
        info = original(self, *arguments)
        if info.valid_bytes:
            disk.writes.append(str(self.topic_partition))
            disk.on_write()
        return info

    monkeypatch.setattr(Partition, "append_records_to_leader", append)
    return disk


class Probe:
    """A client that sends a metadata request during each fifth write, and counts later writes before the response."""

    def __init__(self, disk: SlowDisk, client: socket.socket) -> None:
        self._disk = disk
        self._client = client
        self.waits: list[int] = []
        client.sendall(metadata_request("t"))
        receive(client)
        self._sent_at: int | None = None
        disk.on_write = self._check

    def _check(self) -> None:
        """Count the writes since the request. The current write has ended after its response could have been sent."""
        number = len(self._disk.writes)
        if self._sent_at is not None:
            if not select.select([self._client], [], [], 0)[0]:
                return
            receive(self._client)
            self.waits.append(number - self._sent_at - 1)
            self._sent_at = None
        if number % 5 == 0:
            self._client.sendall(metadata_request("t"))
            self._sent_at = number


def receive(client: socket.socket) -> bytes:
    return exactly(client, int.from_bytes(exactly(client, 4), "big"))


def batch(value: bytes, size: int = 0) -> bytes:
    return one_record_batch(value + bytes(size), 1_700_000_000_000)


def offset_commit(group: str, index: int, offset: int) -> bytes:
    """An OffsetCommit v2 request of a client that is not a member of the group."""
    body = text(group) + struct.pack(">i", -1) + text("") + struct.pack(">qi", -1, 1) + text("t")
    return request_frame(8, 2, body + struct.pack(">iiq", 1, index, offset) + text(""))


def commit_first_offset(client: socket.socket) -> None:
    """Commit an offset, and create the internal topic of the offsets for this."""
    while True:
        client.sendall(request_frame(10, 0, text("group 0")))
        receive(client)
        client.sendall(offset_commit("group 0", 0, 0))
        if receive(client)[-2:] == bytes(2):
            return


def small(place: int, number: int) -> bytes:
    return produce_request("t", [(place, batch(b"%d/%d" % (place, number)))])


REQUESTS: dict[str, tuple[int, Callable[[int, int], bytes]]] = {
    # The number of writes per request, if it is not joined with others, and the requests by client and number.
    "small": (1, lambda place, number: produce_request("t", [((place + number) % CLIENTS, batch(b"%d" % number))])),
    "large": (1, lambda place, number: produce_request("t", [(place, batch(b"%d" % number, 900_000))])),
    "several partitions": (
        8,
        lambda _, number: produce_request("t", [(index, batch(b"%d" % number)) for index in range(CLIENTS)]),
    ),
    "offset commits": (1, lambda place, number: offset_commit(f"group {place}", 0, number)),
}


@contextmanager
def clients_of(broker: Broker, count: int, context: ssl.SSLContext | None = None) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(broker.bootstrap)) for _ in range(count)]
        if context is not None:
            clients = [
                stack.enter_context(context.wrap_socket(client, server_hostname="localhost")) for client in clients
            ]
        for client in clients:
            client.sendall(metadata_request("t"))
            receive(client)
        yield clients


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "TLS"])
def test_a_request_that_does_not_write_waits_for_one_write(
    disk: SlowDisk, kind: str, tmp_path: Path, *, tls: bool
) -> None:
    files = Files(tmp_path) if tls else None
    config = {} if files is None else files.listener
    context = None if files is None else ssl.create_default_context(cafile=str(files.ca))
    writes, request_of = REQUESTS[kind]
    per_client = 20 if kind == "small" else 5
    with Broker({"t": CLIENTS}, config=config) as broker, clients_of(broker, CLIENTS + 1, context) as clients:
        probe_client = clients.pop()
        if kind == "offset commits":
            commit_first_offset(clients[0])
        disk.writes.clear()
        probe = Probe(disk, probe_client)
        senders = [
            threading.Thread(target=client.sendall, args=(b"".join(request_of(place, n) for n in range(per_client)),))
            for place, client in enumerate(clients)
        ]
        for sender in senders:
            sender.start()
        for client in clients:
            for _ in range(per_client):
                receive(client)
        for sender in senders:
            sender.join()
        count = CLIENTS * per_client * writes
        assert len(disk.writes) <= count if kind == "small" else len(disk.writes) == count
        assert len(probe.waits) >= 3
        # 1: the kernel has not delivered the request before the next write.
        assert max(probe.waits) <= 1
        assert probe.waits.count(0) >= len(probe.waits) // 2, "no further write begins before the response"


def test_waiting_requests_to_one_partition_share_writes(disk: SlowDisk) -> None:
    rounds = 10
    with Broker(["t"]) as broker, clients_of(broker, 64) as clients:
        disk.writes.clear()
        for number in range(rounds):
            with one_turn(broker):
                for place, client in enumerate(clients):
                    client.sendall(produce_request("t", [(0, batch(b"%d/%d" % (place, number)))]))
            for client in clients:
                receive(client)
        assert len(disk.writes) <= 3 * rounds
        values = [record.value for record in broker.records("t")]
        assert sorted(values) == sorted(b"%d/%d" % (place, number) for place in range(64) for number in range(rounds))


def test_pipelined_requests_of_a_waiting_connection_share_writes_and_keep_their_order(disk: SlowDisk) -> None:
    with Broker({"t": 2}) as broker, clients_of(broker, 4) as clients:
        disk.writes.clear()
        for place, client in enumerate(clients):
            frames = [produce_request("t", [(place % 2, batch(b"%d/%d" % (place, n)))]) for n in range(100)]
            client.sendall(b"".join(frames))
        for client in clients:
            for _ in range(100):
                receive(client)
        assert len(disk.writes) <= 40
        for index in range(2):
            values = [record.value for record in broker.records("t", index)]
            for place in range(index, 4, 2):
                own = [value for value in values if value.startswith(b"%d/" % place)]
                assert own == [b"%d/%d" % (place, n) for n in range(100)]


@pytest.mark.parametrize("kind", ["small", "large", "several partitions"])
def test_no_request_starves_while_others_are_appended_together(
    disk: SlowDisk, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requests of the others are always as many as can wait, and for one partition."""
    with Broker({"t": CLIENTS}) as broker, clients_of(broker, 21) as clients:
        alone, others = clients[0], clients[1:]
        alone_port = alone.getsockname()[1]
        waits_since: list[int] = []
        wait = write_queue.WriteQueue.wait

        def note(self: write_queue.WriteQueue, writer: write_queue.Writer) -> None:
            if isinstance(writer, Connection) and writer.session.client_port == alone_port:
                waits_since.append(len(disk.writes))
            wait(self, writer)

        monkeypatch.setattr(write_queue.WriteQueue, "wait", note)
        stop = threading.Event()

        def load(client: socket.socket) -> None:
            frame = produce_request("t", [(0, batch(b"x"))])
            client.sendall(frame * 2)
            while not stop.is_set():
                receive(client)
                client.sendall(frame)
            receive(client)
            receive(client)

        threads = [threading.Thread(target=load, args=(client,)) for client in others]
        for thread in threads:
            thread.start()
        waited = 0
        try:
            writes, request_of = REQUESTS[kind]
            last_partition = f"t-{CLIENTS - 1}" if writes > 1 else "t-1"
            for number in range(1, 5 * CLIENTS, CLIENTS):
                before = len(disk.writes)
                waits_since.clear()
                alone.sendall(request_of(0 if kind == "small" else 1, number))
                receive(alone)
                if waits_since:
                    appended = disk.writes.index(last_partition, before) + 1
                    assert appended - waits_since[0] <= 2 * writes, "at most one write precedes each of its own"
                    waited += 1
            assert waited, "the disk is slow"
        finally:
            stop.set()
            for thread in threads:
                thread.join()


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "TLS"])
@pytest.mark.parametrize("acks", [0, 1])
def test_requests_of_closed_connections_are_appended(disk: SlowDisk, tmp_path: Path, acks: int, *, tls: bool) -> None:
    files = Files(tmp_path) if tls else None
    config = {} if files is None else files.listener
    context = None if files is None else ssl.create_default_context(cafile=str(files.ca))
    count = 3
    with Broker({"t": CLIENTS}, config=config) as broker:
        for attempt in range(5):
            with clients_of(broker, 2 * CLIENTS, context) as clients:
                loop: Any = broker._loop
                hold = threading.Event()
                if attempt % 2:
                    loop.call_soon_threadsafe(hold.wait, 60)  # the requests and the ends arrive in one turn
                for place, client in enumerate(clients):
                    index = place % CLIENTS
                    client.sendall(
                        b"".join(
                            produce_request("t", [(index, batch(b"%d/%d/%d" % (attempt, place, n)))], acks)
                            for n in range(count)
                        )
                    )
                    if isinstance(client, ssl.SSLSocket):
                        client.setblocking(False)
                        with suppress(OSError):
                            client.unwrap()
                    else:
                        client.shutdown(socket.SHUT_WR)
                hold.set()
                if acks and not tls:
                    for client in clients:
                        for _ in range(count):
                            receive(client)
                        assert client.recv(1) == b""
                wanted = 2 * count * (attempt + 1)
                poll = threading.Event()
                for index in range(CLIENTS):
                    for _ in range(2000):
                        if len(broker.records("t", index)) >= wanted:
                            break
                        poll.wait(0.01)
                    assert len(broker.records("t", index)) == wanted


def test_an_error_in_a_request_closes_its_connection_and_the_others_continue(
    disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Connection.continue_writing
    failed: list[Connection] = []

    def fail_once(self: Connection) -> None:
        if not failed:
            failed.append(self)
            raise RuntimeError("a fault of the broker")
        original(self)

    monkeypatch.setattr(Connection, "continue_writing", fail_once)
    with Broker({"t": CLIENTS}) as broker, clients_of(broker, CLIENTS) as clients:
        broker._loop.call_soon_threadsafe(broker._loop.set_exception_handler, lambda *_: None)  # type: ignore[union-attr]
        for place, client in enumerate(clients):
            client.sendall(b"".join(small((place + number) % CLIENTS, number) for number in range(10)))
        lost = 0
        for client in clients:
            try:
                for _ in range(10):
                    receive(client)
            except (ConnectionError, AssertionError, EOFError, IndexError):
                lost += 1
        assert (lost, len(failed)) == (1, 1)


def test_a_stop_does_not_wait_for_waiting_requests(disk: SlowDisk) -> None:
    broker = Broker({"t": CLIENTS})
    with broker, clients_of(broker, CLIENTS) as clients:
        began = threading.Event()
        disk.on_write = began.set
        for place, client in enumerate(clients):
            client.sendall(b"".join(small(place, number) for number in range(200)))
        assert began.wait(60)
        assert len(disk.writes) < 400, "requests wait"


def test_idempotent_requests_that_wait_are_appended_once_and_in_order(disk: SlowDisk) -> None:
    with Broker({"t": 2}) as broker, clients_of(broker, CLIENTS) as clients:
        for place, client in enumerate(clients):
            frames = []
            for number in range(20):
                data = bytearray(batch(b"%d/%d" % (place, number)))
                stamp_producer(data, 100 + place, 0, number)
                frames.append(produce_request("t", [(place % 2, bytes(data))], acks=-1))
            client.sendall(b"".join(frames))
        for client in clients:
            for _ in range(20):
                frame = receive(client)
                assert struct.unpack_from(">h", frame, 4 + 4 + 3 + 4 + 4)[0] == 0
        for index in range(2):
            values = [record.value for record in broker.records("t", index)]
            assert len(values) == 4 * 20
            for place in range(index, CLIENTS, 2):
                own = [value for value in values if value.startswith(b"%d/" % place)]
                assert own == [b"%d/%d" % (place, number) for number in range(20)]


def test_the_rest_of_a_request_counts_as_memory_until_it_is_appended(
    disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise clients that close their connections could have any number of copies made."""
    pools: list[MemoryPool] = []
    allocate = MemoryPool.try_allocate

    def remember(self: MemoryPool, connection: Connection) -> bool:
        pools[:] = [self]
        return allocate(self, connection)

    monkeypatch.setattr(MemoryPool, "try_allocate", remember)
    frame = produce_request("t", [(index, batch(b"x", 200_000)) for index in range(3)])
    with Broker({"t": 3}) as broker, connect(broker.bootstrap) as client:
        allocated: list[int] = []

        def note() -> None:
            if not allocated:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            allocated.append(sum(pools[0]._allocated.values()))

        disk.on_write = note
        client.sendall(frame)
        wait_until(lambda: len(disk.writes) == 3, timeout_s=60, what="all appends")
        wait_until(lambda: not pools[0]._allocated, timeout_s=60, what="the memory to be released")
        assert allocated == [len(frame)] * 3
        assert [len(broker.records("t", index)) for index in range(3)] == [1, 1, 1]


def test_each_turn_of_the_loop_has_at_most_one_write_of_all_transactions(disk: SlowDisk) -> None:
    """A transaction is many appends: of its states, of records, and of a marker to each partition."""
    in_turn: list[int] = [0]

    def count() -> None:
        if not in_turn[-1]:
            asyncio.get_running_loop().call_soon(in_turn.append, 0)
        in_turn[-1] += 1

    with Broker({"t": CLIENTS}) as broker:

        def produce(transactional_id: str) -> None:
            settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "log_level": 0}
            producer = Producer(settings)
            producer.init_transactions(60)
            for number in range(5):
                producer.begin_transaction()
                for index in range(CLIENTS):
                    producer.produce("t", b"%d" % number, partition=index)
                producer.commit_transaction(60)

        produce("first")  # creates the topic of the states
        disk.on_write = count
        with ThreadPoolExecutor() as pool:
            list(pool.map(produce, ["a", "b", "c"]))

        def are_ended() -> bool:
            return [len(broker.records("t", index)) for index in range(CLIENTS)] == [20] * CLIENTS

        wait_until(are_ended, timeout_s=60, what="the markers of the last transactions")
    assert sum(in_turn) >= 15 * (CLIENTS + 2)
    assert max(in_turn) == 1
