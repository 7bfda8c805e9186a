"""What a broker takes in memory while large requests arrive and are handled, and when their clients have gone."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.control_groups import memory_group
from tests.frames import framed, request_body
from tests.server_process import wait_until

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.record_batch import RecordBatchBuilder

MB = 1 << 20
LARGE = 95 * MB
SMALL = {"socket.request.max.bytes": str(32 * MB), "queued.max.request.bytes": str(32 * MB)}
PRODUCE_HEADER = struct.pack(">hhih", ApiKey.PRODUCE, 7, 1, -1)


class Watched:
    """A broker in a process of its own, whose memory is read from /proc."""

    def __init__(self, server: BarnabasServer) -> None:
        self.server = server
        self.folder = Path(f"/proc/{server.pid}")

    def memory(self, key: str = "VmRSS") -> int:
        """Bytes; `VmHWM` is the most since `forget_peak`."""
        found = re.search(rf"{key}:\s+(\d+) kB", (self.folder / "status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    def forget_peak(self) -> None:
        (self.folder / "clear_refs").write_text("5")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=60)


def send(client: socket.socket, key: ApiKey, version: int, message: object) -> None:
    client.sendall(framed(request_body(key, version, message)))


def ask_versions(client: socket.socket) -> None:
    send(client, ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    (size,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
    assert len(client.recv(size, socket.MSG_WAITALL)) == size


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Watched]:
    with BarnabasServer(tmp_path) as server:
        watched = Watched(server)
        with watched.connect() as client:
            ask_versions(client)
        yield watched


def test_a_request_takes_its_own_size_while_it_arrives_and_nothing_after(broker: Watched) -> None:
    before = broker.memory()
    broker.forget_peak()
    with broker.connect() as client:
        client.sendall(struct.pack(">i", LARGE) + PRODUCE_HEADER)
        for _ in range(LARGE // MB - 1):
            client.sendall(bytes(MB))
        wait_until(lambda: broker.memory() - before > LARGE - 4 * MB, timeout_s=60, what="the request to arrive")
    assert broker.memory("VmHWM") - before <= 1.1 * LARGE
    wait_until(lambda: broker.memory() - before < 8 * MB, timeout_s=60, what="memory to return")


@pytest.mark.verify
def test_memory_returns_when_600_connections_have_gone(broker: Watched) -> None:
    before = broker.memory()
    clients = [broker.connect() for _ in range(600)]
    for number, client in enumerate(clients):
        client.sendall(struct.pack(">i", 60_000 if number % 2 else 900_000) + PRODUCE_HEADER + bytes(50_000))
    wait_until(lambda: broker.memory() - before > 25 * MB, timeout_s=60, what="the requests to arrive")
    for client in clients:
        client.close()
    wait_until(lambda: broker.memory() - before < 6 * MB, timeout_s=60, what="memory to return")


@pytest.mark.verify
def test_requests_that_are_handled_stay_within_the_budget_and_end_with_their_clients(tmp_path: Path) -> None:
    """None of these clients reads its response, which is as large as its request."""
    with BarnabasServer(tmp_path, properties=SMALL) as server:
        broker = Watched(server)
        topics = [MetadataRequestTopic(name=f"{number:0358d}") for number in range(15_000)]
        clients = [broker.connect() for _ in range(60)]
        for client in clients:
            client.setblocking(False)
        message = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        frame = memoryview(framed(request_body(ApiKey.METADATA, 8, message)))
        left = dict.fromkeys(clients, frame)
        peak = 0

        def sent() -> bool:
            nonlocal peak
            for client, rest in left.items():
                try:
                    left[client] = rest[client.send(rest[: 1 * MB]) :] if rest else rest
                except BlockingIOError:
                    continue
            peak = max(peak, broker.memory())
            # A half of the budget for answers that are not taken is full, and so is that for requests that arrive.
            return sum(not rest for rest in left.values()) >= 12

        wait_until(sent, timeout_s=60, what="a dozen requests to be handled")
        with broker.connect() as other:
            ask_versions(other)
        assert peak < 400 * MB
        for client in clients:
            client.close()
        wait_until(lambda: broker.memory() < 120 * MB, timeout_s=60, what="the work to end")


class LimitedServer(BarnabasServer):
    """A broker that enters a control group before it starts."""

    def __init__(self, folder: Path, group: Path) -> None:
        super().__init__(folder)
        self._group = group

    def command(self) -> list[str]:
        enter = 'echo $$ > "$0" && exec "$@"'
        return ["sh", "-c", enter, str(self._group / "cgroup.procs"), *super().command()]


def produce_frame(partition: int, records: bytes | bytearray) -> bytes:
    """A request to append a batch to topic "large", with acks 1."""
    data = TopicProduceData(name="large", partition_data=[PartitionProduceData(index=partition, records=records)])
    return framed(request_body(ApiKey.PRODUCE, 7, ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[data])))


def produce_response(client: socket.socket) -> int:
    """The error code of the only partition."""
    (size,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
    body = client.recv(size, socket.MSG_WAITALL)
    response = decode_response(ApiKey.PRODUCE, 7, body, 4, len(body))
    return int(response.responses[0].partition_responses[0].error_code)


@pytest.mark.verify
def test_two_large_requests_at_a_time_survive_in_300_megabytes(tmp_path: Path) -> None:
    """Each has a batch of 95 MB, which is appended, three times; the second request waits for memory."""
    with memory_group(300 * MB) as group, LimitedServer(tmp_path, group) as server:
        broker = Watched(server)
        assert str(server.pid) in (group / "cgroup.procs").read_text().split()
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        config = {"max.message.bytes": str(100 * MB)}
        for future in admin.create_topics([NewTopic("large", 2, 1, config=config)]).values():
            future.result(60)
        builder = RecordBatchBuilder(max_size=100 * MB)
        assert builder.append(None, bytes(LARGE - MB), (), 1_700_000_000_000)
        records = builder.build()
        frames = [produce_frame(number, records) for number in (0, 1)]
        before = broker.memory()
        for _ in range(3):
            clients = [broker.connect() for _ in frames]
            senders = [
                threading.Thread(target=one.sendall, args=(frame,)) for one, frame in zip(clients, frames, strict=True)
            ]
            for sender in senders:
                sender.start()
            assert [produce_response(one) for one in clients] == [0, 0]
            for sender, one in zip(senders, clients, strict=True):
                sender.join()
                one.close()
        assert str(server.pid) in (group / "cgroup.procs").read_text().split(), "it was not killed and restarted"
        wait_until(lambda: broker.memory() - before < 24 * MB, timeout_s=60, what="memory to return")
