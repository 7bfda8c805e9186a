"""The typed views: what is written where, and what a deposed controller cannot write."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from barnabas.common.uuid_text import uuid_text
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.metadata import change_notifications, znodes
from barnabas.server.metadata.change_notifications import LIFE_MS, PURGE_INTERVAL_MS
from barnabas.server.metadata.cluster_store import ClusterStore, ControllerTerm
from barnabas.server.metadata.config_store import ConfigStore
from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.metadata_store import (
    MAX_MULTI_BYTES,
    BadVersionError,
    Check,
    StoreUnavailableError,
    Watch,
    size_of,
)
from barnabas.server.metadata.topic_store import PlannedTopic, TopicStore
from barnabas.server.metadata.znodes import (
    BrokerEndpoint,
    BrokerInfo,
    LeaderIsrAndControllerEpoch,
    TopicRegistration,
)


class Clock:
    now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


class Tokens:
    """Bytes that begin with what makes a text start with a dash, then others."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, count: int) -> bytes:
        self.calls += 1
        return (b"\xfb" if self.calls == 1 else b"\x01") + bytes(count - 1)


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.tree = DataTree(self.clock)
        self.store = EmbeddedStore(self.tree)
        self.cluster = ClusterStore(self.store, now_ms=self.clock, token_bytes=Tokens())
        self.topics = TopicStore(self.store, token_bytes=Tokens())
        self.configs = ConfigStore(self.store, now_ms=self.clock)

    async def term(self) -> ControllerTerm:
        await self.cluster.prepare()
        term = await self.cluster.claim_controller(1)
        assert term is not None
        return term


def new_topic(name: str, partitions: int = 2, config: dict[str, str] | None = None) -> PlannedTopic:
    registration = TopicRegistration(name, UUID(int=7), dict.fromkeys(range(partitions), (1,)))
    return PlannedTopic(
        registration, {i: LeaderIsrAndControllerEpoch(1, 0, (1,), 1) for i in range(partitions)}, config or {}
    )


async def test_prepare_makes_kafkas_paths_and_keeps_the_cluster_id() -> None:
    world = World()
    cluster_id = await world.cluster.prepare()
    assert len(cluster_id) == 22
    assert not cluster_id.startswith("-")
    assert await world.cluster.prepare("another") == cluster_id
    for path in znodes.PERSISTENT_PATHS:
        assert await world.store.exists(path) is not None
    assert await world.store.get("/controller_epoch") is not None


async def test_cluster_id_of_the_log_directories_is_taken_over() -> None:
    world = World()
    assert await world.cluster.prepare("AAAAAAAAAAAAAAAAAAAAAA") == "AAAAAAAAAAAAAAAAAAAAAA"


async def test_topic_ids_are_random_version_4_and_never_start_with_a_dash() -> None:
    world = World()
    topic_id = world.topics.new_topic_id()
    assert topic_id.version == 4
    assert not uuid_text(topic_id).startswith("-")


async def test_broker_epoch_is_the_czxid_and_grows_with_each_registration() -> None:
    world = World()
    await world.cluster.prepare()
    registration = BrokerInfo(1, (BrokerEndpoint("PLAINTEXT", "h", 9092),), "r")
    first = await world.cluster.register_broker(registration)
    assert await world.cluster.register_broker(registration) == first
    rival = ClusterStore(EmbeddedStore(world.tree), now_ms=world.clock, token_bytes=Tokens())
    with pytest.raises(KafkaError) as refused:
        await rival.register_broker(registration)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert await world.cluster.brokers() == {1: first}
    await world.store.close()
    second_store = EmbeddedStore(world.tree)
    cluster = ClusterStore(second_store, now_ms=world.clock, token_bytes=Tokens())
    assert await cluster.brokers() == {}
    second = await cluster.register_broker(registration)
    assert second.broker_epoch > first.broker_epoch


