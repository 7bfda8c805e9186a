"""What one broker is told to change, every broker does, whenever it hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.server.simulated_store import SimulatedStore
from tests.waiting import until

from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.dynamic_config import DynamicConfig
from barnabas.server.config.zk_config_manager import ZkConfigManager
from barnabas.server.metadata import store_follower
from barnabas.server.metadata.cluster_store import ClusterStore
from barnabas.server.metadata.config_store import ConfigStore
from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.metadata_store import StoreUnavailableError
from barnabas.server.quotas.entities import CLIENT_ID, USER, Entity
from barnabas.server.quotas.stored_quotas import alter_stored_quotas, quotas_at

PRODUCER_RATE = "producer_byte_rate"


class Broker:
    def __init__(self, tree: DataTree) -> None:
        self.store = SimulatedStore(tree)
        self.configs = ConfigStore(self.store, now_ms=lambda: 0)
        self.dynamic = DynamicConfig(BrokerConfig())
        self.notices = ZkConfigManager(self.store, self.configs, self.dynamic)


@pytest.fixture
async def tree() -> DataTree:
    tree = DataTree(lambda: 0)
    await ClusterStore(SimulatedStore(tree), now_ms=lambda: 0, token_bytes=bytes).prepare()
    return tree


@asynccontextmanager
async def listening(tree: DataTree, broker_id: int = 1) -> AsyncIterator[Broker]:
    broker = Broker(tree)
    await broker.notices.start(broker_id)
    try:
        yield broker
    finally:
        await broker.notices.close()


async def test_settings_of_a_broker_and_of_all_are_applied_together(tree: DataTree) -> None:
    """Each is checked against the other, and what was so before one of them may be forbidden beside the other."""
    other = Broker(tree).configs
    async with listening(tree) as broker:
        seen: set[tuple[int, int]] = set()
        config = broker.dynamic.config
        broker.dynamic.on_broker_change(lambda: seen.add((config.max_connections, config.message_max_bytes)))
        broker.store.expire()
        await other.set_broker_config(1, {"max.connections": "7000"})
        await other.set_broker_config(None, {"message.max.bytes": "7000"})
        broker.store.renew()
        await until(lambda: config.message_max_bytes == 7000)
        assert seen == {(7000, 7000)}


async def test_settings_of_each_kind_arrive(tree: DataTree) -> None:
    other = Broker(tree).configs
    async with listening(tree) as broker:
        await other.set_topic_config("t", {"retention.ms": "5"})
        await until(lambda: broker.dynamic.topic_log_config("t").retention_ms == 5)
        await other.set_broker_config(None, {"message.max.bytes": "2000"})
        await until(lambda: broker.dynamic.config.message_max_bytes == 2000)
        await other.set_broker_config(1, {"message.max.bytes": "3000"})
        await until(lambda: broker.dynamic.config.message_max_bytes == 3000)
        await other.set_named_config("groups", "a/b.c", {"consumer.session.timeout.ms": "50000"})
        await until(lambda: broker.dynamic.group_number("a/b.c", "consumer.session.timeout.ms") == 50000)
        await other.set_named_config("groups", "a/b.c", {})
        await until(lambda: "a/b.c" not in broker.dynamic.configured(ConfigResourceType.GROUP))
        await other.set_topic_config("t", {})
        await until(lambda: not broker.dynamic.topic_config("t"))


async def test_settings_of_another_broker_are_not_taken(tree: DataTree) -> None:
    other = Broker(tree).configs
    async with listening(tree) as broker:
        before = broker.dynamic.config.message_max_bytes
        await other.set_broker_config(2, {"message.max.bytes": "2000"})
        await other.set_topic_config("t", {"retention.ms": "5"})
        await until(lambda: broker.dynamic.topic_config("t"))
        assert broker.dynamic.config.message_max_bytes == before


async def test_changes_from_before_the_start_are_heeded(tree: DataTree) -> None:
    await Broker(tree).configs.set_topic_config("t", {"retention.ms": "5"})
    async with listening(tree) as broker:
        await until(lambda: broker.dynamic.topic_config("t"))


async def test_a_hundred_changes_of_one_entity_cost_one_reading(tree: DataTree) -> None:
    other = Broker(tree).configs
    for number in range(100):
        await other.set_topic_config("t", {"retention.ms": str(number)})
    broker, heard = Broker(tree), []

    async def heed(name: str) -> None:
        heard.append(name)

    broker.notices.add_handler("topics", heed)
    await broker.notices.start(1)
    await until(lambda: broker.dynamic.topic_log_config("t").retention_ms == 99)
    assert heard == ["t"]
    await broker.notices.close()


async def test_quotas_arrive_by_their_nodes(tree: DataTree) -> None:
    other, broker = Broker(tree), Broker(tree)
    heard: list[tuple[Entity, dict[str, float]]] = []

    async def heed(name: str) -> None:
        heard.append(await quotas_at(broker.configs, "users", name))

    broker.notices.add_handler("users", heed)
    await broker.notices.start(1)
    entity: Entity = {CLIENT_ID: "c d", USER: "a/b"}
    await alter_stored_quotas(other.configs, entity, {PRODUCER_RATE: 5.0})
    await until(lambda: heard)
    assert heard == [(entity, {PRODUCER_RATE: 5.0})]
    with pytest.raises(ValueError, match="no quotas"):
        await quotas_at(broker.configs, "users", "a/consumers/b")
    await broker.notices.close()


async def test_what_cannot_be_applied_keeps_nothing_else_away(tree: DataTree) -> None:
    other = Broker(tree)
    async with listening(tree) as broker:
        await other.store.create("/config/changes/config_change_", b"not JSON", sequential=True)
        await other.store.create("/config/changes/config_change_", b'{"version":2}', sequential=True)
        await other.store.create("/config/topics/bad", b"[]")
        await other.store.create(
            "/config/changes/config_change_", b'{"version":2,"entity_path":"topics/bad"}', sequential=True
        )
        await other.store.create(
            "/config/changes/config_change_", b'{"version":1,"entity_type":"topics","entity_name":"t"}', sequential=True
        )
        await other.configs.set_topic_config("t", {"retention.ms": "5", "cleanup.policy": "nonsense"})
        await until(lambda: broker.dynamic.topic_config("t"))
        assert broker.dynamic.topic_config("t") == {"retention.ms": "5"}


async def test_the_next_session_knows_what_has_no_notice_any_more(tree: DataTree) -> None:
    other, heard = Broker(tree), list[tuple[Entity, dict[str, float]]]()
    entity: Entity = {CLIENT_ID: "c d", USER: "a/b"}
    timeout = "consumer.session.timeout.ms"
    await other.configs.set_named_config("groups", "a/b", {timeout: "50000"})
    async with listening(tree) as broker:

        async def heed(name: str) -> None:
            heard.append(await quotas_at(broker.configs, "users", name))

        broker.notices.add_handler("users", heed)
        await until(lambda: broker.dynamic.group_number("a/b", timeout) == 50000)
        broker.store.expire()
        await other.configs.set_topic_config("t", {"retention.ms": "5"})
        await other.configs.set_broker_config(1, {"message.max.bytes": "3000"})
        await other.configs.set_named_config("groups", "a/b", {})
        await alter_stored_quotas(other.configs, entity, {PRODUCER_RATE: 5.0})
        for name in await other.store.children("/config/changes"):
            await other.store.delete(f"/config/changes/{name}")
        broker.store.renew()
        await until(lambda: broker.dynamic.topic_config("t"))
        await until(lambda: broker.dynamic.config.message_max_bytes == 3000)
        await until(lambda: broker.dynamic.group_number("a/b", timeout) == 45000)
        await until(lambda: (entity, {PRODUCER_RATE: 5.0}) in heard)


async def test_the_next_session_and_a_store_that_was_away_are_listened_to(
    tree: DataTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_follower, "RETRY_SECONDS", 0.001)
    other = Broker(tree).configs
    async with listening(tree) as broker:
        await asyncio.sleep(0)
        broker.store.expire()
        await other.set_topic_config("t", {"retention.ms": "5"})
        broker.store.renew()
        await until(lambda: broker.dynamic.topic_config("t"))
        get_many, failures = broker.store.get_many, [StoreUnavailableError("/")] * 2

        async def failing(paths: list[str]) -> object:
            if failures:
                raise failures.pop()
            return await get_many(paths)

        monkeypatch.setattr(broker.store, "get_many", failing)
        await other.set_topic_config("u", {"retention.ms": "6"})
        await until(lambda: broker.dynamic.topic_config("u"))
        assert not failures
