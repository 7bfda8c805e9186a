"""Producer ids come from blocks in the store: no two brokers, and no two runs of one, hand out the same."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.simulated_store import SimulatedStore

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.metadata_store import Stat, StoreUnavailableError
from barnabas.server.metadata.producer_id_manager import BLOCK_SIZE, ProducerIdManager, ZkProducerIdManager
from barnabas.server.metadata.znodes import PRODUCER_ID_BLOCK, decode_producer_id_block, encode_producer_id_block


@pytest.fixture
async def tree() -> DataTree:
    tree = DataTree(lambda: 0)
    await EmbeddedStore(tree).create(PRODUCER_ID_BLOCK)
    return tree


async def test_two_brokers_never_give_the_same_id(tree: DataTree) -> None:
    first, second = ZkProducerIdManager(EmbeddedStore(tree), 1), ZkProducerIdManager(EmbeddedStore(tree), 2)
    count = 2 * BLOCK_SIZE + 1
    given = await asyncio.gather(*(ids.generate_producer_id() for _ in range(count) for ids in (first, second)))
    assert len(set(given)) == 2 * count
    assert max(given) < 6 * BLOCK_SIZE


async def test_a_restart_goes_on_with_a_block_of_its_own(tree: DataTree) -> None:
    assert await ZkProducerIdManager(EmbeddedStore(tree), 1).generate_producer_id() == 0
    assert await ZkProducerIdManager(EmbeddedStore(tree), 1).generate_producer_id() == BLOCK_SIZE
    data, _ = await EmbeddedStore(tree).get(PRODUCER_ID_BLOCK)
    assert decode_producer_id_block(data) == (BLOCK_SIZE, 2 * BLOCK_SIZE - 1)


async def test_ids_end_before_they_wrap(tree: DataTree) -> None:
    store = EmbeddedStore(tree)
    await store.set(PRODUCER_ID_BLOCK, encode_producer_id_block(1, 2**63 - 1500, 2**63 - 501))
    with pytest.raises(KafkaError) as refused:
        await ZkProducerIdManager(store, 1).generate_producer_id()
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_store_that_cannot_be_written_is_a_reason_to_retry(tree: DataTree) -> None:
    class Failing(EmbeddedStore):
        fails = True

        async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
            if self.fails:
                raise StoreUnavailableError(path)
            return await super().set(path, data, version)

    store = Failing(tree)
    ids = ZkProducerIdManager(store, 1)
    with pytest.raises(KafkaError) as refused:
        await ids.generate_producer_id()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    store.fails = False
    assert await ids.generate_producer_id() == 0


async def test_a_session_that_is_over_is_a_reason_to_retry(tree: DataTree) -> None:
    store = SimulatedStore(tree)
    ids = ZkProducerIdManager(store, 1)
    store.expire()
    with pytest.raises(KafkaError) as refused:
        await ids.generate_producer_id()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    store.renew()
    assert await ids.generate_producer_id() == 0


async def test_requests_that_wait_for_a_block_share_one_attempt() -> None:
    attempts = 0

    async def next_block() -> range:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(0)
        if attempts == 1:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return range(10, 20)

    ids = ProducerIdManager(next_block)
    results = await asyncio.gather(*(ids.generate_producer_id() for _ in range(5)), return_exceptions=True)
    assert [type(result) for result in results] == [KafkaError] * 5
    assert attempts == 1
    assert sorted(await asyncio.gather(*(ids.generate_producer_id() for _ in range(10)))) == list(range(10, 20))
    assert attempts == 2


async def test_a_request_that_is_cancelled_does_not_end_the_attempt_of_the_others() -> None:
    is_reached = asyncio.Event()

    async def next_block() -> range:
        await is_reached.wait()
        return range(10, 20)

    ids = ProducerIdManager(next_block)
    first, second = (asyncio.create_task(ids.generate_producer_id()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    is_reached.set()
    assert await second == 10