async def test_there_is_one_controller_and_each_has_its_epoch() -> None:
    world = World()
    term = await world.term()
    assert term.epoch == 1
    assert await world.cluster.claim_controller(2) is None
    assert await world.cluster.controller() == (1, True)
    await world.store.delete("/controller")
    assert await world.cluster.controller() == (None, False)
    second = await world.cluster.claim_controller(2)
    assert second is not None
    assert second.epoch == 2
    with pytest.raises(KafkaError) as refused:
        await world.topics.create_topics([new_topic("t")], term)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert await world.topics.topics() == []
    await world.topics.create_topics([new_topic("t")], second)
    assert [topic.name for topic in await world.topics.topics()] == ["t"]


async def test_topic_lies_where_kafka_puts_it() -> None:
    world = World()
    await world.topics.create_topics([new_topic("t", config={"retention.ms": "1"})], await world.term())
    topic, _ = await world.store.get("/brokers/topics/t")
    assert json.loads(topic)["partitions"] == {"0": [1], "1": [1]}
    state, _ = await world.store.get("/brokers/topics/t/partitions/1/state")
    assert json.loads(state)["leader"] == 1
    config, _ = await world.store.get("/config/topics/t")
    assert json.loads(config) == {"version": 1, "config": {"retention.ms": "1"}}


async def test_partition_epoch_is_the_version_and_guards_the_state() -> None:
    world = World()
    term = await world.term()
    await world.topics.create_topics([new_topic("t")], term)
    topic = await world.topics.topic("t")
    assert topic is not None
    states = await world.topics.partition_states(topic)
    assert states[0].partition_epoch == 0
    partition = TopicPartition("t", 0)
    changed = LeaderIsrAndControllerEpoch(-1, 1, (1,), term.epoch, states[0].partition_epoch)
    written = await world.topics.set_partition_states({partition: changed}, term)
    assert written[partition].partition_epoch == 1
    assert (await world.topics.partition_states(topic))[0] == written[partition]
    with pytest.raises(BadVersionError):
        await world.topics.set_partition_states({partition: changed}, term)


async def test_partitions_are_added_with_their_states() -> None:
    world = World()
    term = await world.term()
    await world.topics.create_topics([new_topic("t", 1)], term)
    larger = new_topic("t", 3)
    added = {index: larger.states[index] for index in (1, 2)}
    await world.topics.add_partitions(larger.registration, added, term)
    topic = await world.topics.topic("t")
    assert topic == larger.registration
    assert set(await world.topics.partition_states(larger.registration)) == {0, 1, 2}


async def test_deleted_topic_leaves_nothing() -> None:
    world = World()
    term = await world.term()
    await world.topics.create_topics([new_topic("t"), new_topic("u")], term)
    await world.topics.mark_for_deletion(["t"], term)
    await world.topics.mark_for_deletion(["t"], term)
    assert await world.topics.topics_to_delete() == ["t"]
    await world.topics.delete_topics(["t"], term)
    assert await world.topics.topics_to_delete() == []
    assert await world.store.children("/brokers/topics") == ["u"]
    assert await world.store.children("/config/topics") == ["u"]


async def test_configurations_are_kept_by_entity_and_announced() -> None:
    world = World()
    await world.cluster.prepare()
    assert await world.configs.topic_config("t") == {}
    await world.configs.set_topic_config("t", {"retention.ms": "5"})
    await world.configs.set_broker_config(None, {"message.max.bytes": "6"})
    await world.configs.set_broker_config(1, {"message.max.bytes": "7"})
    assert await world.configs.topic_config("t") == {"retention.ms": "5"}
    assert await world.configs.topic_configs() == {"t": {"retention.ms": "5"}}
    assert await world.configs.broker_config(None) == {"message.max.bytes": "6"}
    assert await world.configs.broker_config(1) == {"message.max.bytes": "7"}
    assert await world.store.children("/config/brokers") == ["1", "<default>"]
    notices = await world.store.children("/config/changes")
    assert notices == [f"config_change_{number:010d}" for number in range(3)]
    data, _ = await world.store.get(f"/config/changes/{notices[0]}")
    assert json.loads(data) == {"version": 2, "entity_path": "topics/t"}


