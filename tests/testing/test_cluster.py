"""Several brokers in a test: what clients live through when one of them is gone."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    PartitionMetadata,
    ResourceType,
)
from tests.server.config.config_client import ConfigClient
from tests.server_process import wait_until

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.testing import Cluster

DEADLINE_S = 60
IMPATIENT = {"request.timeout.ms": 1000, "socket.timeout.ms": 1000}
"""For clients of brokers that hang."""
NO_MORE: Mapping[str, Any] = {}


class Numbers:
    """A producer that writes numbers without end, and knows which of them were acknowledged."""

    def __init__(self, bootstrap: str, topic: str, more: Mapping[str, Any] = NO_MORE) -> None:
        settings = {
            **more,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 100,
        }
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
        self._topic = topic
        self.acknowledged: list[int] = []
        self.errors: list[object] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Numbers:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ending.set()
        self._thread.join()
        assert self._producer.flush(DEADLINE_S) == 0

    def _write(self) -> None:
        number = 0
        while not self._ending.is_set():
            self._producer.produce(self._topic, str(number).encode(), on_delivery=self._delivered)
            self._producer.poll(0.001)
            number += 1

    def _delivered(self, error: object, message: Any) -> None:
        if error is None:
            self.acknowledged.append(int(message.value()))
        else:
            self.errors.append(str(error))

    def grows(self) -> None:
        """Wait until more is acknowledged."""
        count = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) > count + 50, timeout_s=DEADLINE_S, what="records are acknowledged")


def partitions_told(admin: AdminClient, topic: str) -> list[PartitionMetadata]:
    """As a broker tells of them; none if the one that was asked is just going."""
    try:
        return list(admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions.values())
    except KafkaException:
        return []


def read_all(bootstrap: str, topic: str, count: int, more: Mapping[str, Any] = NO_MORE) -> list[int]:
    settings = {"group.id": "readers", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings, **more})
    consumer.subscribe([topic])
    found: list[int] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(int(message.value()))
    consumer.close()
    return found


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, topics={"orders": 2}, config={"min.insync.replicas": 2}) as cluster:
        yield cluster


def test_all_brokers_know_each_other_and_who_leads(cluster: Cluster) -> None:
    assert cluster.brokers == [1, 2, 3]
    assert cluster.controller in cluster.brokers
    seen = AdminClient({"bootstrap.servers": cluster.address(3)}).list_topics(timeout=DEADLINE_S)
    assert {f"{broker.host}:{broker.port}" for broker in seen.brokers.values()} == set(cluster.bootstrap.split(","))
    assert seen.controller_id == cluster.controller
    for index, partition in seen.topics["orders"].partitions.items():
        assert partition.leader == cluster.leader("orders", index)
        assert sorted(partition.isrs) == sorted(cluster.isr("orders", index)) == [1, 2, 3]


def test_nothing_acknowledged_is_lost_when_leaders_and_controllers_are_killed(cluster: Cluster) -> None:
    with Numbers(cluster.bootstrap, "orders") as load:
        for choose in (lambda: cluster.leader("orders", 0), lambda: cluster.controller):
            load.grows()
            victim = choose()
            assert victim is not None
            cluster.kill(victim)
            assert cluster.wait_for_leader("orders", 0, other_than=victim, timeout=DEADLINE_S) != victim
            load.grows()
            cluster.start(victim)
            for index in range(2):
                assert cluster.wait_for_isr("orders", index, timeout=DEADLINE_S) == (1, 2, 3)
    assert load.errors == []
    found = read_all(cluster.bootstrap, "orders", len(load.acknowledged))
    assert sorted(found) == sorted(load.acknowledged)


def test_a_clean_stop_hands_over_before_it_goes(cluster: Cluster) -> None:
    with Numbers(cluster.bootstrap, "orders") as load:
        load.grows()
        leader = cluster.leader("orders", 0)
        cluster.stop(leader)
        assert cluster.leader("orders", 0) not in (-1, leader)
        load.grows()
    assert load.errors == []


def test_too_few_in_sync_are_no_place_to_write(cluster: Cluster) -> None:
    leader = cluster.leader("orders", 0)
    for broker_id in {1, 2, 3} - {leader}:
        cluster.kill(broker_id)
    cluster.wait_for_isr("orders", 0, [leader], timeout=DEADLINE_S)
    told: list[bool] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "message.timeout.ms": 1000})
    producer.produce("orders", b"x", partition=0, on_delivery=lambda error, _: told.append(error is None))
    producer.flush(DEADLINE_S)
    assert told == [False]


def test_settings_changed_at_one_broker_count_at_all(cluster: Cluster) -> None:
    entry = ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.address(2)})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(DEADLINE_S)
    configs = [cluster.server(one).state.dynamic_config for one in cluster.brokers]
    wait_until(
        lambda: {config.topic_log_config("orders").retention_ms for config in configs} == {12345},
        timeout_s=DEADLINE_S,
        what="every broker has heard of the setting",
    )


def test_a_number_of_fetchers_counts_at_once_and_for_all_brokers(cluster: Cluster) -> None:
    def numbers(broker_id: int) -> set[int]:
        member = cluster.server(broker_id)._member
        assert member is not None
        return {number for _, number in member._replication.fetchers._fetchers}

    with Numbers(cluster.bootstrap, "orders") as load:
        load.grows()
        assert [numbers(broker_id) for broker_id in cluster.brokers] == [{0}] * 3
        operator = ConfigClient(cluster.address(2))
        change = "num.replica.fetchers", AlterConfigOpType.SET.value, "2"
        assert operator.edit(ConfigResourceType.BROKER, "", change) == (0, None)
        operator.close()
        # Two partitions have two leaders: who follows both does so by one fetcher of each number.
        wait_until(
            lambda: any({0, 1} <= numbers(broker_id) for broker_id in cluster.brokers),
            timeout_s=DEADLINE_S,
            what="there are two fetchers",
        )
        load.grows()
    assert load.errors == []
    assert [set(cluster.isr("orders", index)) for index in range(2)] == [{1, 2, 3}] * 2
    assert sorted(read_all(cluster.bootstrap, "orders", len(load.acknowledged))) == sorted(load.acknowledged)


def test_a_leader_that_hangs_is_replaced_and_catches_up(cluster: Cluster) -> None:
    with Numbers(cluster.bootstrap, "orders", IMPATIENT) as load:
        for choose in (lambda: cluster.leader("orders", 0), lambda: cluster.controller):
            load.grows()
            victim = choose()
            assert victim is not None
            cluster.pause(victim)
            cluster.pause(victim)
            assert cluster.controller != victim
            assert cluster.wait_for_leader("orders", 0, other_than=victim, timeout=DEADLINE_S) != victim
            cluster.wait_for_isr("orders", 1, {1, 2, 3} - {victim}, timeout=DEADLINE_S)
            load.grows()
            cluster.resume(victim)
            for index in range(2):
                assert cluster.wait_for_isr("orders", index, timeout=DEADLINE_S) == (1, 2, 3)
    assert load.errors == []
    assert sorted(read_all(cluster.bootstrap, "orders", len(load.acknowledged))) == sorted(load.acknowledged)


def test_a_broker_that_hangs_answers_when_it_goes_on(cluster: Cluster) -> None:
    (victim,) = {1, 2, 3} - {cluster.leader("orders", 0), cluster.leader("orders", 1)}
    cluster.pause(victim)
    host, port = cluster.address(victim).split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 7, -1))
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(4)
        cluster.resume(victim)
        connection.settimeout(DEADLINE_S)
        assert len(connection.recv(4)) == 4


def test_a_follower_that_is_cut_off_its_leader_falls_behind_and_comes_back() -> None:
    with Cluster(topics=["orders"], config={"replica.lag.time.max.ms": 1000, "min.insync.replicas": 2}) as cluster:
        leader = cluster.leader("orders")
        follower = next(one for one in cluster.brokers if one not in (leader, cluster.controller))
        with Numbers(cluster.bootstrap, "orders") as load:
            load.grows()
            cluster.cut(follower, leader)
            assert cluster.wait_for_isr("orders", 0, {1, 2, 3} - {follower}, timeout=DEADLINE_S)
            load.grows()
            cluster.heal(leader, follower)
            assert cluster.wait_for_isr("orders", timeout=DEADLINE_S) == (1, 2, 3)
        assert load.errors == []
        assert cluster.leader("orders") == leader
        with pytest.raises(ValueError, match="expected two different brokers"):
            cluster.cut(1, 1)


def test_a_leader_that_nobody_believes_in_acknowledges_nothing(cluster: Cluster) -> None:
    """Cut off from what the cluster agrees through it goes on as it was told last; what it alone has does not count."""
    leader = cluster.leader("orders", 0)
    with Numbers(cluster.bootstrap, "orders") as load:
        load.grows()
        cluster.cut(leader)
        assert cluster.wait_for_leader("orders", 0, other_than=leader, timeout=DEADLINE_S) != leader
        load.grows()
        cluster.heal(leader)
        assert cluster.wait_for_isr("orders", 0, timeout=DEADLINE_S) == (1, 2, 3)
        load.grows()
    assert load.errors == []
    assert sorted(read_all(cluster.bootstrap, "orders", len(load.acknowledged))) == sorted(load.acknowledged)


async def test_a_broker_that_is_cut_off_and_hangs_is_missed_for_as_long_as_either_lasts() -> None:
    async with Cluster(brokers=1) as cluster:
        await cluster.acut(1)
        await cluster.apause(1)
        await cluster.aresume(1)
        assert cluster._alive() == [], "it is cut off still"
        await cluster.apause(1)
        await cluster.aheal(1)
        assert cluster._alive() == [], "it hangs still"
        await cluster.aresume(1)
        assert cluster._alive() == [1]
        await cluster.acreate_topic("t")


async def test_a_leader_is_waited_for_before_its_topic_is_there() -> None:
    async with Cluster(brokers=1) as cluster:
        waiting = asyncio.create_task(cluster.await_leader("t", timeout=DEADLINE_S))
        await asyncio.sleep(0)
        await cluster.acreate_topic("t")
        assert await waiting == 1


async def test_a_broker_whose_session_expired_comes_back() -> None:
    async with Cluster(brokers=3, topics=["orders"]) as cluster:
        for victim in (cluster.leader("orders"), cluster.controller):
            assert victim is not None
            epoch = cluster.server(victim).state.broker_epoch
            await cluster.acut(victim)
            assert await cluster.await_leader("orders", other_than=victim, timeout=DEADLINE_S) != victim
            await cluster.aheal(victim)
            async with asyncio.timeout(DEADLINE_S):
                while cluster.server(victim).state.broker_epoch == epoch:
                    await asyncio.sleep(0.001)
            assert cluster.server(victim).state.broker_epoch > epoch
            assert await cluster.await_isr("orders", timeout=DEADLINE_S) == (1, 2, 3)


async def test_ids_are_unique_and_a_folder_belongs_to_one_cluster() -> None:
    async with Cluster(brokers=2) as cluster:
        producer_ids = [await cluster.server(one).state.producer_ids.generate_producer_id() for one in (1, 2, 1, 2)]
        assert len(set(producer_ids)) == 4
        with pytest.raises(RuntimeError, match="runs already"):
            await cluster.astart(1)
        with pytest.raises(KeyError, match="partition nothing-0 does not exist"):
            cluster.leader("nothing")
        with pytest.raises(KafkaError):
            await cluster.acreate_topic("orders", replication_factor=3)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="0"):
        Cluster(brokers=0)
    with pytest.raises(RuntimeError, match="the cluster is not running"):
        Cluster().kill(1)
    with Cluster(brokers=1) as cluster:
        cluster.kill(1)
        with pytest.raises(RuntimeError, match="is not running"):
            cluster.pause(1)


def test_fixture(kafka_cluster: Cluster) -> None:
    kafka_cluster.create_topic("orders", 2)
    asked = asyncio.run(_ask(kafka_cluster.bootstrap))
    assert asked == {"orders": 2}


async def _ask(bootstrap: str) -> dict[str, int]:
    from barnabas.clients.admin import Admin

    async with Admin(bootstrap) as admin:
        return {topic.name: len(topic.partitions) for topic in await admin.describe_topics()}


def test_a_client_that_asks_for_a_topic_that_is_not_there_asks_again() -> None:
    """The code is that of Kafka's brokers around ZooKeeper: kafkajs takes the one of Kafka 4 for final."""
    with Cluster(brokers=2) as cluster:
        for broker_id in cluster.brokers:
            with closing(ConfigClient(cluster.address(broker_id))) as client:
                request = MetadataRequest(topics=[MetadataRequestTopic(name=f"asked-at-{broker_id}")])
                (topic,) = client.call(ApiKey.METADATA, 5, request).topics
                assert topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE
                cluster.wait_for_leader(topic.name, timeout=DEADLINE_S)


