"""The load of `barnabas bench`: requests encoded once and sent repeatedly, so that the client uses little time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from statistics import quantiles

from ...clients.client import Client
from ...clients.connection import BrokerConnection
from ...clients.errors import code_of
from ...clients.host import now_ms
from ...clients.offsets import OffsetLookup, by_leader_of
from ...protocol.apis import ApiKey
from ...protocol.codec import decode_response, encode_request
from ...protocol.compression import CODEC_BY_CONFIG_NAME
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.headers import decode_response_header
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ...protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ...protocol.record_batch import RecordBatchBuilder, iter_batches
from ...protocol.special_timestamps import LATEST
from ...protocol.topic_partition import TopicPartition

# Versions with topic names that brokers from 2.7 to the present support, so that all receive the same requests.
_PRODUCE_VERSION = 8
_FETCH_VERSION = 11
_CHECK_EVERY = 64
_TICK = 0.1
Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Workload:
    """The parameters of the load. `window`: requests in flight on each connection."""

    topic: str
    partitions: int = 1
    record_size: int = 1024
    batch_size: int = 64 * 1024
    codec: str = "none"
    acks: int = 1
    seconds: float = 3
    window: int = 5
    connections: int = 1

    @property
    def records_per_batch(self) -> int:
        return max(1, self.batch_size // self.record_size)

    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, index) for index in range(self.partitions)]


@dataclass(slots=True)
class LoadResult:
    """The results; latencies in seconds."""

    requests: int = 0
    records: int = 0
    bytes: int = 0
    seconds: float = 0
    latencies: list[float] = field(default_factory=list)

    def row(self, test: str) -> dict[str, object]:
        """Return the figures for display. Bytes are of records before compression."""
        cuts = quantiles(self.latencies, n=1000) if len(self.latencies) > 1 else None
        return {
            "test": test,
            "records/s": round(self.records / self.seconds),
            "MB/s": round(self.bytes / self.seconds / 1e6, 1),
            "requests/s": round(self.requests / self.seconds),
            "p50 ms": round(cuts[499] * 1000, 3) if cuts else None,
            "p99 ms": round(cuts[989] * 1000, 3) if cuts else None,
        }


def record_value(size: int) -> bytes:
    """Return bytes that compress to about a half, as typical records do."""
    return os.urandom((size + 1) // 2) + bytes(size // 2)


def encoded_produce(workload: Workload, partition: int, records: int) -> bytes:
    """Encode the body of a Produce request with one batch."""
    builder = RecordBatchBuilder(codec=CODEC_BY_CONFIG_NAME[workload.codec])
    value = record_value(workload.record_size)
    timestamp = now_ms()
    for _ in range(records):
        builder.append(None, value, (), timestamp)
    request = ProduceRequest(
        transactional_id=None,
        acks=workload.acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=workload.topic, partition_data=[PartitionProduceData(index=partition, records=builder.build())]
            )
        ],
    )
    return encode_request(request, _PRODUCE_VERSION)


class ProducePump:
    """Keeps `window` requests in flight on one connection until it is stopped."""

    def __init__(
        self, connection: BrokerConnection, bodies: Sequence[bytes], workload: Workload, measured: LoadResult
    ) -> None:
        self._connection = connection
        self._bodies = cycle(bodies)
        self._workload = workload
        self._measured = measured
        self._in_flight = 0
        self._stopping = False
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        for _ in range(self._workload.window):
            self._send()

    async def stop(self) -> None:
        """Wait for the requests in flight. Raises KafkaError if a request failed."""
        self._stopping = True
        if self._in_flight or self._done.done():
            await self._done

    def _send(self) -> None:
        started = time.perf_counter()
        future = self._connection.send_encoded(ApiKey.PRODUCE, _PRODUCE_VERSION, [next(self._bodies)])
        self._in_flight += 1
        future.add_done_callback(lambda future: self._answered(future, started))

    def _answered(self, future: asyncio.Future[memoryview], started: float) -> None:
        self._in_flight -= 1
        measured = self._measured
        try:
            frame = future.result()
            if measured.requests % _CHECK_EVERY == 0:
                check_produce_response(frame)
        except KafkaError as error:
            self._stopping = True
            if not self._done.done():
                self._done.set_exception(error)
                self._done.exception()  # a cancelled task never retrieves the exception
            return
        measured.requests += 1
        measured.latencies.append(time.perf_counter() - started)
        if not self._stopping:
            self._send()
        elif not self._in_flight and not self._done.done():
            self._done.set_result(None)


def check_produce_response(frame: memoryview) -> None:
    """Raise the first error in the response, a KafkaError."""
    _, position = decode_response_header(ApiKey.PRODUCE, _PRODUCE_VERSION, frame, 0, len(frame))
    response = decode_response(ApiKey.PRODUCE, _PRODUCE_VERSION, frame, position, len(frame))
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NONE:
                raise KafkaError(code_of(partition.error_code), partition.error_message or f"topic {topic.name}")


async def produce(client: Client, workload: Workload, progress: Progress) -> LoadResult:
    """Produce for `seconds`, as fast as the window allows. Raises KafkaError."""
    measured = LoadResult()
    pumps = []
    for leader, partitions in by_leader_of(client, workload.topic_partitions()).items():
        bodies = [encoded_produce(workload, tp.partition, workload.records_per_batch) for tp in partitions]
        connections = await _connections(client, leader, workload.connections)
        pumps += [ProducePump(connection, bodies, workload, measured) for connection in connections]
    await _run(pumps, workload.seconds, progress, measured)
    measured.records = measured.requests * workload.records_per_batch
    measured.bytes = measured.records * workload.record_size
    return measured


async def _run(pumps: list[ProducePump], seconds: float, progress: Progress, measured: LoadResult) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    for pump in pumps:
        pump.start()
    while (elapsed := loop.time() - started) < seconds:
        progress(elapsed / seconds)
        await asyncio.sleep(min(_TICK, seconds - elapsed))
    await asyncio.gather(*(pump.stop() for pump in pumps))
    measured.seconds = loop.time() - started


async def produce_at_rate(client: Client, workload: Workload, rate: int, progress: Progress) -> LoadResult:
    """Send single-record requests, `rate` per second, without waiting for responses. Raises KafkaError."""
    partitions = workload.topic_partitions()
    connections = {leader: await client.connection(leader) for leader in by_leader_of(client, partitions)}
    targets = cycle(
        [
            (connections[client.cluster.leader(tp) or 0], encoded_produce(workload, tp.partition, records=1))
            for tp in partitions
        ]
    )
    measured = LoadResult()
    loop = asyncio.get_running_loop()
    finished = loop.create_future()
    total = max(1, round(rate * workload.seconds))

    def answered(started: float, future: asyncio.Future[memoryview]) -> None:
        measured.latencies.append(time.perf_counter() - started)
        measured.requests += 1
        error = future.exception()
        if not finished.done() and (error is not None or measured.requests == total):
            finished.set_exception(error) if error is not None else finished.set_result(None)

    started_at = time.perf_counter()
    for number in range(total):
        wait = started_at + number / rate - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        if number % max(1, rate // 10) == 0:
            progress(number / total)
        connection, body = next(targets)
        sent_at = time.perf_counter()
        future = connection.send_encoded(ApiKey.PRODUCE, _PRODUCE_VERSION, [body])
        future.add_done_callback(partial(answered, sent_at))
    await finished
    measured.seconds = time.perf_counter() - started_at
    measured.records = measured.requests
    measured.bytes = measured.records * workload.record_size
    return measured


async def fetch(client: Client, workload: Workload, progress: Progress) -> LoadResult:
    """Read all records from the beginning, once, one long fetch after another. Raises KafkaError."""
    measured = LoadResult()
    started = time.perf_counter()
    groups = by_leader_of(client, workload.topic_partitions())
    ends = await _ends(client, workload.topic_partitions())
    total = sum(ends.values()) or 1
    fetches = []
    for leader, partitions in groups.items():
        connection = await client.connection(leader)
        fetches.append(_fetch_from(connection, {tp: ends[tp] for tp in partitions}, measured, total, progress))
    await asyncio.gather(*fetches)
    measured.seconds = time.perf_counter() - started
    measured.bytes = measured.records * workload.record_size
    return measured


async def _fetch_from(
    connection: BrokerConnection, ends: dict[TopicPartition, int], measured: LoadResult, total: int, progress: Progress
) -> None:
    offsets = dict.fromkeys(ends, 0)
    while wanted := [tp for tp, end in ends.items() if offsets[tp] < end]:
        (topic,) = {tp.topic for tp in wanted}
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=64 * 1024 * 1024,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=tp.partition, fetch_offset=offsets[tp], partition_max_bytes=8 * 1024 * 1024
                        )
                        for tp in wanted
                    ],
                )
            ],
        )
        sent_at = time.perf_counter()
        response = await connection.send(request, _FETCH_VERSION)
        measured.latencies.append(time.perf_counter() - sent_at)
        measured.requests += 1
        for data in response.responses[0].partitions:
            if data.error_code != ErrorCode.NONE:
                raise KafkaError(code_of(data.error_code), f"{topic}-{data.partition_index}")
            for batch in iter_batches(data.records or b""):
                measured.records += batch.last_offset - batch.base_offset + 1
                offsets[TopicPartition(topic, data.partition_index)] = batch.last_offset + 1
        progress(measured.records / total)


async def _ends(client: Client, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    found = await OffsetLookup(client).find(dict.fromkeys(partitions, LATEST), timeout_ms=10_000)
    return {tp: offset.offset for tp, offset in found.items()}


async def _connections(client: Client, leader: int, count: int) -> list[BrokerConnection]:
    node = client.cluster.brokers[leader]
    return [await BrokerConnection.open(node.host, node.port, client.options) for _ in range(count)]
