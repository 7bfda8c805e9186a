"""Nodes of the metadata tree that hold what Kafka does not keep there: each costs what it belongs to, and no more."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.server.control_plane import BROKER_ID, ControlPlane

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.controller.admin_manager import TopicCreation
from barnabas.server.metadata import znodes
from barnabas.server.metadata.znodes import UnreadableNodeError
from barnabas.server.quotas.stored_quotas import stored_quotas

NOT_JSON = [b"", b"\xff\xfe", b"{", b"null", b"7", b"[]", b'"text"', b"[" * 100_000, b'{"version":1}']
TOPICS = [
    *NOT_JSON,
    b'{"partitions":[[1]]}',
    b'{"partitions":{"0":1}}',
    b'{"partitions":{"0":["1"]}}',
    b'{"partitions":{"0":[]}}',
    b'{"partitions":{"0":[true]}}',
    b'{"partitions":{"x":[1]}}',
    b'{"partitions":{"-1":[1]}}',
    b'{"partitions":{"0":[4294967296]}}',
    b'{"partitions":{"0":[1]},"topic_id":"?"}',
    b'{"partitions":{"0":[1]},"topic_id":7}',
    b'{"partitions":{"0":[1]},"adding_replicas":[1]}',
]
STATES = [
    *NOT_JSON,
    b'{"leader":"1","leader_epoch":0,"isr":[1],"controller_epoch":1}',
    b'{"leader":1,"leader_epoch":0.5,"isr":[1],"controller_epoch":1}',
    b'{"leader":1,"leader_epoch":0,"isr":1,"controller_epoch":1}',
    b'{"leader":1,"leader_epoch":0,"isr":{},"controller_epoch":1}',
    b'{"leader":1,"leader_epoch":0,"isr":[1],"controller_epoch":1e999}',
    b'{"leader":1,"leader_epoch":0,"isr":[1],"controller_epoch":1,"leader_recovery_state":7}',
    b'{"leader":1,"leader_epoch":0,"isr":[1],"controller_epoch":1,"leader_broker_epoch":null}',
]
BROKERS = [
    *NOT_JSON,
    b'{"version":"5"}',
    b'{"version":5,"endpoints":"PLAINTEXT://a:1"}',
    b'{"version":5,"endpoints":["PLAINTEXT://a"]}',
    b'{"version":5,"endpoints":["PLAINTEXT://a:1"],"listener_security_protocol_map":[1]}',
    b'{"version":5,"endpoints":["PLAINTEXT://a:1"],"rack":1,"listener_security_protocol_map":{}}',
    b'{"version":1,"host":null,"port":1}',
]
WISHES = [
    *NOT_JSON,
    b'{"partitions":{"topic":"t"}}',
    b'{"partitions":["t"]}',
    b'{"partitions":[{"topic":"t"}]}',
    b'{"partitions":[{"topic":"t","partition":0,"replicas":"12"}]}',
    b'{"partitions":[{"topic":"t","partition":0,"replicas":7}]}',
]
CONFIGS = [*NOT_JSON[1:-1], b'{"config":[1]}', b'{"config":"x"}']


def test_a_large_node_is_told_of_in_one_short_line() -> None:
    partitions = ",".join(f'"{index}":["x"]' for index in range(10_000))
    with pytest.raises(UnreadableNodeError) as raised:
        znodes.decode_topic("t", b'{"partitions":{' + partitions.encode() + b"}}")
    assert len(str(raised.value)) <= znodes.MAX_CHARACTERS


@pytest.mark.parametrize("data", TOPICS)
def test_a_topic_of_another_shape_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableNodeError):
        znodes.decode_topic("t", data)


@pytest.mark.parametrize("data", STATES)
def test_a_state_of_another_shape_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableNodeError):
        znodes.decode_state(data, 0)


@pytest.mark.parametrize("data", BROKERS)
def test_a_broker_of_another_shape_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableNodeError):
        znodes.decode_broker(1, data, 0)


@pytest.mark.parametrize("data", CONFIGS)
def test_settings_of_another_shape_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableNodeError):
        znodes.decode_config(data)


async def planted(data: bytes, path: str, plane: ControlPlane) -> None:
    if await plane.store.exists(path) is None:
        await plane.store.create(path, data)
    else:
        await plane.store.set(path, data)


async def with_topics(*names: str) -> ControlPlane:
    plane = await ControlPlane().start()
    await plane.controller.create_topics([TopicCreation(name, 2, 1) for name in names])
    return plane


@pytest.mark.parametrize("data", TOPICS)
async def test_an_unreadable_topic_is_left_out_and_named(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    plane = await with_topics("t", "u")
    await planted(data, znodes.topic_path("t"), plane)
    for _ in range(2):
        topics, unreadable = await plane.topic_store.find_topics()
        assert ([topic.name for topic in topics], unreadable) == (["u"], {"t"})
    assert await plane.topic_store.topic("t") is None
    told = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(told) == 1, "of one thing once"
    assert told[0].startswith("/brokers/topics/t cannot be read")


@pytest.mark.parametrize("data", STATES)
async def test_an_unreadable_state_is_left_out_and_named(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    plane = await with_topics("t")
    bad, good = TopicPartition("t", 0), TopicPartition("t", 1)
    await planted(data, znodes.state_path("t", 0), plane)
    states, unreadable = await plane.topic_store.find_states([bad, good])
    assert (list(states), unreadable) == ([good], {bad})
    assert "/brokers/topics/t/partitions/0/state cannot be read" in caplog.text


@pytest.mark.parametrize("data", BROKERS)
async def test_an_unreadable_broker_counts_as_gone(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    plane = await ControlPlane().start()
    await planted(data, znodes.broker_path(2), plane)
    await planted(b"", f"{znodes.BROKER_IDS}/two", plane)
    assert list(await plane.cluster_store.brokers()) == [BROKER_ID]
    assert "/brokers/ids/2 cannot be read" in caplog.text


@pytest.mark.parametrize("data", WISHES)
async def test_an_unreadable_wish_is_none_and_stays(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    plane = await ControlPlane().start()
    heard = list[Any]()
    for path in (znodes.REASSIGN_PARTITIONS, znodes.PREFERRED_ELECTION):
        await planted(data, path, plane)
        assert await plane.cluster_store.partition_reassignment(heard.append) is None
        assert await plane.cluster_store.preferred_replica_election(heard.append) is None
        assert f"{path} cannot be read" in caplog.text
        assert (await plane.store.get(path))[0] == data


async def test_a_controllers_node_that_cannot_be_read_is_taken_all_the_same() -> None:
    plane = await ControlPlane().start()
    await plane.store.set(znodes.CONTROLLER, b"{")
    assert await plane.cluster_store.controller() == (znodes.NO_BROKER, True)


@pytest.mark.parametrize("data", CONFIGS)
async def test_unreadable_settings_count_as_none_at_the_start_and_are_not_overwritten(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    plane = await with_topics("t", "u")
    await plane.config_store.set_topic_config("u", {"retention.ms": "7"})
    await plane.config_store.set_broker_config(BROKER_ID, {"log.cleaner.threads": "2"})
    paths = ["/config/topics/t", "/config/brokers/<default>", "/config/users/alice", "/config/groups/g"]
    await plane.store.create("/config/groups")
    for path in paths:
        await planted(data, path, plane)
    plane = await plane.restarted()
    assert plane.dynamic_config.topic_config("t") == {}
    assert plane.dynamic_config.topic_config("u") == {"retention.ms": "7"}
    assert plane.config.log_cleaner_threads == 2
    assert [entity async for entity, quotas in stored_quotas(plane.config_store) if quotas] == []
    configs = plane.config_store
    for change in (
        configs.set_topic_config("t", {"retention.ms": "7"}),
        configs.set_broker_config(None, {}),
        configs.set_client_config("users", "alice", {}),
        configs.set_named_config("groups", "g", {}),
    ):
        with pytest.raises(UnreadableNodeError, match=r"^/config/"):
            await change
    for path in paths:
        assert path in caplog.text
        assert (await plane.store.get(path))[0] == data
