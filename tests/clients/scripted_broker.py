"""Brokers for client tests: real bytes over a simulated network, a log in memory, and faults as the test scripts them.

The log keeps Kafka's rules for producers (sequences, epochs, the window of five batches), so that what a client does
wrong on a retry shows as a duplicate or a gap.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from barnabas.protocol.apis import API_MESSAGES, ApiKey
from barnabas.protocol.codec import decode_request, encode_response
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, decode_request_header, encode_response_header
from barnabas.protocol.messages import fetch, list_offsets, metadata, offset_for_leader_epoch, produce
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.record import Record
from barnabas.protocol.record_batch import iter_batches
from barnabas.protocol.schema import ZERO_UUID
from barnabas.simulation.loop import SimLoop, run
from barnabas.simulation.network import SimNetwork

WINDOW = 5
EARLIEST, LATEST = -2, -1
SERVED = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (0, 18),
    ApiKey.LIST_OFFSETS: (0, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (0, 4),
}


@dataclass
class StoredPartition:
    """One partition's log: batches as bytes with their first and last offset, and what it knows of producers."""

    leader: int = 0
    leader_epoch: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    log_start: int = 0
    end: int = 0
    stable: int | None = None
    aborted: list[tuple[int, int]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = field(default_factory=dict)

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        """Store what a client sent, or refuse it for its sequence."""
        batches = list(iter_batches(data))
        first = batches[0]
        count = sum(batch.last_offset - batch.base_offset + 1 for batch in batches)
        if first.producer_id >= 0:
            refusal = self._check(first)
            if refusal is not None:
                return refusal
        base = self.store(data, count)
        if first.producer_id >= 0:
            epoch, window = self.producers[first.producer_id]
            window.append((first.base_sequence, first.last_sequence, base))
            self.producers[first.producer_id] = (epoch, window)
        return ErrorCode.NONE, base

    def store(self, data: bytes, count: int) -> int:
        """Put bytes at the end with their offsets set; returns the first offset."""
        base, stored = self.end, bytearray(data)
        view = memoryview(stored)
        for batch in list(iter_batches(stored)):
            span = batch.last_offset - batch.base_offset
            # A wrapper of format v1 bears its last offset, a batch of format v2 its first.
            offset = self.end if batch.magic == 2 else self.end + span
            view[batch.position : batch.position + 8] = offset.to_bytes(8, "big")
            if batch.magic == 2:
                view[batch.position + 12 : batch.position + 16] = self.leader_epoch.to_bytes(4, "big")
            self.end += span + 1
        assert self.end == base + count
        self.batches.append((base, self.end - 1, bytes(stored)))
        return base

    def _check(self, batch: Any) -> tuple[ErrorCode, int] | None:
        epoch, window = self.producers.get(batch.producer_id, (-1, deque(maxlen=WINDOW)))
        if batch.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if batch.producer_epoch > epoch:
            if epoch >= 0 and batch.base_sequence != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.producers[batch.producer_id] = (batch.producer_epoch, deque(maxlen=WINDOW))
            return None
        for first, last, base in window:
            if (first, last) == (batch.base_sequence, batch.last_sequence):
                return ErrorCode.NONE, base
        if window and batch.base_sequence != (window[-1][1] + 1) & 0x7FFFFFFF:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return None

    def records(self) -> list[Record]:
        return [record for _, _, data in self.batches for batch in iter_batches(data) for record in batch.records()]


class ScriptedCluster:
    """Brokers 1 … n on the simulated network, sharing their logs. A test reaches into it at will."""

    def __init__(self, loop: SimLoop, *, brokers: int = 1, topics: dict[str, int] | None = None) -> None:
        self.loop = loop
        self.network = SimNetwork(loop, random.Random(loop.time()))
        self.nodes = {number: f"broker{number}" for number in range(1, brokers + 1)}
        self.topic_ids: dict[str, UUID] = {}
        self.partitions: dict[tuple[str, int], StoredPartition] = {}
        self.versions = dict(SERVED)
        self.requests: list[tuple[int, ApiKey, int, Any]] = []
        self.before: Callable[[int, ApiKey, Any], object] | None = None
        """May answer a request in place of the broker: with a response, or with DROP or SILENCE."""
        self.after: Callable[[int, ApiKey, Any, Any], Any] | None = None
        """May change a response, or return DROP or SILENCE, after the broker did what was asked."""
        self.max_message_bytes = 1 << 20
        self._next_producer_id = 1000
        self._connections: list[_Connection] = []
        for name, count in (topics or {}).items():
            self.topic_ids[name] = UUID(int=len(self.topic_ids) + 1)
            for index in range(count):
                self.partitions[name, index] = StoredPartition(leader=index % brokers + 1)

    async def start(self) -> None:
        for number, host in self.nodes.items():
            await self.loop.create_server(lambda number=number: _Connection(self, number), host, 9092)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:9092" for host in self.nodes.values())

    def asked(self, key: ApiKey) -> list[Any]:
        return [request for _, k, _, request in self.requests if k is key]

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        return self.partitions[topic, partition].records()

    def move(self, topic: str, partition: int, leader: int) -> None:
        """Elect another leader."""
        stored = self.partitions[topic, partition]
        stored.leader = leader
        stored.leader_epoch += 1
        stored.epochs.append((stored.leader_epoch, stored.end))

    def disconnect_all(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    # What brokers do

    def answer(self, node: int, key: ApiKey, version: int, request: Any) -> Any:
        return getattr(self, f"_{key.name.lower()}")(node, version, request)

    def _api_versions(self, node: int, version: int, request: Any) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.versions.items()
            ]
        )

    def _metadata(self, node: int, version: int, request: Any) -> Any:
        wanted = self.topic_ids if request.topics is None else [topic.name for topic in request.topics]
        ids = self.versions[ApiKey.METADATA][1] >= 10
        topics = []
        for name in wanted:
            known = name in self.topic_ids
            topics.append(
                metadata.MetadataResponseTopic(
                    name=name,
                    topic_id=self.topic_ids[name] if known and ids else ZERO_UUID,
                    error_code=ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    partitions=[
                        metadata.MetadataResponsePartition(
                            partition_index=index,
                            leader_id=stored.leader,
                            leader_epoch=stored.leader_epoch,
                            replica_nodes=[stored.leader],
                            isr_nodes=[stored.leader],
                        )
                        for (topic, index), stored in self.partitions.items()
                        if topic == name
                    ],
                )
            )
        brokers = [metadata.MetadataResponseBroker(node_id=n, host=h, port=9092) for n, h in self.nodes.items()]
        return metadata.MetadataResponse(brokers=brokers, cluster_id="scripted", controller_id=1, topics=topics)

    def _init_producer_id(self, node: int, version: int, request: Any) -> InitProducerIdResponse:
        self._next_producer_id += 1
        return InitProducerIdResponse(producer_id=self._next_producer_id, producer_epoch=0)

    def _produce(self, node: int, version: int, request: Any) -> Any:
        response = produce.ProduceResponse()
        for topic in request.topic_data:
            name = self._name(topic.name, topic.topic_id)
            answer = produce.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            response.responses.append(answer)
            for data in topic.partition_data:
                error, base = self._append(node, (name, data.index), bytes(data.records))
                answer.partition_responses.append(
                    produce.PartitionProduceResponse(index=data.index, error_code=error, base_offset=base)
                )
        return response

    def _append(self, node: int, partition: tuple[str, int], data: bytes) -> tuple[ErrorCode, int]:
        stored = self.partitions[partition]
        if stored.leader != node:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if len(data) > self.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        return stored.append(data)

    def _list_offsets(self, node: int, version: int, request: Any) -> Any:
        response = list_offsets.ListOffsetsResponse()
        for topic in request.topics:
            answer = list_offsets.ListOffsetsTopicResponse(name=topic.name)
            response.topics.append(answer)
            for wanted in topic.partitions:
                stored = self.partitions[topic.name, wanted.partition_index]
                answer.partitions.append(
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=wanted.partition_index,
                        error_code=ErrorCode.NONE if stored.leader == node else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        offset=stored.log_start if wanted.timestamp == EARLIEST else stored.end,
                        leader_epoch=stored.leader_epoch if version >= 4 else -1,
                    )
                )
        return response

    def _offset_for_leader_epoch(self, node: int, version: int, request: Any) -> Any:
        response = offset_for_leader_epoch.OffsetForLeaderEpochResponse()
        for topic in request.topics:
            answer = offset_for_leader_epoch.OffsetForLeaderTopicResult(topic=topic.topic)
            response.topics.append(answer)
            for wanted in topic.partitions:
                stored = self.partitions[topic.topic, wanted.partition]
                later = [start for epoch, start in stored.epochs if epoch > wanted.leader_epoch]
                answer.partitions.append(
                    offset_for_leader_epoch.EpochEndOffset(
                        partition=wanted.partition,
                        leader_epoch=max(e for e, _ in stored.epochs if e <= wanted.leader_epoch),
                        end_offset=min(later, default=stored.end),
                    )
                )
        return response

    def _fetch(self, node: int, version: int, request: Any) -> Any:
        response = fetch.FetchResponse()
        for topic in request.topics:
            name = self._name(topic.topic, topic.topic_id)
            answer = fetch.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
            response.responses.append(answer)
            for wanted in topic.partitions:
                answer.partitions.append(self._read(node, name, wanted, request.isolation_level))
        return response

    def _read(self, node: int, name: str, wanted: Any, isolation_level: int) -> Any:
        stored = self.partitions[name, wanted.partition]
        data = fetch.PartitionData(
            partition_index=wanted.partition, high_watermark=stored.end, last_stable_offset=stored.end, records=b""
        )
        if stored.leader != node:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif 0 <= wanted.current_leader_epoch < stored.leader_epoch:
            data.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif not stored.log_start <= wanted.fetch_offset <= stored.end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            data.records = b"".join(d for _, last, d in stored.batches if last >= wanted.fetch_offset)
        if isolation_level:
            data.aborted_transactions = [
                fetch.AbortedTransaction(producer_id=producer_id, first_offset=first)
                for producer_id, first in stored.aborted
            ]
        return data

    def _name(self, name: str, topic_id: UUID) -> str:
        return name or next(n for n, i in self.topic_ids.items() if i == topic_id)


