"""Controllers over a tree in which somebody has written what nobody can read: all else goes on, and nothing is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from tests.server.cluster_plane import ClusterPlane
from tests.server.control_plane import BROKER_ID, ControlPlane
from tests.server.controller.topics_in_cluster import T0, create, everybody_believes, leader_of, propose

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.cluster_member import strays_of_cluster
from barnabas.server.controller.admin_manager import PartitionsCreation, TopicCreation
from barnabas.server.controller.adoption import FoundReplica, strays
from barnabas.server.metadata import znodes
from barnabas.storage.found_logs import FoundFolder

GARBAGE = [b"{", b"[7]", b'{"partitions":7,"leader":"x"}']
T1, U0 = TopicPartition("t", 1), TopicPartition("u", 0)


async def next_term(plane: ClusterPlane) -> None:
    """Another broker is controller, or the same one anew."""
    epoch = plane.controller.controller_epoch
    await plane.members[3].store.delete(znodes.CONTROLLER)
    everybody = [one.controller for one in plane.members.values()]
    await plane.until(lambda: any(one.is_active and one.controller_epoch > epoch for one in everybody))


@pytest.mark.parametrize("data", GARBAGE)
async def test_an_unreadable_topic_costs_itself_only_until_it_is_mended(data: bytes) -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3))
        await create(plane, (2, 3), name="u")
        store = plane.members[3].store
        whole, _ = await store.get(znodes.topic_path("t"))
        await store.set(znodes.topic_path("t"), data)
        await next_term(plane)
        epoch = plane.controller.controller_epoch
        await plane.kill(2)
        await everybody_believes(plane, 3, U0)
        await create(plane, (3, 1), name="v")
        results = await plane.controller.create_topics([TopicCreation("t", 1, 1), TopicCreation("w", 1, 1)])
        taken = results["t"]
        assert isinstance(taken, KafkaError)
        assert taken.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert not isinstance(results["w"], KafkaError)
        assert (await plane.controller.create_partitions([PartitionsCreation("t", 2)]))["t"] is not None
        assert (await plane.controller.delete_topics(["t"]))["t"] is not None
        assert (await store.get(znodes.topic_path("t")))[0] == data
        await store.set(znodes.topic_path("t"), whole)
        await plane.until(lambda: leader_of(plane.members[3]) == 3)
        assert plane.controller.controller_epoch == epoch


async def test_an_unreadable_topic_that_somebody_removes_leaves_its_name_free() -> None:
    async with ClusterPlane() as plane:
        store = plane.members[3].store
        await store.create(znodes.topic_path("t"), b"{")
        await plane.until(lambda: "t" in plane.controller._context.unreadable)
        await store.create(znodes.deletion_path("t"))
        await store.delete(znodes.topic_path("t"))
        await plane.until(lambda: "t" not in plane.controller._context.unreadable)
        await create(plane, (1, 2))


@pytest.mark.parametrize("data", GARBAGE)
async def test_an_unreadable_state_costs_its_partition_only(data: bytes) -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3), (2, 3))
        await create(plane, (2, 3), name="u")
        store = plane.members[3].store
        path = znodes.state_path("t", 1)
        await store.set(path, data)
        await plane.kill(2)
        await everybody_believes(plane, 3)
        await everybody_believes(plane, 3, U0)
        await plane.until(lambda: leader_of(plane.members[3], T1) == -1)
        epoch = plane.controller.controller_epoch
        wishes = await plane.controller.elect_leaders([T1], allow_unclean=True)
        assert wishes[T1] is not None
        assert await plane.controller.create_partitions([PartitionsCreation("t", 3)]) == {"t": None}
        await plane.controller.alter_partition_reassignments({T1: (1, 3)})
        await propose(plane, 3, (3,))
        assert (await store.get(path))[0] == data
        assert await plane.controller.delete_topics(["u"]) is not None
        assert plane.controller.controller_epoch == epoch


@pytest.mark.parametrize("data", GARBAGE)
async def test_an_unreadable_broker_is_gone_until_it_says_who_it_is(data: bytes) -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3))
        store, path = plane.members[3].store, znodes.broker_path(2)
        whole, _ = await store.get(path)
        await store.set(path, data)
        await everybody_believes_but(plane, 2, leader=3)
        await next_term(plane)
        made = (await plane.controller.create_topics([TopicCreation("u", assignments=[(0, (3, 1))])]))["u"]
        assert not isinstance(made, KafkaError)
        assert (await store.get(path))[0] == data
        await store.set(path, whole)
        await plane.until(lambda: 2 in plane.controller._context.brokers)
        await everybody_believes(plane, 3)


async def everybody_believes_but(plane: ClusterPlane, broker_id: int, *, leader: int) -> None:
    others = [one for one in plane.members.values() if one.broker_id != broker_id]
    await plane.until(lambda: all(leader_of(one) == leader for one in others))


@pytest.mark.parametrize("data", [*GARBAGE, b"null", b"[" * 100_000])
async def test_an_unreadable_wish_for_reassignments_is_named_and_the_next_is_done(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3))
        store, path = plane.members[3].store, znodes.REASSIGN_PARTITIONS
        await store.create(path, data)
        await plane.until(lambda: f"{path} cannot be read" in caplog.text)
        await next_term(plane)
        await create(plane, (2, 3), name="u")
        assert (await store.get(path))[0] == data
        wish = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[3,2]}]}'
        await store.set(path, wish)
        await plane.until(lambda: plane.controller._context.replicas(T0) == (3, 2))


@pytest.mark.parametrize("data", GARBAGE)
async def test_unreadable_settings_cost_their_topic_only_its_settings(data: bytes) -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3), **{"retention.ms": "7"})
        await create(plane, (2, 3), name="u", **{"retention.ms": "8"})
        store, path = plane.members[3].store, "/config/topics/t"
        await store.set(path, data)
        await plane.kill(2)
        await next_term(plane)
        back = await plane.start(2)
        await plane.until(lambda: T0 in back.replicas.roles and U0 in back.replicas.roles)
        assert back.dynamic_config.topic_config("t") == {}
        assert back.dynamic_config.topic_log_config("u").retention_ms == 8
        assert (await store.get(path))[0] == data


@pytest.mark.parametrize("data", GARBAGE)
async def test_a_broker_alone_starts_over_an_unreadable_topic_and_adopts_none_in_its_place(data: bytes) -> None:
    plane = await ControlPlane().start()
    await plane.controller.create_topics([TopicCreation("t", 1, 1), TopicCreation("u", 2, 1)])
    await plane.store.set(znodes.topic_path("t"), data)
    await plane.store.set(znodes.state_path("u", 1), data)
    plane = await plane.restarted({T0: FoundReplica(), U0: FoundReplica(), TopicPartition("u", 1): FoundReplica()})
    assert list(plane.metadata.topic_names) == ["u"]
    image = plane.metadata.topic("u")
    assert image is not None
    assert {index: one.leader for index, one in image.partitions.items()} == {0: BROKER_ID, 1: -1}
    assert (await plane.store.get(znodes.topic_path("t")))[0] == data
    assert (await plane.store.get(znodes.state_path("u", 1)))[0] == data


def test_folders_of_an_unreadable_topic_are_no_strays() -> None:
    folders = {f"/{name}": cast("FoundFolder", _folder(name)) for name in ("t", "u")}
    assert list(strays_of_cluster(folders, {}, {"t"})) == ["/u"]
    assert strays(folders, {}, {"t"}).keys() <= {"/u"}
    far = {"/t": cast("FoundFolder", _folder("t", 20240101))}
    assert strays(far, {}) != {}
    assert strays(far, {}, {"t"}) == {}


def _folder(name: str, index: int = 0) -> SimpleNamespace:
    return SimpleNamespace(topic_partition=TopicPartition(name, index), topic_id=None, is_named=True)
