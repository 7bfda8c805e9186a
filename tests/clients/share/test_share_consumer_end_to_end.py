"""The share consumer and the admin client against whole brokers: an embedded one, and Apache Kafka 4.4.0."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from tests.clients.share.share_brokers import LOCK_MS, bootstrap

from barnabas.clients import Admin, NewTopic, Producer, ShareConsumer, ShareRecord, raise_first
from barnabas.clients.admin import ConfigChange, ConfigResource
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

__all__ = ["bootstrap"]

_numbers = itertools.count(1)
EARLIEST = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(LOCK_MS)}


class Group:
    """One topic and one share group of their own for a test."""

    def __init__(self, bootstrap: str, number: int) -> None:
        self.bootstrap = bootstrap
        self.topic = f"topic-{number}"
        self.name = f"group-{number}"

    def consumer(self, **settings: Any) -> ShareConsumer:
        return ShareConsumer(self.bootstrap, self.name, [self.topic], **settings)

    async def produce(self, count: int, *, first: int = 0) -> None:
        async with Producer(self.bootstrap) as producer:
            futures = [
                await producer.send(self.topic, b"%d" % number, key=b"%d" % number, headers=[("h", b"x")])
                for number in range(first, first + count)
            ]
            await asyncio.gather(*futures)

    async def create(self, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        async with Admin(self.bootstrap) as admin:
            raise_first(await admin.create_topics([NewTopic(self.topic, partitions, 1)]))
            settings = EARLIEST | (configs or {})
            changes = [ConfigChange(name, value) for name, value in settings.items()]
            raise_first(await admin.alter_configs({ConfigResource(ConfigResourceType.GROUP, self.name): changes}))

    async def lag(self) -> int | None:
        async with Admin(self.bootstrap) as admin:
            offsets = (await admin.list_share_group_offsets([self.name]))[self.name]
            assert not isinstance(offsets, KafkaError), offsets
            lags = [one.lag for one in offsets.values()]
            return None if None in lags else sum(lag or 0 for lag in lags)

    async def until_lag(self, expected: int) -> None:
        """Wait until the share coordinator has all acknowledgements."""
        deadline = asyncio.get_running_loop().time() + 30
        while (lag := await self.lag()) != expected:
            assert asyncio.get_running_loop().time() < deadline, f"lag {lag} instead of {expected}"
            await asyncio.sleep(0.05)


@pytest.fixture
def group(bootstrap: str) -> Group:
    return Group(bootstrap, next(_numbers))


async def read(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    records: list[ShareRecord] = []
    deadline = asyncio.get_running_loop().time() + 60
    while len(records) < count:
        assert asyncio.get_running_loop().time() < deadline, f"only {len(records)} of {count} records came"
        some = await consumer.getmany(timeout_ms=1_000, max_records=count - len(records))
        records += [record for partition in some.values() for record in partition]
    return records


async def test_implicit_acknowledgement(group: Group) -> None:
    await group.create(partitions=3)
    await group.produce(1000)
    seen = []
    async with group.consumer() as consumer:
        async for record in consumer:
            assert (record.key, record.headers, record.delivery_count) == (record.value, [("h", b"x")], 1)
            seen.append(int(record.value or b""))
            if len(seen) == 1000:
                break
        assert consumer.acquisition_lock_timeout_ms == LOCK_MS
        assert consumer.assignment == {TopicPartition(group.topic, index) for index in range(3)}
    assert sorted(seen) == list(range(1000))
    await group.until_lag(0)


async def test_accept_release_and_reject_of_single_records(group: Group) -> None:
    await group.create()
    await group.produce(4)
    async with group.consumer(share_acknowledgement_mode="explicit") as consumer:
        first, second, third, fourth = await read(consumer, 4)
        await asyncio.gather(first.accept(), second.reject(), third.release())
        (again,) = await read(consumer, 1)
        assert (again.offset, again.delivery_count) == (third.offset, 2)
        assert again.value == third.value
        await again.accept()
        await group.until_lag(1)
        await fourth.accept()
    await group.until_lag(0)


async def test_an_exception_releases_the_record(group: Group) -> None:
    await group.create()
    await group.produce(3)
    with pytest.raises(ZeroDivisionError):
        async with group.consumer() as consumer:
            await consumer.getone()
            await consumer.getone()
            raise ZeroDivisionError
    await group.until_lag(2)
    async with group.consumer() as consumer:
        records = await read(consumer, 2)
        assert [record.value for record in records] == [b"1", b"2"]
        assert records[0].delivery_count == 2
    await group.until_lag(0)


async def test_the_acquisition_lock_expires_and_a_renewal_extends_it(group: Group) -> None:
    await group.create()
    await group.produce(2)
    async with group.consumer(share_acknowledgement_mode="explicit") as consumer:
        renewed, late = await read(consumer, 2)
        loop = asyncio.get_running_loop()
        expired_at = loop.time() + 1.25 * LOCK_MS / 1000
        while loop.time() < expired_at:
            # Far more often than necessary, so that a pause of this process does not let the lock expire.
            await asyncio.sleep(LOCK_MS / 20_000)
            await renewed.renew()
        with pytest.raises(KafkaError, match="INVALID_RECORD_STATE"):
            await late.accept()
        (again,) = await read(consumer, 1)
        assert (again.offset, again.delivery_count) == (late.offset, 2)
        await asyncio.gather(again.accept(), renewed.accept())
    await group.until_lag(0)


async def test_many_members_share_one_partition(group: Group) -> None:
    await group.create()
    await group.produce(2000)
    seen: list[int] = []

    async def work() -> int:
        mine = 0
        async with group.consumer(max_poll_records=20) as consumer:
            while len(seen) < 2000:
                for some in (await consumer.getmany(timeout_ms=100)).values():
                    assert {record.delivery_count for record in some} == {1}
                    seen.extend(int(record.value or b"") for record in some)
                    mine += len(some)
        return mine

    async with asyncio.timeout(60):
        counts = await asyncio.gather(*(work() for _ in range(4)))
    assert sorted(seen) == list(range(2000))
    assert sum(count > 0 for count in counts) > 1
    await group.until_lag(0)


async def test_record_limit_mode_returns_no_more_than_the_limit(group: Group) -> None:
    await group.create()
    await group.produce(30)
    settings = {"share_acquire_mode": "record_limit", "max_poll_records": 4}
    async with group.consumer(**settings) as first, group.consumer(**settings) as second:
        # With whole batches, one fetch would have acquired all records of a partition.
        assert len(await read(first, 1)) == 1
        assert len(await read(second, 20)) == 20


async def test_transactions_that_were_aborted_are_not_delivered(group: Group) -> None:
    await group.create(configs={"share.isolation.level": "read_committed"})
    async with Producer(group.bootstrap, transactional_id=f"tx-{group.name}") as producer:
        async with producer.transaction():
            await producer.send(group.topic, b"committed")
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send(group.topic, b"aborted")
                raise ZeroDivisionError
        async with producer.transaction():
            await producer.send(group.topic, b"last")
    async with group.consumer() as consumer:
        assert [record.value for record in await read(consumer, 2)] == [b"committed", b"last"]
    await group.until_lag(0)


async def test_commit_returns_the_result_of_each_partition(group: Group) -> None:
    await group.create(partitions=2)
    await group.produce(100)
    async with group.consumer() as consumer:
        await read(consumer, 100)
        results = await consumer.commit()
        assert results
        assert set(results.values()) == {None}
        await group.until_lag(0)


async def test_administration_of_share_groups(group: Group) -> None:
    await group.create()
    await group.produce(10)
    partition = TopicPartition(group.topic, 0)
    async with Admin(group.bootstrap) as admin:
        async with group.consumer(client_id="worker") as consumer:
            await read(consumer, 10)
            assert [g.group_id for g in await admin.list_groups(types=["share"]) if g.group_id == group.name]
            described = (await admin.describe_share_groups([group.name]))[group.name]
            assert not isinstance(described, KafkaError), described
            (member,) = described.members
            assert (described.state, described.assignor, member.client_id) == ("Stable", "simple", "worker")
            assert (member.topics, member.assigned) == ({group.topic}, (partition,))
            with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
                raise_first(await admin.alter_share_group_offsets(group.name, {partition: 3}))
            outcome = (await admin.delete_share_groups([group.name]))[group.name]
            assert outcome is not None
            assert outcome.code is ErrorCode.NON_EMPTY_GROUP
        await group.until_lag(0)
        raise_first(await admin.alter_share_group_offsets(group.name, {partition: 3}))
        offsets = (await admin.list_share_group_offsets([group.name], [partition]))[group.name]
        assert not isinstance(offsets, KafkaError), offsets
        assert offsets[partition].start_offset == 3
        async with group.consumer() as consumer:
            assert [record.offset for record in await read(consumer, 7)] == list(range(3, 10))
        raise_first(await admin.delete_share_group_offsets(group.name, [group.topic]))
        assert (await admin.list_share_group_offsets([group.name]))[group.name] == {}
        raise_first(await admin.delete_share_groups([group.name]))
        missing = await admin.delete_share_groups([group.name])
        assert [error and error.code for error in missing.values()] == [ErrorCode.GROUP_ID_NOT_FOUND]
        (gone,) = (await admin.describe_share_groups([group.name])).values()
        assert isinstance(gone, KafkaError)
        assert gone.code is ErrorCode.GROUP_ID_NOT_FOUND
