"""Scenarios that several tests play."""

from __future__ import annotations

from barnabas.clients.consumer import Consumer
from barnabas.clients.producer import Producer
from barnabas.protocol.errors import KafkaError
from barnabas.simulation import Simulation

RECORDS = 10


async def produce_all(sim: Simulation, *topics: str) -> None:
    async with Producer(sim.bootstrap) as producer:
        for number in range(RECORDS):
            for topic in topics:
                await (await producer.send(topic, b"%d" % number))


async def follow(bootstrap: str, topics: list[str], found: list[bytes]) -> None:
    async with Consumer(bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(topics)
        while True:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += [record.value or b"" for record in records]


async def two_topics_in_a_storm(sim: Simulation) -> None:
    """Our own clients; some records may be written and read twice."""
    found: list[bytes] = []
    await sim.cluster.create_topic("orders", partitions=3)
    await sim.cluster.create_topic("mail", partitions=2)
    sim.program("reader", follow, sim.bootstrap, ["orders", "mail"], found, restart_on=KafkaError)
    sim.program("writer", produce_all, sim, "orders", "mail", restart_on=KafkaError)
    await sim.faults.random(seconds=5)
    await sim.until(lambda: len(found) >= 2 * RECORDS, 300, "that all is read")
