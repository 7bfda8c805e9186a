"""The controller over a real store: what it writes, what it requests, what it shows, and what a restart makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from tests.server.control_plane import BROKER_ID, LISTENER, ControlPlane

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.controller.admin_manager import (
    PARTITIONS_PER_WRITE,
    CreatedTopic,
    PartitionsCreation,
    TopicCreation,
)
from barnabas.server.controller.adoption import FoundReplica
from barnabas.server.controller.controller_context import ControllerContext
from barnabas.server.metadata import znodes
from barnabas.server.metadata.metadata_store import Operation, OperationResult, StoreUnavailableError

T0 = TopicPartition("t", 0)
FOUND_ID = UUID("6f9619ff-8b86-4d01-b42d-00cf4fc964ff")


async def create(plane: ControlPlane, *wishes: TopicCreation) -> list[CreatedTopic]:
    results = await plane.controller.create_topics(wishes)
    created = []
    for result in results.values():
        assert isinstance(result, CreatedTopic), result
        created.append(result)
    return created


async def refusal(plane: ControlPlane, wish: TopicCreation) -> KafkaError:
    result = (await plane.controller.create_topics([wish]))[wish.name]
    assert isinstance(result, KafkaError), result
    return result


async def test_created_topic_is_stored_led_and_shown() -> None:
    plane = await ControlPlane().start()
    (created,) = await create(plane, TopicCreation("t", 3, 1, config={"retention.ms": "7"}))
    assert (created.num_partitions, created.replication_factor) == (3, 1)
    image = plane.metadata.topic("t")
    assert image is not None
    assert image.topic_id == created.topic_id
    assert [p.leader for p in image.partitions.values()] == [BROKER_ID] * 3
    assert {p: led.leader_epoch for p, led in plane.replicas.led.items()} == {
        TopicPartition("t", i): 0 for i in range(3)
    }
    assert all(led.is_new and led.topic_id == created.topic_id for led in plane.replicas.led.values())
    stored = await plane.topic_store.topic("t")
    assert stored is not None
    assert stored.topic_id == created.topic_id
    assert await plane.config_store.topic_config("t") == {"retention.ms": "7"}
    assert plane.dynamic_config.topic_log_config("t").retention_ms == 7


async def test_broker_defaults_stand_in_for_minus_one() -> None:
    plane = await ControlPlane({"num.partitions": "5"}).start()
    (created,) = await create(plane, TopicCreation("t"))
    assert (created.num_partitions, created.replication_factor) == (5, 1)


async def test_manual_assignment() -> None:
    plane = await ControlPlane().start()
    (created,) = await create(plane, TopicCreation("t", assignments=[(1, (BROKER_ID,)), (0, (BROKER_ID,))]))
    assert created.num_partitions == 2


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (TopicCreation("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicCreation("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicCreation("a b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicCreation("a" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicCreation("new\n", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicCreation("a_b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicCreation("a.b", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (TopicCreation("x", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (TopicCreation("x", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (TopicCreation("x", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicCreation("x", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicCreation("x", 1, -1, [(0, (1,))]), ErrorCode.INVALID_REQUEST),
        (TopicCreation("x", -1, 1, [(0, (1,))]), ErrorCode.INVALID_REQUEST),
        (TopicCreation("x", assignments=[(0, (1,)), (0, (1,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicCreation("x", assignments=[(1, (1,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicCreation("x", assignments=[(0, ())]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicCreation("x", assignments=[(0, (1, 1))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicCreation("x", assignments=[(0, (9,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicCreation("x", 1, 1, config={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (TopicCreation("x", 1, 1, config={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (TopicCreation("x", 1, 1, config={"no.such.key": "1"}), ErrorCode.INVALID_CONFIG),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
async def test_wrong_wishes_are_refused(wish: TopicCreation, code: ErrorCode, validate_only: bool) -> None:
    plane = await ControlPlane().start()
    await create(plane, TopicCreation("a.b", 1, 1))
    result = (await plane.controller.create_topics([wish], validate_only=validate_only))[wish.name]
    assert isinstance(result, KafkaError)
    assert result.code is code
    assert result.message
    assert list(plane.metadata.topic_names) == ["a.b"]


@pytest.mark.parametrize("partitions", [1, PARTITIONS_PER_WRITE])
async def test_topics_of_one_request_do_not_collide_with_each_other(partitions: int) -> None:
    plane = await ControlPlane().start()
    names = ["a.b", "a_b"]
    results = await plane.controller.create_topics([TopicCreation(name, partitions, 1) for name in names])
    assert all(isinstance(results[name], CreatedTopic) for name in names)
    assert sorted(plane.metadata.topic_names) == names
    found = (
        await plane.controller.create_topics([TopicCreation("c.d_e", 1, 1), TopicCreation("c_d.e", 1, 1)])
    ).values()
    assert all(isinstance(one, CreatedTopic) for one in found)
    (refused,) = (await plane.controller.create_topics([TopicCreation("c.d.e", 1, 1)])).values()
    assert isinstance(refused, KafkaError) and refused.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused.message == "Topic 'c.d.e' collides with existing topic: c.d_e"


async def test_good_topics_of_a_request_are_created_beside_bad_ones() -> None:
    plane = await ControlPlane().start()
    results = await plane.controller.create_topics([TopicCreation("bad", 0, 1), TopicCreation("good", 1, 1)])
    assert isinstance(results["bad"], KafkaError)
    assert isinstance(results["good"], CreatedTopic)


async def test_too_many_partitions_at_once_are_refused_as_a_whole() -> None:
    plane = await ControlPlane({"num.partitions": "2"}).start()
    wishes = [TopicCreation("x", 9_998, 1), TopicCreation("bad", -7, 1), TopicCreation("y"), TopicCreation("z", 1, 1)]
    with pytest.raises(KafkaError) as refused:
        await plane.controller.create_topics(wishes)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert list(plane.metadata.topic_names) == []
    results = await plane.controller.create_topics(wishes[:-1], validate_only=True)
    assert isinstance(results["x"], CreatedTopic)


async def test_validate_only_changes_nothing() -> None:
    plane = await ControlPlane().start()
    before = plane.tree.zxid
    results = await plane.controller.create_topics([TopicCreation("t", 2, 1)], validate_only=True)
    assert isinstance(results["t"], CreatedTopic)
    assert plane.tree.zxid == before
    assert plane.replicas.led == {}
    assert "t" not in plane.metadata


async def test_restart_keeps_ids_and_raises_leader_epochs_by_one() -> None:
    plane = await ControlPlane().start()
    (created,) = await create(plane, TopicCreation("t", 2, 1, config={"retention.ms": "7"}))
    epoch = plane.controller.controller_epoch
    plane = await plane.restarted()
    assert plane.controller.controller_epoch == epoch + 1
    image = plane.metadata.topic("t")
    assert image is not None
    assert image.topic_id == created.topic_id
    assert [(p.leader, p.leader_epoch) for p in image.partitions.values()] == [(BROKER_ID, 1)] * 2
    led = plane.replicas.led[T0]
    assert (led.leader_epoch, led.is_new, led.topic_id) == (1, False, created.topic_id)
    assert led.partition_epoch == image.partitions[0].partition_epoch == 1
    assert plane.dynamic_config.topic_log_config("t").retention_ms == 7


async def test_deleted_topic_is_gone_everywhere_and_may_be_created_anew() -> None:
    plane = await ControlPlane().start()
    (first,) = await create(plane, TopicCreation("t", 2, 1, config={"retention.ms": "7"}))
    results = await plane.controller.delete_topics(["t", "u"])
    assert results["t"] is None
    missing = results["u"]
    assert missing is not None
    assert missing.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "t" not in plane.metadata
    assert plane.metadata.topic_name(first.topic_id) is None
    assert plane.replicas.deleted == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert await plane.topic_store.topics() == []
    assert await plane.config_store.topic_config("t") == {}
    assert plane.dynamic_config.topic_config("t") == {}
    (second,) = await create(plane, TopicCreation("t", 1, 1))
    assert second.topic_id != first.topic_id
    assert plane.replicas.led[T0].leader_epoch == 0


async def test_deletion_that_fails_is_finished_by_the_next_start() -> None:
    plane = await ControlPlane().start()
    await create(plane, TopicCreation("t", 2, 1))
    plane.replicas.failing.add(TopicPartition("t", 1))
    result = (await plane.controller.delete_topics(["t"]))["t"]
    assert result is not None
    assert result.code is ErrorCode.REQUEST_TIMED_OUT
    assert "t" not in plane.metadata
    assert (await refusal(plane, TopicCreation("t", 1, 1))).code is ErrorCode.TOPIC_ALREADY_EXISTS
    plane = await plane.restarted()
    assert "t" not in plane.metadata
    assert await plane.topic_store.topics() == []
    assert await plane.topic_store.topics_to_delete() == []
    assert plane.replicas.deleted == [TopicPartition("t", 0), TopicPartition("t", 1)]


async def test_a_mark_without_a_topic_does_not_lie_in_wait_for_the_next_of_that_name() -> None:
    """Whoever deleted many topics may have ended before the last mark was gone."""
    plane = await ControlPlane().start()
    await plane.store.create(znodes.deletion_path("t"))
    plane = await plane.restarted()
    assert await plane.topic_store.topics_to_delete() == []
    await create(plane, TopicCreation("t", 1, 1))
    plane = await plane.restarted()
    assert "t" in plane.metadata


async def test_partition_that_was_written_without_its_state_is_led() -> None:
    """Whoever wrote or deleted thousands may have ended between the two, and no start went on from there."""
    plane = await ControlPlane().start()
    await create(plane, TopicCreation("t", 3, 1))
    await plane.store.delete(znodes.state_path("t", 1))
    await plane.store.delete(znodes.state_path("t", 2))
    await plane.store.delete(znodes.partition_path("t", 2))
    plane = await plane.restarted()
    image = plane.metadata.topic("t")
    assert image is not None
    assert [p.leader for p in image.partitions.values()] == [BROKER_ID] * 3


async def test_topic_that_is_being_deleted_gets_no_more_partitions() -> None:
    plane = await ControlPlane().start()
    await create(plane, TopicCreation("t", 1, 1))
    await plane.controller.on_replicas_become_offline(BROKER_ID, [T0])
    assert (await plane.controller.delete_topics(["t"]))["t"] is not None
    refused = (await plane.controller.create_partitions([PartitionsCreation("t", 2)]))["t"]
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    await plane.controller.retry_replicas(BROKER_ID, lost=())
    await create(plane, TopicCreation("t", 1, 1))


async def test_partitions_are_added_to_a_topic() -> None:
    plane = await ControlPlane().start()
    await create(plane, TopicCreation("t", 1, 1))
    assert await plane.controller.create_partitions([PartitionsCreation("t", 3)]) == {"t": None}
    image = plane.metadata.topic("t")
    assert image is not None
    assert list(image.partitions) == [0, 1, 2]
    assert set(plane.replicas.led) == {TopicPartition("t", i) for i in range(3)}
    plane = await plane.restarted()
    image = plane.metadata.topic("t")
    assert image is not None
    assert list(image.partitions) == [0, 1, 2]


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (PartitionsCreation("u", 9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (PartitionsCreation("t", 2), ErrorCode.INVALID_PARTITIONS),
        (PartitionsCreation("t", 1), ErrorCode.INVALID_PARTITIONS),
        (PartitionsCreation("t", 0), ErrorCode.INVALID_PARTITIONS),
        (PartitionsCreation("t", 20_000), ErrorCode.POLICY_VIOLATION),
        (PartitionsCreation("t", 3, [(1,), (1,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PartitionsCreation("t", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PartitionsCreation("t", 3, [(5,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PartitionsCreation("t", 3, [(1, 2)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_wrong_extensions_are_refused(wish: PartitionsCreation, code: ErrorCode) -> None:
    plane = await ControlPlane().start()
    await create(plane, TopicCreation("t", 2, 1))
    error = (await plane.controller.create_partitions([wish]))[wish.name]
    assert error is not None
    assert error.code is code
    image = plane.metadata.topic("t")
    assert image is not None
    assert len(image.partitions) == 2


async def test_extension_can_be_validated_only() -> None:
    plane = await ControlPlane().start()
    await create(plane, TopicCreation("t", 2, 1))
    before = plane.tree.zxid
    assert await plane.controller.create_partitions([PartitionsCreation("t", 4)], validate_only=True) == {"t": None}
    assert plane.tree.zxid == before


async def test_partition_whose_log_cannot_be_made_is_offline_and_tried_again_at_start() -> None:
    plane = ControlPlane()
    plane.replicas.failing.add(T0)
    await plane.start()
    (created,) = await create(plane, TopicCreation("t", 2, 1))
    assert created.num_partitions == 2
    image = plane.metadata.topic("t")
    assert image is not None
    assert [p.leader for p in image.partitions.values()] == [-1, BROKER_ID]
    assert image.partitions[0].isr == (BROKER_ID,)
    assert image.partitions[0].offline_replicas == (BROKER_ID,)
    plane = await plane.restarted()
    image = plane.metadata.topic("t")
    assert image is not None
    assert [p.leader for p in image.partitions.values()] == [BROKER_ID] * 2
    assert image.partitions[0].leader_epoch == 2


async def test_failed_log_directory_takes_its_partitions_offline() -> None:
    plane = await ControlPlane().start()
    await create(plane, TopicCreation("t", 2, 1))
    await plane.controller.on_replicas_become_offline(BROKER_ID, [T0, TopicPartition("gone", 0)])
    image = plane.metadata.topic("t")
    assert image is not None
    assert [(p.leader, p.leader_epoch) for p in image.partitions.values()] == [(-1, 1), (BROKER_ID, 0)]
    result = (await plane.controller.delete_topics(["t"]))["t"]
    assert result is not None, "a replica on a dead disk cannot be deleted"


async def test_found_partitions_are_adopted_with_their_ids_and_epochs() -> None:
    found = {
        TopicPartition("t", 0): FoundReplica(FOUND_ID, 4),
        TopicPartition("t", 2): FoundReplica(FOUND_ID, 6),
        TopicPartition("old", 0): FoundReplica(None, -1),
        TopicPartition("__consumer_offsets", 1): FoundReplica(None, 3),
    }
    plane = await ControlPlane().start(found)
    assert set(plane.metadata.topic_names) == {"t", "old", "__consumer_offsets"}
    image = plane.metadata.topic("t")
    assert image is not None
    assert image.topic_id == FOUND_ID
    assert [(p.leader, p.leader_epoch) for p in image.partitions.values()] == [(1, 5), (1, 0), (1, 7)]
    old = plane.metadata.topic("old")
    assert old is not None
    assert old.topic_id.version == 4
    policy = plane.dynamic_config.topic_log_config("__consumer_offsets").cleanup_policy
    assert "compact" in policy
    assert "delete" not in policy
    ids = {name: plane.metadata.topic_id(name) for name in plane.metadata.topic_names}
    again = await plane.restarted({p: FoundReplica(ids.get(p.topic), 9) for p in plane.replicas.led})
    assert {name: again.metadata.topic_id(name) for name in again.metadata.topic_names} == ids
    image = again.metadata.topic("t")
    assert image is not None
    assert [p.leader_epoch for p in image.partitions.values()] == [6, 1, 8]


async def test_found_partition_of_a_known_topic_extends_it() -> None:
    plane = await ControlPlane().start()
    (created,) = await create(plane, TopicCreation("t", 1, 1))
    plane = await plane.restarted({TopicPartition("t", 2): FoundReplica(created.topic_id)})
    image = plane.metadata.topic("t")
    assert image is not None
    assert list(image.partitions) == [0, 1, 2]


async def test_elections() -> None:
    plane = await ControlPlane().start()
    await create(plane, TopicCreation("t", 2, 1))
    ghost = TopicPartition("ghost", 0)
    results = await plane.controller.elect_leaders([T0, ghost], allow_unclean=False)
    codes = {partition: error and error.code for partition, error in results.items()}
    assert codes == {T0: ErrorCode.ELECTION_NOT_NEEDED, ghost: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await plane.controller.elect_leaders(None, allow_unclean=False) == {}
    await plane.controller.on_replicas_become_offline(BROKER_ID, [T0])
    preferred = (await plane.controller.elect_leaders([T0], allow_unclean=False))[T0]
    unclean = (await plane.controller.elect_leaders([T0], allow_unclean=True))[T0]
    assert preferred is not None
    assert preferred.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert unclean is not None
    assert unclean.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


async def test_partition_that_another_broker_left_leaderless_is_elected() -> None:
    plane = await ControlPlane().start()
    await create(plane, TopicCreation("t", 1, 1))
    await plane.store.set(
        znodes.state_path("t", 0), znodes.encode_state(znodes.LeaderIsrAndControllerEpoch(-1, 5, (BROKER_ID,), 1))
    )
    plane = await plane.restarted()
    image = plane.metadata.topic("t")
    assert image is not None
    assert (image.partitions[0].leader, image.partitions[0].leader_epoch) == (BROKER_ID, 6)


async def test_replicas_on_brokers_that_are_away_are_offline() -> None:
    plane = await ControlPlane().start()
    await create(plane, TopicCreation("t", 1, 1))
    topic = await plane.topic_store.topic("t")
    assert topic is not None
    moved = znodes.TopicRegistration("t", topic.topic_id, {0: (99,)})
    await plane.store.set(znodes.topic_path("t"), znodes.encode_topic(moved))
    await plane.store.set(
        znodes.state_path("t", 0), znodes.encode_state(znodes.LeaderIsrAndControllerEpoch(99, 5, (99,), 1))
    )
    plane = await plane.restarted()
    assert plane.replicas.led == {}
    described = plane.metadata.response_topic("t", LISTENER, 12)
    assert described is not None
    assert described.partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert described.partitions[0].leader_id == -1
    assert described.partitions[0].offline_replicas == [99]


async def test_a_replica_for_which_there_was_no_room_is_deleted_when_there_is() -> None:
    plane = await ControlPlane().start()
    await create(plane, TopicCreation("t", 1, 1))
    await plane.controller.on_replicas_become_offline(BROKER_ID, [T0])
    error = (await plane.controller.delete_topics(["t"]))["t"]
    assert error is not None
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    await plane.controller.retry_replicas(BROKER_ID, lost=[T0])
    assert plane.controller._context.topic("t") is not None
    await plane.controller.retry_replicas(BROKER_ID, lost=())
    assert plane.controller._context.topic("t") is None
    await create(plane, TopicCreation("t", 1, 1))


async def test_second_controller_of_a_store_is_refused() -> None:
    plane = await ControlPlane().start()
    other = ControlPlane(tree=plane.tree)
    with pytest.raises(KafkaError) as refused:
        await other.controller.start_alone()
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert not other.controller.is_active
    with pytest.raises(KafkaError):
        await other.controller.create_topics([TopicCreation("t", 1, 1)])


async def test_concurrent_requests_take_turns() -> None:
    plane = await ControlPlane().start()
    results = await asyncio.gather(*(plane.controller.create_topics([TopicCreation("t", 1, 1)]) for _ in range(5)))
    outcomes = [result["t"] for result in results]
    assert sum(isinstance(outcome, CreatedTopic) for outcome in outcomes) == 1
    refused = [outcome for outcome in outcomes if isinstance(outcome, KafkaError)]
    assert {error.code for error in refused} == {ErrorCode.TOPIC_ALREADY_EXISTS}


async def test_store_that_cannot_be_written_refuses_and_nothing_is_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = await ControlPlane().start()
    await create(plane, TopicCreation("t", 1, 1))

    async def unavailable(operations: Sequence[Operation]) -> list[OperationResult]:
        raise StoreUnavailableError("/")

    monkeypatch.setattr(plane.store, "multi", unavailable)
    assert (await refusal(plane, TopicCreation("u", 1, 1))).code is ErrorCode.KAFKA_STORAGE_ERROR
    error = (await plane.controller.create_partitions([PartitionsCreation("t", 2)]))["t"]
    assert error is not None
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    error = (await plane.controller.delete_topics(["t"]))["t"]
    assert error is not None
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert list(plane.metadata.topic_names) == ["t"]
    assert list(plane.replicas.led) == [T0]


async def test_internal_topics_are_created_as_kafka_creates_them() -> None:
    plane = await ControlPlane({"offsets.topic.num.partitions": "4"}).start()
    results = await plane.controller.auto_create(["__consumer_offsets", "__transaction_state", "t"])
    assert set(results.values()) == {None}
    offsets = plane.metadata.topic("__consumer_offsets")
    assert offsets is not None
    assert len(offsets.partitions) == 4
    assert offsets.is_internal
    assert plane.dynamic_config.topic_config("__consumer_offsets")["cleanup.policy"] == "compact"
    assert plane.dynamic_config.topic_config("__transaction_state")["unclean.leader.election.enable"] == "false"
    assert plane.dynamic_config.topic_config("t") == {}


async def test_reassignment_to_the_same_replicas_is_all_there_is() -> None:
    plane = await ControlPlane().start()
    await create(plane, TopicCreation("t", 1, 1))
    before = plane.tree.zxid
    assert await plane.controller.alter_partition_reassignments({T0: [BROKER_ID]}) == {T0: None}
    unknown = TopicPartition("u", 0)
    for partition, replicas, code in (
        (T0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (T0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, [2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (unknown, [BROKER_ID], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        refused = (await plane.controller.alter_partition_reassignments({partition: replicas}))[partition]
        assert refused is not None
        assert refused.code is code
    assert plane.tree.zxid == before
    assert plane.controller.list_partition_reassignments() == []


async def test_other_settings_of_a_topic_are_that_topics_business(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A request may change those of a thousand topics: for each no other is looked at. One may be gone by then."""
    plane = await ControlPlane({"unclean.leader.election.enable": "true"}).start()
    await create(plane, *(TopicCreation(name, 1, 1) for name in ("t", "u", "gone")))
    await plane.controller.delete_topics(["gone"])
    looked_through: list[str] = []
    looked_at: list[TopicPartition] = []
    for name in ("partitions", "topics"):
        whole = getattr(ControllerContext, name)
        everything = whole.fget if isinstance(whole, property) else whole

        def noted(context: ControllerContext, name: str = name, everything: Any = everything) -> Any:
            looked_through.append(name)
            return everything(context)

        monkeypatch.setattr(ControllerContext, name, property(noted) if isinstance(whole, property) else noted)
    live = ControllerContext.live_replicas

    def live_replicas(context: ControllerContext, partition: TopicPartition) -> list[int]:
        looked_at.append(partition)
        return live(context, partition)

    monkeypatch.setattr(ControllerContext, "live_replicas", live_replicas)
    for topic in ("t", "gone"):
        plane.controller.on_topic_config_changed(topic)
    while plane.controller._events:
        await asyncio.sleep(0)
    assert looked_at == [T0]
    assert not looked_through
    assert not caplog.records
    plane.controller.on_topic_config_changed(None)
    while plane.controller._events:
        await asyncio.sleep(0)
    assert set(looked_at) == {T0, TopicPartition("u", 0)}


class CountedBroker(int):
    """A broker's id that notes how often it was compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedBroker.compared += 1
        return int.__eq__(self, other)

    __hash__ = int.__hash__


async def test_many_brokers_are_compared_with_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused, but a request may name tens of thousands."""
    plane = await ControlPlane().start()
    await create(plane, TopicCreation("t", 1, 1))
    monkeypatch.setattr(CountedBroker, "compared", 0)
    target = [CountedBroker(number) for number in range(2000)]
    refused = (await plane.controller.alter_partition_reassignments({T0: target}))[T0]
    assert refused is not None and refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert 0 < CountedBroker.compared < 10 * len(target)
