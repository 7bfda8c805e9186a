"""Share consumers while leaders and share coordinators of three brokers are killed: every record is processed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.clients import Admin, NewTopic, Producer, ShareConsumer, ShareRecord, raise_first
from barnabas.clients.admin import ConfigChange, ConfigResource
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import KafkaError
from barnabas.testing.cluster import Cluster

pytestmark = [pytest.mark.verify, pytest.mark.timeout(240)]

RECORDS = 3000
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "3000",
    "group.share.delivery.count.limit": "10",
}


async def test_every_record_is_processed_while_brokers_are_killed() -> None:
    async with Cluster(3, config=SETTINGS) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            raise_first(await admin.create_topics([NewTopic("t", 3, 3)]))
            earliest = [ConfigChange("share.auto.offset.reset", "earliest")]
            raise_first(await admin.alter_configs({ConfigResource(ConfigResourceType.GROUP, "g"): earliest}))
        async with Producer(cluster.bootstrap) as producer:
            futures = [await producer.send("t", b"%d" % n, key=b"%d" % n) for n in range(RECORDS)]
            await asyncio.gather(*futures)
        delivered, accepted, finished = set[bytes | None](), set[bytes | None](), asyncio.Event()

        async def process(record: ShareRecord) -> None:
            delivered.add(record.value)
            await asyncio.sleep(0.01)
            try:
                await record.accept()
            except KafkaError:
                return  # delivered again, unless the broker had stored the acknowledgement
            accepted.add(record.value)

        async def work() -> None:
            times: dict[str, Any] = {
                "request_timeout_ms": 5_000,
                "default_api_timeout_ms": 10_000,
                "max_poll_records": 20,
            }
            async with ShareConsumer(
                cluster.bootstrap, "g", ["t"], share_acknowledgement_mode="explicit", **times
            ) as consumer:
                while not finished.is_set():
                    for records in (await consumer.getmany(timeout_ms=300)).values():
                        await asyncio.gather(*map(process, records))

        workers = [asyncio.create_task(work()) for _ in range(3)]
        for partition in range(3):
            before = len(accepted)
            while len(accepted) < min(before + 200, RECORDS - 300):
                assert not any(worker.done() for worker in workers), [worker.exception() for worker in workers]
                await asyncio.sleep(0.05)
            leader = cluster.leader("t", partition)
            await cluster.akill(leader)
            await asyncio.sleep(1)  # the time without this broker is the fault, not a wait for a condition
            await cluster.astart(leader)
        async with Admin(cluster.bootstrap) as admin:
            while True:
                offsets = (await admin.list_share_group_offsets(["g"]))["g"]
                if not isinstance(offsets, KafkaError) and [one.lag for one in offsets.values()] == [0, 0, 0]:
                    break
                await asyncio.sleep(0.5)
        finished.set()
        await asyncio.gather(*workers)
        assert delivered == {b"%d" % n for n in range(RECORDS)}
        assert len(accepted) > RECORDS / 2
