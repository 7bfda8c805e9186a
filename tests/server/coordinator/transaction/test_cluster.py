"""Transactions of a cluster: whoever dies, committed ones are whole, others are not to be seen, and all of them end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.crash.test_kill_transactions import GROUPS, PLACES, TOPIC, Copier, check, read
from tests.server.coordinator.transaction.producers import RawProducer
from tests.waiting import until

from barnabas.clients import Producer
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.errors import ConnectionLostError, ErrorCode, KafkaError
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from barnabas.server.coordinator.transaction.transaction_metadata import TransactionState
from barnabas.server.metadata.topic_names import TRANSACTION_STATE_TOPIC
from barnabas.server.network.broker_connections import BrokerConnections
from barnabas.server.replication.leader_and_isr import LeaderAndIsrState
from barnabas.testing import Cluster

SETTINGS = {
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.num.partitions": 3,
}
PARTITIONS = 3
ALL = [(TOPIC, index) for index in range(PARTITIONS)]
DEADLINE_S = 60


class Wire:
    """What brokers say to each other, held up or lost where a test wants it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.kind: type | None = None
        self.is_answer = False
        self.held: list[int] = []
        """The brokers to whom something has been held up."""
        really = BrokerConnections.send_request

        async def ask(self_: BrokerConnections, broker_id: int, request: Any, **options: Any) -> Any:
            is_meant = self.kind is not None and isinstance(request, self.kind)
            if is_meant and not self.is_answer:
                await self._add_barrier(broker_id)
            answer = await really(self_, broker_id, request, **options)
            if is_meant and self.is_answer:
                await self._add_barrier(broker_id)
            return answer

        monkeypatch.setattr(BrokerConnections, "send_request", ask)

    async def _add_barrier(self, broker_id: int) -> None:
        self.held.append(broker_id)
        await self.open.wait()

    def hold(self, kind: type, *, is_answer: bool = False) -> None:
        """From now on requests of that kind, or their answers."""
        self.kind, self.is_answer = kind, is_answer
        self.held.clear()
        self.open.clear()

    def release(self) -> None:
        self.kind = None
        self.open.set()


@pytest.fixture
async def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return Wire(monkeypatch)


@pytest.fixture
async def cluster(wire: Wire) -> AsyncIterator[Cluster]:
    async with Cluster(brokers=3, topics={TOPIC: PARTITIONS}, config=SETTINGS) as cluster:
        yield cluster
        wire.release()


def coordinator_of(cluster: Cluster, transactional_id: str) -> int:
    """The broker that coordinates it."""
    some = cluster.server(cluster.brokers[0]).state.transaction_coordinator.state_manager
    index = some.partition_for(transactional_id)
    assert index is not None
    return cluster.leader(TRANSACTION_STATE_TOPIC, index)


def state_of(cluster: Cluster, transactional_id: str) -> TransactionState | None:
    """What its coordinator knows of it; None while nobody coordinates it."""
    broker = coordinator_of(cluster, transactional_id)
    try:
        found = cluster.server(broker).state.transaction_coordinator.state_manager.find_transaction(transactional_id)
    except (KafkaError, KeyError, RuntimeError):
        return None
    return None if found is None else found.metadata.state


def open_transactions(cluster: Cluster) -> int:
    """On all partitions, as their leaders know them."""
    count = 0
    for topic, index in ALL:
        partition = cluster.server(cluster.leader(topic, index)).state.replica_manager.get_partition(topic, index)
        assert partition is not None
        count += sum(
            one.current_txn_first_offset is not None for one in partition.log.producer_state.producers.values()
        )
    return count


async def write(producer: Producer, value: bytes) -> None:
    for index in range(PARTITIONS):
        await producer.send(TOPIC, value, partition=index)


async def seen(cluster: Cluster) -> list[list[str]]:
    """By readers of committed records, of each partition."""
    return [await read(cluster.bootstrap, place) for place in [*PLACES, PLACES[0]._replace(partition=2)]]


async def test_committed_ones_are_whole_whichever_broker_is_killed(cluster: Cluster) -> None:
    copiers = [Copier(cluster.bootstrap, name) for name in GROUPS]
    running = [asyncio.ensure_future(copier.run()) for copier in copiers]

    def committed() -> int:
        return sum(len(copier.committed) for copier in copiers)

    for victim in cluster.brokers:
        before = committed()
        await until(lambda: committed() > before + 5, "transactions are committed")  # noqa: B023 - used at once
        await cluster.akill(victim)
        await until(lambda: victim not in {cluster.leader(*place) for place in ALL}, "others lead")  # noqa: B023
        await cluster.astart(victim)
    for copier in copiers:
        copier.is_over = True
    await asyncio.wait_for(asyncio.gather(*running), 60)
    for copier in copiers:  # what they may have left open is over
        async with Producer(cluster.bootstrap, transactional_id=copier.name):
            pass
    await check(cluster.bootstrap, copiers)