async def test_what_a_change_costs_does_not_grow_with_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    await world.cluster.prepare()
    looked_at = 0
    exists = world.store.exists

    async def counted(path: str, *rest: Any) -> Any:
        nonlocal looked_at
        looked_at += 1
        return await exists(path, *rest)

    monkeypatch.setattr(world.store, "exists", counted)
    for number in range(100):
        await world.configs.set_named_config("groups", f"g{number}", {"consumer.session.timeout.ms": "50000"})
    assert looked_at < 500


async def test_young_announcements_are_not_looked_through_at_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_notifications, "NOTIFICATIONS_PER_READ", 10)
    world, looked_at = World(), 0
    await world.cluster.prepare()
    get_many = world.store.get_many

    async def counted(paths: Sequence[str]) -> Any:
        nonlocal looked_at
        looked_at += len(paths)
        return await get_many(paths)

    monkeypatch.setattr(world.store, "get_many", counted)
    for number in range(25):
        await world.configs.set_topic_config("t", {"retention.ms": str(number)})
        world.clock.now += 3 * PURGE_INTERVAL_MS // 25
    assert looked_at < 35
    world.clock.now += LIFE_MS
    for number in range(3):
        await world.configs.set_topic_config("t", {"retention.ms": str(number)})
    assert len(await world.store.children("/config/changes")) == 3


async def test_old_announcements_are_purged() -> None:
    world = World()
    await world.cluster.prepare()
    await world.configs.set_topic_config("t", {"retention.ms": "5"})
    world.clock.now += LIFE_MS + 1
    await world.configs.set_topic_config("t", {"retention.ms": "6"})
    assert await world.store.children("/config/changes") == ["config_change_0000000001"]


async def test_a_change_is_done_though_old_announcements_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    await world.cluster.prepare()

    async def fails(path: str, watch: Watch | None = None) -> list[str]:
        raise StoreUnavailableError(path)

    monkeypatch.setattr(world.store, "children", fails)
    await world.configs.set_topic_config("t", {"retention.ms": "5"})
    assert await world.configs.topic_config("t") == {"retention.ms": "5"}


async def test_topic_too_large_for_one_write_is_written_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    term = await world.term()
    sizes = []
    multi = world.store.multi

    async def measured(operations: Any) -> Any:
        sizes.append(sum(map(size_of, operations)))
        assert operations[0] == Check("/controller_epoch", term.fence)
        return await multi(operations)

    monkeypatch.setattr(world.store, "multi", measured)
    topic = new_topic("t", 5000)
    await world.topics.create_topics([topic], term)
    assert len(sizes) > 1
    assert max(sizes) < MAX_MULTI_BYTES
    states = await world.topics.partition_states(topic.registration)
    assert states.keys() == topic.states.keys()
    written = await world.topics.set_partition_states({TopicPartition("t", i): s for i, s in states.items()}, term)
    assert {state.partition_epoch for state in written.values()} == {1}
    await world.topics.delete_topics(["t"], term)
    assert await world.store.children("/brokers/topics") == []


async def test_two_brokers_make_the_same_settings_at_once() -> None:
    world = World()
    await world.cluster.prepare()
    other = ConfigStore(world.store, now_ms=world.clock)
    await asyncio.gather(
        world.configs.set_topic_config("t", {"retention.ms": "5"}),
        other.set_topic_config("t", {"retention.ms": "5"}),
    )
    assert await world.configs.topic_config("t") == {"retention.ms": "5"}
    assert len(await world.store.children("/config/changes")) == 2
    world.clock.now += LIFE_MS + 1
    await asyncio.gather(
        world.configs.set_topic_config("t", {"retention.ms": "6"}),
        other.set_topic_config("t", {"retention.ms": "6"}),
    )
    assert len(await world.store.children("/config/changes")) == 2