def test_a_leader_moves_although_nobody_dies() -> None:
    with Cluster(3, {"t": 1}) as cluster, Numbers(cluster.bootstrap, "t") as numbers:
        wait_until(lambda: bool(numbers.acknowledged), timeout_s=DEADLINE_S, what="the first number")
        first = cluster.leader("t")
        second = cluster.move_leader("t")
        assert first != second == cluster.leader("t")
        third = next(one for one in cluster.brokers if one not in (first, second))
        assert cluster.move_leader("t", to=third) == third
        count = len(numbers.acknowledged)
        wait_until(lambda: len(numbers.acknowledged) > count, timeout_s=DEADLINE_S, what="a number at the new leader")
        assert cluster.brokers == [1, 2, 3]
        with pytest.raises(ValueError, match="other candidates"):
            cluster.move_leader("t", to=third)
    assert numbers.errors == []


def test_a_broker_comes_in_later_and_leads() -> None:
    with Cluster(2, {"t": 1}) as cluster, Numbers(cluster.bootstrap, "t") as numbers:
        numbers.grows()
        assert cluster.add() == 3
        assert cluster.brokers == [1, 2, 3]
        assert cluster.move_leader("t", to=3) == 3
        assert 3 in cluster.wait_for_isr("t", brokers=2, timeout=DEADLINE_S)
        numbers.grows()
        cluster.kill(3)
        assert cluster.wait_for_leader("t", other_than=3, timeout=DEADLINE_S) in (1, 2)
        numbers.grows()
    assert numbers.errors == []


