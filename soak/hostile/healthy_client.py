"""A correct client with a separate connection that measures the latency of its requests."""

from __future__ import annotations

import random
import time
from typing import Any

from soak.hostile.wire import ClosedError, Endpoint
from tests.frames import framed, request_body

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response
from barnabas.protocol.compression import Compression
from barnabas.protocol.headers import decode_response_header
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.record_batch import iter_batches
from barnabas.protocol.record_batch_builder import RecordBatchBuilder

TOPIC = "healthy"
VERSIONS = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.CREATE_ACLS: 3,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
}


class HealthyClient:
    """A client that repeatedly writes a record, reads the record and compares both."""

    def __init__(self, endpoint: Endpoint, *, deadline_seconds: float) -> None:
        self.latencies: list[float] = []
        self.rounds = 0
        self._wire = endpoint.connect()
        self._wire.socket.settimeout(deadline_seconds)
        self._random = random.Random(0)
        self._correlation_id = 0

    def create_topics(self, names: list[str]) -> None:
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
        response = self.call(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
        codes = {topic.error_code for topic in response.topics}
        assert codes <= {0, 36}, f"topics not created: {codes}"

    def round(self, acks: int) -> None:
        """Write and read one record. Raises AssertionError, ClosedError or TimeoutError after a failure."""
        value = self._random.randbytes(100)
        offset = self._write(value, acks)
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10_000)
        fetch = FetchRequest(max_wait_ms=1000, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])])
        found = self.call(ApiKey.FETCH, fetch).responses[0].partitions[0]
        assert found.error_code == 0, f"fetch failed: {found}"
        record = next(iter(next(iter(iter_batches(found.records))).records()))
        assert (record.offset, bytes(record.value)) == (offset, value), "read another record than written"
        self.rounds += 1

    def write_in_every_codec(self) -> None:
        """Write a record with each codec, so that the broker has loaded all decompressors."""
        for codec in Compression:
            self._write(bytes(100), 1, codec)

    def write_much(self, size: int) -> None:
        """Write one record of `size` bytes."""
        self._write(bytes(size), 1)

    def call(self, key: ApiKey, request: object) -> Any:
        """Send a request, measure its latency, and return the response."""
        self._correlation_id += 1
        version = VERSIONS[key]
        body = request_body(key, version, request, correlation_id=self._correlation_id, client_id="healthy")
        began = time.perf_counter()
        try:
            self._wire.send(framed(body))
            response = self._wire.receive()
        except ClosedError:
            raise AssertionError("the healthy client's connection was closed") from None
        self.latencies.append(time.perf_counter() - began)
        correlation_id, position = decode_response_header(key, version, response, 0, len(response))
        assert correlation_id == self._correlation_id
        return decode_response(key, version, response, position, len(response))

    def close(self) -> None:
        self._wire.close()

    def _write(self, value: bytes, acks: int, codec: Compression = Compression.NONE) -> int:
        """Write one record and return its offset."""
        builder = RecordBatchBuilder(codec=codec)
        builder.append(b"k", value, (), int(time.time() * 1000))
        data = PartitionProduceData(index=0, records=builder.build())
        produce = ProduceRequest(
            acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
        )
        response = self.call(ApiKey.PRODUCE, produce).responses[0].partition_responses[0]
        assert response.error_code == 0, f"produce failed: {response}"
        offset: int = response.base_offset
        return offset
