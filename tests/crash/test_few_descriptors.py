"""`ulimit -n 256`: many more partitions than files may be open, many connections, and everybody is served."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from soak.hostile.wire import Wire
from tests.barnabas_server import BarnabasServer
from tests.frames import framed

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response, encode_request
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request_header
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.record_batch import RecordBatchBuilder

FILES = 256
TOPIC = "t"
PARTITIONS = 300
CONNECTIONS = 40
PATIENCE_SECONDS = 120
"""For hundreds of syncs, on whatever disk there is."""


class FewDescriptors(BarnabasServer):
    """A broker that may have no more than 256 files and sockets open."""

    def command(self) -> list[str]:
        return ["prlimit", f"--nofile={FILES}:{FILES}", *super().command()]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FewDescriptors]:
    settings = {"log.segment.bytes": "1500", "num.recovery.threads.per.data.dir": "8"}
    with FewDescriptors(tmp_path / "broker", properties=settings) as broker:
        yield broker


def call(wire: Wire, api_key: ApiKey, request: Any, version: int) -> Any:
    header = RequestHeader(api_key, version, 7, "few")
    wire.socket.settimeout(PATIENCE_SECONDS)
    wire.send(framed(encode_request_header(header) + encode_request(request, version)))
    answer = wire.receive()
    _, position = decode_response_header(api_key, version, answer, 0, len(answer))
    return decode_response(api_key, version, answer, position, len(answer))


def produce(wire: Wire, partitions: range, value: bytes) -> set[int]:
    """The error codes of one request with a record for each partition."""
    builder = RecordBatchBuilder()
    builder.append(None, value, (), int(time.time() * 1000))
    data = builder.build()
    entries = [PartitionProduceData(index=partition, records=data) for partition in partitions]
    topics = [TopicProduceData(name=TOPIC, partition_data=entries)]
    request = ProduceRequest(acks=-1, timeout_ms=PATIENCE_SECONDS * 1000, topic_data=topics)
    answer = call(wire, ApiKey.PRODUCE, request, 9)
    return {one.error_code for topic in answer.responses for one in topic.partition_responses}


def fetch(wire: Wire, offset: int) -> dict[int, tuple[int, int]]:
    """Of each partition the error code, and how many bytes there are from an offset on."""
    wanted = [FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=100_000) for p in range(PARTITIONS)]
    request = FetchRequest(max_wait_ms=0, max_bytes=1 << 30, topics=[FetchTopic(topic=TOPIC, partitions=wanted)])
    (topic,) = call(wire, ApiKey.FETCH, request, 12).responses
    return {one.partition_index: (one.error_code, len(one.records or b"")) for one in topic.partitions}


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.timeout(300)  # thousands of syncs, on whatever disk there is
def test_many_partitions_and_connections_share_few_descriptors(broker: FewDescriptors) -> None:
    address = ("127.0.0.1", broker.port)
    with ExitStack() as stack:
        wire = Wire(address)
        stack.callback(wire.close)
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        created = call(wire, ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5)
        assert created.topics[0].error_code == 0
        wires = [wire]
        for _ in range(CONNECTIONS):
            wires.append(Wire(address))
            stack.callback(wires[-1].close)
        for turn in range(2):
            assert produce(wire, range(PARTITIONS), bytes(900)) == {0}, "all at once"
            for number, other in enumerate(wires):
                assert produce(other, range(number, PARTITIONS, len(wires)), bytes(900)) == {0}, turn
            assert {error for error, _ in fetch(wires[turn], 0).values()} == {0}
            assert open_files(broker.pid) < FILES - 30, "some are left for what comes"
        assert all(size > 0 for _, size in fetch(wire, 3).values())
    assert broker.stop() == 0
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    broker.start()
    wire = Wire(address)
    assert set(fetch(wire, 0).values()) == {(0, size) for _, size in fetch(wire, 0).values()}
    assert produce(wire, range(PARTITIONS), b"x") == {0}
    broker.kill()
    broker.start()
    wire = Wire(address)
    assert produce(wire, range(PARTITIONS), b"x") == {0}
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()