DROP = object()
"""In place of a response: close the connection."""
SILENCE = object()
"""In place of a response: never answer on this connection again, as a broker that waits for something."""


class _Connection(asyncio.Protocol):
    """One client's connection: a request at a time, answered in order."""

    def __init__(self, cluster: ScriptedCluster, node: int) -> None:
        self._cluster = cluster
        self._node = node
        self._received = bytearray()
        self._transport: Any = None
        self._is_silent = False
        cluster._connections.append(self)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (
            not self._is_silent
            and len(self._received) >= 4
            and len(self._received) - 4 >= (length := int.from_bytes(self._received[:4], "big"))
        ):
            frame = bytes(self._received[4 : 4 + length])
            del self._received[: 4 + length]
            if not self._handle(frame):
                self.close()
                return

    def _handle(self, frame: bytes) -> bool:
        cluster = self._cluster
        header, position = decode_request_header(frame, 0, len(frame))
        key = ApiKey(header.api_key)
        low, high = cluster.versions.get(key, (0, -1))
        if not low <= header.api_version <= high:
            if key is not ApiKey.API_VERSIONS:
                return False
            self._send(header._replace(api_version=0), ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
            return True
        request = decode_request(key, header.api_version, frame, position, len(frame))
        cluster.requests.append((self._node, key, header.api_version, request))
        response = cluster.before(self._node, key, request) if cluster.before is not None else None
        if response is None:
            response = cluster.answer(self._node, key, header.api_version, request)
            if cluster.after is not None:
                response = cluster.after(self._node, key, request, response)
        if response is DROP:
            return False
        self._is_silent = response is SILENCE
        if not self._is_silent and not (key is ApiKey.PRODUCE and request.acks == 0):
            self._send(header, response)
        return True

    def _send(self, header: RequestHeader, response: Any) -> None:
        head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
        body = b"".join(map(bytes, encode_response(response, header.api_version)))
        self._transport.write((len(head) + len(body)).to_bytes(4, "big") + head + body)


def play(
    story: Callable[[ScriptedCluster], Awaitable[None]],
    *,
    brokers: int = 1,
    topics: dict[str, int] | None = None,
    seed: int = 1,
) -> None:
    """Run a test's story against fresh brokers, in virtual time."""

    async def main(loop: SimLoop) -> None:
        cluster = ScriptedCluster(loop, brokers=brokers, topics={"t": 1} if topics is None else topics)
        await cluster.start()
        await story(cluster)

    run(main, seed)


assert set(SERVED) <= set(API_MESSAGES)
