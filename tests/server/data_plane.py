"""A whole broker in a simulated world, and clients that talk to it in raw messages: for tests of the data plane."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

from tests.frames import framed, request_body

from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.codec import decode_response
from barnabas.protocol.headers import decode_response_header
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.record import Record
from barnabas.protocol.record_batch import iter_batches
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.server.broker import BrokerServer
from barnabas.server.broker_state import BrokerState
from barnabas.server.replication.partition import Partition
from barnabas.server.security.authorizer import Authorizer
from barnabas.simulation.loop import SimLoop, run
from barnabas.simulation.machines import HOST, PORT, START_MS, WorkDelays, World
from barnabas.simulation.network import NetworkFaults

Talk = Callable[["DataPlane"], Awaitable[None]]
PAGE_CACHE = {"acks.all.durability": "page-cache"}


class DataPlane:
    """One running broker with the topic `t` of two partitions."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = world.loop

    @property
    def server(self) -> BrokerServer:
        assert self.world.broker.server is not None
        return self.world.broker.server

    @property
    def state(self) -> BrokerState:
        return self.server.state

    def now_ms(self) -> int:
        return self.world.now_ms()

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        found = self.state.replica_manager.get_partition(topic, index)
        assert found is not None
        return found

    def topic_id(self, topic: str = "t") -> UUID:
        found = self.state.metadata.topic_id(topic)
        assert found is not None
        return found

    async def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        await self.world.create_topic(name, partitions, settings)

    async def delete_topic(self, name: str) -> None:
        await self.world.delete_topic(name)

    async def connect(self, client_id: str = "test") -> BrokerConnection:
        """A connection of its own, which keeps the order of its requests, with ten minutes of patience."""
        return await BrokerConnection.open(HOST, PORT, ConnectionOptions(client_id, 600_000, 600_000))

    async def raw(self) -> RawClient:
        return RawClient(*await asyncio.open_connection(HOST, PORT))

    async def until(self, condition: Callable[[], Any], seconds: float = 600.0) -> None:
        """Let virtual time pass until the condition holds; who waits long looks less often."""
        began = self.loop.time()
        while not condition():
            waited = self.loop.time() - began
            assert waited < seconds, f"the condition did not hold within {seconds:g} s"
            await asyncio.sleep(max(0.0005, waited / 1000))

    async def append(
        self, records: bytes, *, topic: str = "t", index: int = 0, acks: int = 1, version: int = 9
    ) -> PartitionProduceResponse:
        """Produce to one partition over a connection of its own."""
        connection = await self.connect()
        response = await connection.send(produce(records, topic=topic, index=index, acks=acks), version)
        connection.close()
        return only_produced(response)


class RawClient:
    """Frames by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, key: int, version: int, message: Any, correlation_id: int = 1) -> None:
        self.writer.write(framed(request_body(key, version, message, correlation_id=correlation_id, client_id="raw")))

    async def frame(self) -> bytes:
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    async def receive(self, key: int, version: int) -> tuple[int, Any]:
        """The next answer: its correlation id and its message."""
        frame = await self.frame()
        correlation_id, position = decode_response_header(key, version, frame, 0, len(frame))
        return correlation_id, decode_response(key, version, frame, position, len(frame))

    async def is_closed(self) -> bool:
        """Wait for the broker to close the connection; whether it did so without a further answer."""
        return await self.reader.read() == b""


def play(
    talk: Talk,
    *,
    settings: Mapping[str, str] | None = None,
    delays: WorkDelays | None = None,
    seed: int = 11,
    authorizer: Authorizer | None = None,
) -> None:
    """Start a broker, make the topic `t`, talk to it, and stop it."""

    async def main(loop: SimLoop) -> None:
        world = World(
            loop,
            seed,
            settings=settings or {},
            network_faults=NetworkFaults(split_chance=0.5),
            delays=delays or WorkDelays(),
        )
        world.broker.authorizer = authorizer
        await world.broker.start()
        plane = DataPlane(world)
        await plane.create_topic("t", 2)
        await talk(plane)
        assert plane.server.failed.is_set() is False
        await world.broker.stop()

    run(main, seed)


def batch(*values: bytes | None, timestamp: int = -1, key: bytes | None = None, **options: Any) -> bytes:
    """One record batch of format v2."""
    builder = RecordBatchBuilder(**options)
    for value in values:
        builder.append(key, value, timestamp=timestamp)
    return builder.build()


def idempotent(producer_id: int, epoch: int, sequence: int, count: int = 1) -> bytes:
    """A batch of a producer with retries; its timestamp is of the day, since producers are forgotten by timestamp."""
    producer: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return batch(*[b"v"] * count, timestamp=START_MS, **producer)


def legacy_records(*values: bytes, timestamp: int = -1) -> list[Record]:
    """Records for `build_message_set`, with the offsets a producer gives them."""
    return [Record(offset, timestamp, None, value) for offset, value in enumerate(values)]


def produce(
    records: bytes | None,
    *,
    topic: str = "t",
    topic_id: UUID | None = None,
    index: int = 0,
    acks: int = 1,
    timeout_ms: int = 10_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """A request with the records of one partition."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=records)])
    if topic_id is not None:
        data.topic_id = topic_id
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data], transactional_id=transactional_id)


def only_produced(response: ProduceResponse) -> PartitionProduceResponse:
    ((partition,),) = (topic.partition_responses for topic in response.responses)
    return partition


def fetch(
    *partitions: FetchPartition,
    topic: str = "t",
    topic_id: UUID | None = None,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    **options: Any,
) -> FetchRequest:
    """A request for partitions of one topic."""
    wanted = FetchTopic(topic=topic, partitions=list(partitions))
    if topic_id is not None:
        wanted.topic_id = topic_id
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=[wanted] if partitions else [], **options)


def at(offset: int, index: int = 0, max_bytes: int = 1 << 20, **options: Any) -> FetchPartition:
    """Ask for a partition from an offset on."""
    return FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, **options)


def fetched(response: FetchResponse) -> dict[int, PartitionData]:
    """The answers of a response about one topic, by partition, in their order."""
    return {data.partition_index: data for topic in response.responses for data in topic.partitions}


def only_fetched(response: FetchResponse) -> PartitionData:
    (data,) = fetched(response).values()
    return data


def values_in(data: PartitionData) -> list[bytes | None]:
    """The values of all records in an answer."""
    return [record.value for one in iter_batches(bytes(data.records or b"")) for record in one.records()]
