"""Two brokers of one process follow each other over real sockets, on a real disk."""

from __future__ import annotations

import asyncio
import random
import time
from uuid import UUID

import pytest
from tests.server.data_plane import batch, only_produced, produce
from tests.waiting import until

from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.metadata.metadata_cache import PartitionImage, TopicImage
from barnabas.server.metadata.znodes import BrokerEndpoint, BrokerInfo
from barnabas.server.network.broker_connections import BrokerConnections
from barnabas.server.replication.leader_and_isr import IsrChange, LeaderAndIsr, LeaderAndIsrState
from barnabas.server.replication.replication import Replication
from barnabas.testing.broker import Broker

TOPIC_ID, NAME = UUID(int=5), TopicPartition("t", 0)


class Granted:
    """Grants every change."""

    def __init__(self) -> None:
        self.isr: tuple[int, ...] = (1,)

    async def submit(self, change: IsrChange) -> LeaderAndIsr:
        self.isr = change.isr
        return LeaderAndIsr(1, change.leader_epoch, change.partition_epoch + 1, change.isr)


@pytest.mark.parametrize("durability", ["disk", "page-cache"])
async def test_a_follower_catches_up_and_is_waited_for(durability: str) -> None:
    granted, parts = Granted(), []
    ports: dict[int, int] = {}

    def endpoint(broker_id: int) -> tuple[str, int]:
        return "127.0.0.1", ports[broker_id]

    async with (
        Broker(config={"broker.id": "1", "acks.all.durability": durability}) as first,
        Broker(config={"broker.id": "2", "acks.all.durability": durability}) as second,
    ):
        ports |= {1: first.port, 2: second.port}
        for broker_id, broker in ((1, first), (2, second)):
            state = broker.server.state
            brokers = {
                one: BrokerInfo(one, (BrokerEndpoint("PLAINTEXT", "127.0.0.1", port),)) for one, port in ports.items()
            }
            state.metadata.set_brokers(brokers)
            state.metadata.put_topics([TopicImage("t", TOPIC_ID, {0: PartitionImage(0, 1, 1, 0, (1, 2), (1, 2))})])
            parts.append(
                Replication(
                    state.replica_manager,
                    broker_id=broker_id,
                    broker_epoch=lambda: -1,
                    config=state.config,
                    metadata=state.metadata,
                    isr_changes=granted,
                    connect=lambda timeout_ms, own=broker_id: BrokerConnections(  # type: ignore[misc]
                        own, endpoint, random.Random(1), timeout_ms=timeout_ms
                    ),
                    paused=state.cleaner.paused,
                    stopwatch=time.perf_counter,
                    loop=asyncio.get_running_loop(),
                )
            )
        order = LeaderAndIsrState(NAME, TOPIC_ID, 1, 1, 1, (1, 2), (1,), is_new=True)
        leader, follower = first.server.state.replica_manager, second.server.state.replica_manager
        leader.become_leader(order)
        client = await BrokerConnection.open("127.0.0.1", ports[1], ConnectionOptions())
        large = batch(*[bytes(1000)] * 900)
        for _ in range(6):
            assert only_produced(await client.send(produce(large, acks=1), 9)).error_code == 0
        follower.become_follower(order)
        await until(lambda: granted.isr == (1, 2))
        for number in range(20):
            assert only_produced(await client.send(produce(batch(b"%d" % number), acks=-1), 9)).error_code == 0
        logs = [manager.get_partition(*NAME).log for manager in (leader, follower)]  # type: ignore[union-attr]
        assert [log.log_end_offset for log in logs] == [5420, 5420]
        assert bytes(logs[0].read(0, 10 << 20).data) == bytes(logs[1].read(0, 10 << 20).data)
        if durability == "disk":
            assert [log.recovery_point for log in logs] == [5420, 5420]
        client.close()
        for part in parts:
            await part.close()