async def test_the_leader_of_a_partition_dies_between_the_decision_and_its_marker(cluster: Cluster, wire: Wire) -> None:
    async with Producer(cluster.bootstrap, transactional_id="x", linger_ms=0) as producer:
        async with producer.transaction():
            await write(producer, b"one")
            wire.hold(WriteTxnMarkersRequest)
        coordinator = coordinator_of(cluster, "x")
        await until(lambda: len(wire.held) == 2, "markers are on their way to the two others")
        victim = next(broker for broker in wire.held if broker != cluster.controller)
        await cluster.akill(victim)
        for place in ALL:
            await cluster.await_leader(*place, other_than=victim, timeout=DEADLINE_S)
        assert state_of(cluster, "x") is TransactionState.PREPARE_COMMIT
        wire.release()
        await until(lambda: state_of(cluster, "x") is TransactionState.COMPLETE_COMMIT, "all markers are written")
        assert coordinator_of(cluster, "x") == coordinator
        assert open_transactions(cluster) == 0
        async with producer.transaction():
            await write(producer, b"two")
    await until(lambda: state_of(cluster, "x") is TransactionState.COMPLETE_COMMIT, "the second one is complete")
    assert await seen(cluster) == [["one", "two"]] * PARTITIONS


@pytest.mark.parametrize("step", ["added", "decided", "marked"])
async def test_the_coordinator_dies(cluster: Cluster, wire: Wire, step: str) -> None:
    async with Producer(cluster.bootstrap, transactional_id="x", linger_ms=0) as producer:
        async with producer.transaction():
            await write(producer, b"one")
            await producer.flush()
            if step == "added":
                await cluster.akill(coordinator_of(cluster, "x"))
            else:
                wire.hold(WriteTxnMarkersRequest, is_answer=step == "marked")
        if step != "added":
            await until(lambda: len(wire.held) == 2, "markers are on their way to the two others")
            first = coordinator_of(cluster, "x")
            assert state_of(cluster, "x") is TransactionState.PREPARE_COMMIT
            await cluster.akill(first)
            wire.release()
            await until(lambda: coordinator_of(cluster, "x") not in (first, -1), "another broker coordinates it")
        async with producer.transaction():
            await write(producer, b"two")
    await until(lambda: state_of(cluster, "x") is TransactionState.COMPLETE_COMMIT, "the second one is complete")
    assert open_transactions(cluster) == 0
    assert await seen(cluster) == [["one", "two"]] * PARTITIONS