def test_a_coordinator_moves_to_another_broker_and_members_follow() -> None:
    with Cluster(3, {"t": 1}) as cluster:
        with pytest.raises(KeyError, match="no client has looked up"):
            cluster.coordinator("readers")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "transactional.id": "tx"})
        producer.init_transactions(DEADLINE_S)
        for number in range(2):
            with cluster.faults(cluster.coordinator("tx", of="transaction")).watch("EndTxn") as ended:
                producer.begin_transaction()
                producer.produce("t", str(number).encode())
                producer.commit_transaction(DEADLINE_S)
            assert ended.requests
            assert cluster.move_coordinator("tx", of="transaction") == cluster.coordinator("tx", of="transaction")
        assert read_all(cluster.bootstrap, "t", 2) == [0, 1]
        before = cluster.coordinator("readers")
        after = next(one for one in cluster.brokers if one != before)
        assert cluster.move_coordinator("readers", to=after) == after
        with cluster.faults(after).watch("OffsetFetch") as asked:
            consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "log_level": 0})
            assert consumer.committed([Place("t", 0)], timeout=DEADLINE_S)[0].offset >= 2
            consumer.close()
        assert asked.requests


def test_readers_are_sent_to_the_replica_in_their_rack() -> None:
    selector = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    with Cluster(2, {"t": 1}, config=selector, racks=["north", "south"]) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for number in range(5):
            producer.produce("t", str(number).encode())
        assert producer.flush(DEADLINE_S) == 0
        leader = cluster.leader("t")
        (follower,) = set(cluster.brokers) - {leader}
        rack = ("north", "south")[follower - 1]
        with cluster.faults(follower).watch("Fetch", client_id="near") as near:
            found = read_all(cluster.bootstrap, "t", 5, {"client.rack": rack, "client.id": "near"})
        assert found == [0, 1, 2, 3, 4]
        assert near.requests
    with pytest.raises(TypeError, match="a single name"):
        Cluster(racks="north")


def test_one_broker_goes_wrong_on_purpose_and_again_after_its_start() -> None:
    with Cluster(brokers=2, topics=["t"]) as cluster:
        leader = cluster.leader("t")
        (other,) = set(cluster.brokers) - {leader}
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "retry.backoff.ms": 1})
        with (
            cluster.faults(leader).error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2) as refusals,
            cluster.faults(other).watch("Produce") as elsewhere,
        ):
            answers: list[object] = []
            producer.produce("t", b"v", on_delivery=lambda error, _: answers.append(error))
            assert producer.flush(DEADLINE_S) == 0
        assert answers == [None]
        assert (len(refusals.requests), len(elsewhere.requests)) == (2, 0)
        fault = cluster.faults(other).watch("Metadata")
        cluster.kill(other)
        cluster.start(other)
        before = len(fault.requests)
        AdminClient({"bootstrap.servers": cluster.address(other)}).list_topics(timeout=DEADLINE_S)
        assert len(fault.requests) > before
        with pytest.raises(KeyError, match=r"unknown broker 3\. Expected one of 1, 2"):
            cluster.faults(3)
