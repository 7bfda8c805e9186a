"""A broker is registered as long as it lives, whatever becomes of its sessions."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.simulated_store import SimulatedStore

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.metadata import kafka_healthcheck as module
from barnabas.server.metadata.cluster_store import ClusterStore
from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.kafka_healthcheck import KafkaHealthcheck
from barnabas.server.metadata.znodes import BrokerEndpoint, BrokerInfo

ME = BrokerInfo(3, (BrokerEndpoint("PLAINTEXT", "me", 9092),), "rack-1")


class Broker:
    """A broker's session, what it knows of the cluster, and its place there."""

    def __init__(self, tree: DataTree, *, patience_ms: int = 5000) -> None:
        self.store = SimulatedStore(tree)
        self.cluster = ClusterStore(self.store, now_ms=lambda: 0, token_bytes=bytes)
        self.returns: asyncio.Queue[BrokerInfo] = asyncio.Queue()
        self.membership = KafkaHealthcheck(
            self.store, self.cluster, ME, patience_ms=patience_ms, on_return=self.returns.put_nowait
        )


@pytest.fixture
async def tree() -> DataTree:
    tree = DataTree(lambda: 0)
    await Broker(tree).cluster.prepare()
    return tree


async def test_broker_joins_with_the_place_of_its_node_as_epoch(tree: DataTree) -> None:
    broker = Broker(tree)
    registered = await broker.membership.join()
    stat = await broker.store.exists("/brokers/ids/3")
    assert stat is not None
    assert registered.broker_epoch == stat.czxid
    assert await broker.cluster.brokers() == {3: registered}
    await broker.membership.close()


async def test_lost_contact_changes_nothing(tree: DataTree) -> None:
    broker = Broker(tree)
    registered = await broker.membership.join()
    broker.store.suspend()
    broker.store.resume()
    await asyncio.sleep(0)
    assert broker.returns.empty()
    assert await broker.cluster.brokers() == {3: registered}


async def test_after_an_expiry_it_comes_back_with_a_new_epoch(tree: DataTree) -> None:
    broker = Broker(tree)
    first = await broker.membership.join()
    for _ in range(3):
        broker.store.expire()
        assert await Broker(tree).cluster.brokers() == {}
        broker.store.renew()
        again = await asyncio.wait_for(broker.returns.get(), 60)
        assert again.broker_epoch > first.broker_epoch
        assert await broker.cluster.brokers() == {3: again}
        first = again


async def test_its_own_node_of_a_session_that_the_store_has_not_ended_is_replaced(tree: DataTree) -> None:
    broker = Broker(tree)
    first = await broker.membership.join()
    broker.store.forget()
    assert await Broker(tree).cluster.brokers() == {3: first}
    broker.store.renew()
    again = await asyncio.wait_for(broker.returns.get(), 60)
    assert again.broker_epoch > first.broker_epoch
    stat = await broker.store.exists("/brokers/ids/3")
    assert stat is not None
    assert stat.ephemeral_owner == broker.store.session_id


@pytest.mark.parametrize("fault", ["lose_answers", "lose_requests"])
async def test_writes_that_fail_are_tried_again(tree: DataTree, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.001)
    broker = Broker(tree)
    await broker.membership.join()
    broker.store.expire()
    setattr(broker.store, fault, 1)
    broker.store.renew()
    again = await asyncio.wait_for(broker.returns.get(), 60)
    assert await broker.cluster.brokers() == {3: again}


async def test_a_killed_broker_waits_for_the_end_of_its_former_session(tree: DataTree) -> None:
    killed = Broker(tree)
    first = await killed.membership.join()
    started = Broker(tree)
    joining = asyncio.ensure_future(started.membership.join())
    await asyncio.sleep(0.01)
    assert not joining.done()
    killed.store.expire()
    assert (await asyncio.wait_for(joining, 60)).broker_epoch > first.broker_epoch


async def test_an_id_that_another_broker_keeps_is_refused(tree: DataTree) -> None:
    await Broker(tree).membership.join()
    with pytest.raises(KafkaError) as refused:
        await Broker(tree, patience_ms=10).membership.join()
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


async def test_who_has_left_does_not_come_back(tree: DataTree) -> None:
    broker = Broker(tree)
    await broker.membership.join()
    await broker.membership.close()
    broker.store.expire()
    broker.store.renew()
    await asyncio.sleep(0.01)
    assert await broker.cluster.brokers() == {}


async def test_generated_ids_lie_above_the_reserved_ones(tree: DataTree) -> None:
    assert [await Broker(tree).cluster.next_broker_id(1000) for _ in range(2)] == [1001, 1002]