async def test_an_answer_that_is_lost_is_asked_for_again(
    cluster: Cluster, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[type] = []
    held = BrokerConnections.send_request

    async def ask(self: BrokerConnections, broker_id: int, request: Any, **options: Any) -> Any:
        answer = await held(self, broker_id, request, **options)
        kind = type(request)
        if kind in (WriteTxnMarkersRequest, AddPartitionsToTxnRequest) and lost.count(kind) < 2:
            lost.append(kind)
            raise ConnectionLostError("on purpose")
        return answer

    monkeypatch.setattr(BrokerConnections, "send_request", ask)
    async with Producer(cluster.bootstrap, transactional_id="x", linger_ms=0) as producer:
        for value in (b"one", b"two"):
            async with producer.transaction():
                await write(producer, value)
    await until(lambda: state_of(cluster, "x") is TransactionState.COMPLETE_COMMIT, "it is complete")
    assert await seen(cluster) == [["one", "two"]] * PARTITIONS


async def connect(cluster: Cluster, broker_id: int) -> BrokerConnection:
    host, _, port = cluster.address(broker_id).partition(":")
    return await BrokerConnection.open(host, int(port), ConnectionOptions())


async def test_nothing_begins_by_a_word_that_a_marker_has_overtaken(cluster: Cluster, wire: Wire) -> None:
    """The leader is told that a partition takes part, but the transaction has ended before it heard of it."""
    async with Producer(cluster.bootstrap, transactional_id="x"):
        coordinator = coordinator_of(cluster, "x")
    index = next(index for index in range(PARTITIONS) if cluster.leader(TOPIC, index) != coordinator)
    deciding = RawProducer(await connect(cluster, coordinator), "x", 1)
    assert await deciding.init() == ErrorCode.NONE
    assert await deciding.add(index, topic=TOPIC) == [ErrorCode.NONE]
    writing = RawProducer(await connect(cluster, cluster.leader(TOPIC, index)), "x", 1)
    writing.producer_id, writing.epoch = deciding.producer_id, deciding.epoch
    wire.hold(AddPartitionsToTxnRequest, is_answer=True)
    late = asyncio.ensure_future(writing.append(b"late", topic=TOPIC, index=index, api_version=11))
    await until(lambda: wire.held, "the coordinator has answered")
    await deciding.abort()
    await until(lambda: state_of(cluster, "x") is TransactionState.COMPLETE_ABORT, "the marker is there")
    wire.release()
    assert await late == ErrorCode.TRANSACTION_ABORTABLE, "the coordinator is asked again, and refuses"
    assert open_transactions(cluster) == 0
    for one in (deciding, writing):
        one.connection.close()


def lead_again(cluster: Cluster, broker: int, index: int, *, follows_between: int | None = None) -> None:
    """Give the leader of a partition an order of the next epoch, perhaps after it has followed another broker."""
    manager = cluster.server(broker).state.replica_manager
    partition = manager.get_partition(TOPIC, index)
    assert partition is not None and partition.is_leader
    order = LeaderAndIsrState(
        topic_partition=partition.topic_partition,
        topic_id=partition.topic_id,
        leader=broker,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch,
        replicas=partition.replicas,
        isr=partition.in_sync_replicas,
        is_new=False,
        controller_epoch=1,
    )
    if follows_between is not None:
        manager.become_follower(replace(order, leader=follows_between))
        order = replace(order, leader_epoch=order.leader_epoch + 1)
    for one in cluster.brokers:
        other = cluster.server(one).state.replica_manager
        (other.become_leader if one == broker else other.become_follower)(order)
    assert partition.is_leader and partition.leader_epoch == order.leader_epoch


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_lost_between", [False, True])
async def test_a_leader_epoch_bumped_while_the_coordinator_is_asked_fails_no_producer(
    cluster: Cluster, wire: Wire, version: int, is_lost_between: bool
) -> None:
    """The answer of the coordinator arrives under another leader epoch than the one it was asked under."""
    async with Producer(cluster.bootstrap, transactional_id="x"):
        coordinator = coordinator_of(cluster, "x")
    index = next(index for index in range(PARTITIONS) if cluster.leader(TOPIC, index) != coordinator)
    leader = cluster.leader(TOPIC, index)
    deciding = RawProducer(await connect(cluster, coordinator), "x", version)
    assert await deciding.init() == ErrorCode.NONE
    if version == 1:
        assert await deciding.add(index, topic=TOPIC) == [ErrorCode.NONE]
    writing = RawProducer(await connect(cluster, leader), "x", version)
    writing.producer_id, writing.epoch = deciding.producer_id, deciding.epoch
    wire.hold(AddPartitionsToTxnRequest, is_answer=True)
    sent = asyncio.ensure_future(writing.append(b"one", topic=TOPIC, index=index))
    await until(lambda: wire.held, "the coordinator has answered")
    lead_again(cluster, leader, index, follows_between=coordinator if is_lost_between else None)
    wire.release()
    assert await sent == ErrorCode.NONE
    assert wire.held == [coordinator], "a second question is not held, and there may be one"
    await deciding.commit()
    await until(lambda: state_of(cluster, "x") is TransactionState.COMPLETE_COMMIT, "it is complete")
    partition = cluster.server(leader).state.replica_manager.get_partition(TOPIC, index)
    assert partition is not None
    assert partition.log.last_stable_offset == partition.log.log_end_offset == 2, "the record and its marker"
    for one in (deciding, writing):
        one.connection.close()


async def test_who_comes_later_fences_who_was_there(cluster: Cluster) -> None:
    async with Producer(cluster.bootstrap, transactional_id="x", linger_ms=0) as zombie:
        with pytest.raises(KafkaError) as refused:
            async with zombie.transaction():
                await write(zombie, b"old")
                await zombie.flush()
                await cluster.akill(coordinator_of(cluster, "x"))
                heir = Producer(cluster.bootstrap, transactional_id="x", linger_ms=0)
                async with heir, heir.transaction():
                    await write(heir, b"new")
        assert refused.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    await until(lambda: state_of(cluster, "x") is TransactionState.COMPLETE_COMMIT, "it is complete")
    assert open_transactions(cluster) == 0
    assert await seen(cluster) == [["new"]] * PARTITIONS
