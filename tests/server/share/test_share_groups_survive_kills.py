"""A share group in a cluster whose leaders and share coordinators are killed: no record is lost, and no record is
delivered again after its acknowledgement is durable."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from tests.waiting import until

from barnabas.clients import Admin, Producer, ShareConsumer, ShareRecord, raise_first
from barnabas.clients.admin import ConfigChange, ConfigResource
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import KafkaError
from barnabas.server.coordinator.share.share_partition_key import SharePartitionKey
from barnabas.testing import Cluster

pytestmark = [pytest.mark.verify, pytest.mark.timeout(280)]

TOPIC, GROUP = "q", "g"
PARTITIONS = 3
MEMBERS = 4
BUFFERED_SECONDS = 4.0
"""The longest time that a record is in the buffer of a client."""
SETTINGS = {
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 3,
    "share.coordinator.state.topic.min.isr": 2,
    "share.coordinator.state.topic.num.partitions": 3,
    "share.coordinator.snapshot.update.records.per.snapshot": 20,
    "share.coordinator.state.topic.prune.interval.ms": 1000,
    "share.coordinator.cold.partition.snapshot.interval.ms": 1000,
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.record.lock.duration.ms": 3000,
}
GROUP_SETTINGS = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}


class Work:
    """What was written, delivered and acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.written: set[bytes] = set()
        self.durable: dict[bytes, tuple[int, float]] = {}
        """Delivery count and time of acknowledgements that are durable."""
        self.delivered: set[bytes] = set()
        self.again: list[bytes] = []
        """Records that were delivered after their acknowledgement was durable."""
        self.is_over = False
        """Whether no more records are written."""
        self.is_finished = False
        """Whether all records are acknowledged."""

    async def write(self) -> None:
        number = 0
        async with Producer(self.bootstrap, linger_ms=0) as producer:
            while not self.is_over:
                value = b"%d" % number
                with suppress(KafkaError):
                    await (await producer.send(TOPIC, value, partition=number % PARTITIONS))
                    self.written.add(value)
                number += 1
                await asyncio.sleep(0.005)

    async def consume(self) -> None:
        while not self.is_finished:
            with suppress(KafkaError):
                async with ShareConsumer(
                    self.bootstrap, GROUP, [TOPIC], share_acknowledgement_mode="explicit", max_poll_records=20
                ) as consumer:
                    while not self.is_finished:
                        found = await consumer.getmany(timeout_ms=200)
                        await self._acknowledge([record for records in found.values() for record in records])

    async def _acknowledge(self, records: list[ShareRecord]) -> None:
        now = asyncio.get_running_loop().time()
        for record in records:
            self.delivered.add(bytes(record.value or b""))
            count, since = self.durable.get(bytes(record.value or b""), (record.delivery_count, now))
            # A client may still have a record that another member has acknowledged since its acquisition lock expired.
            if record.delivery_count > count or now - since > BUFFERED_SECONDS:
                self.again.append(bytes(record.value or b""))
        acknowledgements = [record.accept() for record in records]
        for record, acknowledgement in zip(records, acknowledgements, strict=True):
            with suppress(KafkaError):
                await acknowledgement
                self.durable[bytes(record.value or b"")] = record.delivery_count, asyncio.get_running_loop().time()

    async def await_acknowledgements(self) -> None:
        """Wait until the group has no lag: the response to an acknowledgement may have been lost."""
        deadline = asyncio.get_running_loop().time() + 90
        async with Admin(self.bootstrap) as admin:
            while not (self.written <= self.delivered and await self._lag(admin) == 0):
                assert asyncio.get_running_loop().time() < deadline, sorted(self.written - self.delivered)
                await asyncio.sleep(0.2)
        self.is_finished = True

    async def _lag(self, admin: Admin) -> int | None:
        offsets = (await admin.list_share_group_offsets([GROUP]))[GROUP]
        assert not isinstance(offsets, KafkaError), offsets
        lags = [one.lag for one in offsets.values()]
        return None if None in lags else sum(lag or 0 for lag in lags)


async def test_no_record_is_lost_or_delivered_again_when_brokers_are_killed() -> None:
    async with Cluster(brokers=3, topics={TOPIC: PARTITIONS}, config=SETTINGS) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            changes = [ConfigChange(name, value) for name, value in GROUP_SETTINGS.items()]
            raise_first(await admin.alter_configs({ConfigResource(ConfigResourceType.GROUP, GROUP): changes}))
        work = Work(cluster.bootstrap)
        tasks = [asyncio.ensure_future(work.write())]
        tasks += [asyncio.ensure_future(work.consume()) for _ in range(MEMBERS)]

        def are_running() -> bool:
            for task in tasks:
                if task.done():
                    task.result()
            return True

        await until(lambda: are_running() and len(work.durable) > 50, "records are acknowledged")
        topic_id = cluster.server(1).state.metadata.topic_id(TOPIC)
        assert topic_id is not None
        for turn in range(4):
            key = SharePartitionKey(GROUP, topic_id, turn % PARTITIONS).coordinator_key
            victim = cluster.coordinator(key, "share") if turn % 2 == 0 else cluster.leader(TOPIC, turn % PARTITIONS)
            before = len(work.durable)
            await cluster.akill(victim)
            await until(lambda: are_running() and len(work.durable) > before + 30, "others serve")  # noqa: B023
            await cluster.astart(victim)
            await cluster.await_isr(TOPIC, 0, 3)
        work.is_over = True
        await work.await_acknowledgements()
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
        assert work.again == []
        assert len(work.written) > 100
