"""Members of share groups: join, heartbeat, fencing, leaving, and the initialization of share state."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.coordinator.group.share.share_group_world import GROUP, ShareGroupWorld, topic_id, topic_image
from tests.waiting import until

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.coordinator.creation_limiter import UNKNOWN_CLIENT
from barnabas.server.coordinator.group.classic_group import ClassicGroup
from barnabas.server.coordinator.group.modern_group_change import LAST_EPOCH
from barnabas.server.coordinator.group.share.share_group import ShareGroup, ShareGroupState


async def refused(world: ShareGroupWorld, member_id: str, epoch: int, *topics: str, **options: str) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await world.beat(member_id, epoch, *topics, **options)
    assert raised.value.message
    return raised.value.code


async def test_the_first_member_gets_partitions_after_their_state_is_initialized() -> None:
    world = ShareGroupWorld()
    first = await world.beat("a", 0, "t")
    assert (first.error, first.member_id, first.epoch, first.assignment) == (ErrorCode.NONE, "a", 2, {})
    assert first.heartbeat_interval_ms == 5000
    assert world.persister.states == {(GROUP, topic_id("t"), 0): (2, -1), (GROUP, topic_id("t"), 1): (2, -1)}
    second = await world.beat("a", 2)
    assert second.epoch == 3 and second.assignment == {topic_id("t"): {0, 1}}
    third = await world.beat("a", 3)
    assert third.epoch == 3 and third.assignment is None
    assert world.group.state is ShareGroupState.STABLE


async def test_members_share_partitions_and_one_that_leaves_gives_its_part_to_the_others() -> None:
    world = ShareGroupWorld()
    epoch = await world.joined("a", "u")
    other = await world.beat("b", 0, "u")
    result = await world.beat("a", epoch)
    sizes = sorted(len(world.assigned(name).get("u", ())) for name in "ab")
    assert sizes == [1, 2] and result.epoch == other.epoch == epoch + 1
    third = await world.beat("c", 0, "u")
    fourth = await world.beat("d", 0, "u")
    assert third.epoch == epoch + 2 and len(fourth.assignment[topic_id("u")]) >= 1
    assert (await world.beat("b", -1)).epoch == -1
    assert "b" not in world.group.members and world.group.epoch > world.group.assignment_epoch
    for name in "acd":
        await world.beat(name, world.group.members[name].epoch)
    read = [index for name in "acd" for index in world.assigned(name)["u"]]
    assert sorted(read) == [0, 1, 2]


async def test_a_repeated_heartbeat_after_a_lost_response_is_accepted() -> None:
    world = ShareGroupWorld()
    first = await world.beat("a", 0, "t")
    again = await world.beat("a", 0, "t")
    assert again.error is ErrorCode.NONE and again.assignment == {topic_id("t"): {0, 1}}
    assert again.epoch == first.epoch + 1
    late = await world.beat("a", first.epoch)  # the previous epoch
    assert late.epoch == again.epoch
    assert (await world.beat("a", -1)).error is ErrorCode.NONE
    assert await refused(world, "a", -1) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("epoch", [1, 99, LAST_EPOCH])
async def test_a_member_with_another_epoch_is_fenced(epoch: int) -> None:
    world = ShareGroupWorld()
    await world.joined("a")
    await world.beat("b", 0, "u")
    await world.beat("a", 3)
    assert await refused(world, "a", epoch) is ErrorCode.FENCED_MEMBER_EPOCH
    assert (await world.beat("a", 0, "t")).error is ErrorCode.NONE


async def test_invalid_heartbeats_are_rejected_without_a_trace() -> None:
    world = ShareGroupWorld()
    for member_id, epoch, topics in (("", 0, "t"), (" ", 0, "t"), ("x" * 37, 0, "t"), ("a", -2, "t"), ("a", 0, "")):
        assert await refused(world, member_id, epoch, *filter(None, [topics])) is ErrorCode.INVALID_REQUEST
    assert await refused(world, "a", 0, "t", rack_id=" ") is ErrorCode.INVALID_REQUEST
    assert await refused(world, "a", 0, "t", group_id="") is ErrorCode.INVALID_REQUEST
    assert await refused(world, "a", 3) is ErrorCode.GROUP_ID_NOT_FOUND
    assert await refused(world, "a", -1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert await refused(world, "a", 0, *map(str, range(20_001))) is ErrorCode.INVALID_REQUEST
    assert not world.groups.groups and not world.groups.log
    await world.joined("a")
    assert await refused(world, "b", 3) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_group_of_another_type_is_not_found() -> None:
    world = ShareGroupWorld()
    world.groups.groups[GROUP] = ClassicGroup(GROUP, 0)
    for epoch in (0, 1, -1):
        assert await refused(world, "a", epoch, "t") is ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(KafkaError, match="not a share group"):
        await world.manager.state_manager.alter_offsets(GROUP, {"t": {0: 1}}, UNKNOWN_CLIENT)


async def test_the_size_of_a_group_is_limited() -> None:
    world = ShareGroupWorld(group_share_max_size=2)
    await world.joined("a")
    await world.joined("b")
    assert await refused(world, "c", 0, "t") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (await world.beat("b", 0, "t")).error is ErrorCode.NONE


async def test_a_change_of_the_subscription_changes_the_assignment() -> None:
    world = ShareGroupWorld()
    epoch = await world.joined("a")
    first = await world.beat("a", epoch, "u")
    assert first.assignment == {} and first.epoch == epoch + 1
    second = await world.beat("a", first.epoch)
    assert second.assignment == {topic_id("u"): {0, 1, 2}}
    assert world.group.state_partitions.initialized.keys() == {topic_id("t"), topic_id("u")}
    third = await world.beat("a", second.epoch, "t", "u", rack_id="r")
    assert third.assignment == {topic_id("t"): {0, 1}, topic_id("u"): {0, 1, 2}}
    assert world.group.members["a"].rack_id == "r"


async def test_assignments_wait_for_the_assignment_interval() -> None:
    world = ShareGroupWorld(group_share_assignment_interval_ms=1000)
    first = await world.beat("a", 0, "t")
    world.now_ms += 999
    second = await world.beat("a", first.epoch)
    assert second.epoch == first.epoch and second.assignment is None and world.group.epoch == first.epoch + 1
    joining = await world.beat("b", 0, "t")
    assert joining.epoch == first.epoch and joining.assignment == {}
    world.now_ms += 1
    third = await world.beat("a", first.epoch)
    assert third.epoch == world.group.epoch and len(third.assignment[topic_id("t")]) == 1
    world.own["share.assignment.interval.ms"] = 0
    assert (await world.beat("c", 0, "t")).epoch == third.epoch + 1


async def test_an_empty_group_assigns_immediately_to_its_next_member() -> None:
    world = ShareGroupWorld(group_share_assignment_interval_ms=15_000)
    first = await world.beat("a", 0, "t")
    await world.beat("a", -1)
    assert world.group.state is ShareGroupState.EMPTY and world.group.epoch == world.group.assignment_epoch
    second = await world.beat("b", 0, "t")
    assert second.assignment == {topic_id("t"): {0, 1}} and second.epoch == first.epoch + 2


async def test_settings_of_the_group_replace_those_of_the_broker() -> None:
    world = ShareGroupWorld()
    world.own["share.heartbeat.interval.ms"] = 7000
    assert (await world.beat("a", 0, "t")).heartbeat_interval_ms == 7000


async def test_a_session_that_expires_removes_the_member() -> None:
    world = ShareGroupWorld()
    world.own["share.session.timeout.ms"] = 30
    await world.beat("a", 0, "t")
    await until(lambda: world.group.is_empty, "the session has expired")
    assert world.group.state_name == "Empty"
    assert await refused(world, "a", 2) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_the_epoch_after_the_largest_is_the_first() -> None:
    world = ShareGroupWorld()
    await world.joined("a")
    group = world.group
    group.epoch = group.assignment_epoch = LAST_EPOCH
    assert (await world.beat("a", 3)).epoch == LAST_EPOCH
    result = await world.beat("a", LAST_EPOCH, "u")
    assert result.error is ErrorCode.NONE and result.epoch == 1
    world.restart()
    assert (await world.beat("a", 1)).epoch >= 1


async def test_an_append_that_fails_changes_nothing() -> None:
    world = ShareGroupWorld()
    await world.joined("a")
    before = world.loaded()[GROUP]
    world.groups.is_failing = True
    failed = await world.beat("b", 0, "u")
    assert failed.error is ErrorCode.NOT_COORDINATOR
    assert world.group.members.keys() == {"a"} and world.group.subscribed_topics == {"t"}
    failed = await world.beat("a", -1)
    assert failed.error is ErrorCode.NOT_COORDINATOR and world.group.members.keys() == {"a"}
    world.groups.is_failing = False
    same_state(world.group, before)
    assert (await world.beat("b", 0, "u")).error is ErrorCode.NONE


async def test_a_heartbeat_that_fails_before_its_append_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ShareGroupWorld()
    await world.joined("a")
    before = world.loaded()[GROUP]
    with monkeypatch.context() as patch:
        patch.setattr(world.manager.state_manager, "begin_initialization", fail)
        with pytest.raises(RuntimeError):
            await world.beat("b", 0, "u")
    same_state(world.group, before)
    assert world.group.subscribed_topics == {"t"}
    assert (await world.beat("b", 0, "u")).error is ErrorCode.NONE
    same_state(world.group, world.loaded()[GROUP])


async def test_a_heartbeat_that_fails_after_its_append_is_not_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ShareGroupWorld()
    await world.joined("a")
    with monkeypatch.context() as patch:
        patch.setattr(world.manager._sessions, "restart", fail)
        with pytest.raises(RuntimeError):
            await world.beat("b", 0, "u")
    await world.settle()
    assert world.group.members.keys() == {"a", "b"}
    same_state(world.group, world.loaded()[GROUP])


def fail(*_: object) -> None:
    raise RuntimeError("planted")


def same_state(group: ShareGroup, loaded: object) -> None:
    """Compare a group with the same group loaded from the log."""
    assert isinstance(loaded, ShareGroup)
    assert loaded.members == group.members and loaded.targets == group.targets
    assert (loaded.epoch, loaded.assignment_epoch) == (group.epoch, group.assignment_epoch)
    assert (loaded.metadata_hash, loaded.assignment_timestamp_ms) == (
        group.metadata_hash,
        group.assignment_timestamp_ms,
    )
    mine, other = group.state_partitions, loaded.state_partitions
    assert (mine is None) == (other is None)
    if mine is not None and other is not None:
        assert mine.deleting == other.deleting
        for left, right in ((mine.initializing, other.initializing), (mine.initialized, other.initialized)):
            assert {key: state[:2] for key, state in left.items()} == {key: state[:2] for key, state in right.items()}


async def test_a_loaded_group_is_the_group_at_each_step() -> None:
    world = ShareGroupWorld()
    steps: list[tuple[str, int, tuple[str, ...]]] = [
        ("a", 0, ("t",)),
        ("a", 2, ("t",)),
        ("b", 0, ("t", "u")),
        ("a", 3, ("u",)),
        ("b", -1, ()),
        ("a", 0, ("u",)),
        ("a", -1, ()),
    ]
    for member_id, epoch, topics in steps:
        present = world.group.members[member_id].epoch if epoch > 0 else epoch
        await world.beat(member_id, present, *topics)
        same_state(world.group, world.loaded()[GROUP])
        world.restart()
        same_state(world.group, world.loaded()[GROUP])
    world.manager.state_manager.delete_group(world.group, lambda _: None)
    await world.settle()
    assert not world.groups.log and not world.groups.groups and not world.persister.states


async def test_an_initialization_that_fails_is_tried_again() -> None:
    world = ShareGroupWorld()
    world.persister.error = ErrorCode.NOT_COORDINATOR
    first = await world.beat("a", 0, "t")
    assert world.group.state_partitions.initializing == {} and world.group.state_partitions.initialized == {}
    world.persister.error = ErrorCode.NONE
    second = await world.beat("a", first.epoch)
    assert second.assignment is None
    third = await world.beat("a", second.epoch)
    assert third.assignment == {topic_id("t"): {0, 1}}


async def test_partitions_are_initialized_after_an_append_that_failed() -> None:
    world = ShareGroupWorld()
    await world.joined("a")
    world.groups.is_failing = True
    assert (await world.beat("b", 0, "t")).error is ErrorCode.NOT_COORDINATOR
    world.groups.is_failing = False
    assert (await world.beat("b", 0, "u")).error is ErrorCode.NONE
    assert world.group.state_partitions.initialized.keys() == {topic_id("t"), topic_id("u")}


async def test_an_initialization_without_an_end_is_tried_again_after_the_retry_interval() -> None:
    world = ShareGroupWorld()
    world.persister.gate.clear()
    first = await world.beat("a", 0, "t")
    assert first.error is ErrorCode.NONE  # the response does not wait for the share coordinator
    assert (await world.beat("a", first.epoch)).error is ErrorCode.NONE
    assert len(world.persister.requests) == 1
    world.restart()
    await world.beat("a", first.epoch)
    assert len(world.persister.requests) == 1
    world.now_ms += 30_000
    await world.beat("a", first.epoch)
    assert len(world.persister.requests) == 2
    assert [one.start_offset for one in world.persister.requests[1].topics[0].partitions] == [-1, -1]
    world.persister.gate.set()
    await world.settle()
    assert (await world.beat("a", first.epoch)).assignment == {topic_id("t"): {0, 1}}


async def test_partitions_that_are_added_later_begin_at_their_first_record() -> None:
    world = ShareGroupWorld()
    epoch = await world.joined("a")
    world.metadata.put_topics([topic_image("t", 4)])
    first = await world.beat("a", epoch)
    second = await world.beat("a", first.epoch)
    assert second.assignment == {topic_id("t"): {0, 1, 2, 3}}
    starts = {index: offset for (_, _, index), (_, offset) in world.persister.states.items()}
    assert starts == {0: -1, 1: -1, 2: 0, 3: 0}


async def test_deleted_topics_are_forgotten_and_a_new_topic_of_the_name_is_another() -> None:
    world = ShareGroupWorld()
    epoch = await world.joined("a", "t", "u")
    world.metadata.remove_topics(["t"])
    assert world.group.state_partitions.initialized.keys() == {topic_id("u")}
    result = await world.beat("a", epoch)
    assert result.assignment == {topic_id("u"): {0, 1, 2}}
    world.metadata.put_topics([topic_image("t", 1, topic_id("another"))])
    result = await world.beat("a", result.epoch)
    result = await world.beat("a", result.epoch)
    assert result.assignment == {topic_id("u"): {0, 1, 2}, topic_id("another"): {0}}
    same_state(world.group, world.loaded()[GROUP])


async def test_responses_wait_until_the_change_is_durable() -> None:
    world = ShareGroupWorld()
    world.groups.is_slow = True
    joining = asyncio.ensure_future(world.beat("a", 0, "t"))
    await world.settle()
    assert not joining.done() and not world.persister.requests
    world.groups.waiting.pop()(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert (await joining).error is ErrorCode.COORDINATOR_NOT_AVAILABLE and not world.persister.requests


async def test_a_heartbeat_without_changes_writes_nothing() -> None:
    world = ShareGroupWorld()
    epoch = await world.joined("a")
    before = dict(world.groups.log)
    world.groups.log.clear()
    await world.beat("a", epoch)
    assert world.groups.log == {}
    world.groups.log = before


# -- offsets -----------------------------------------------------------------------------------------------------------


async def test_offsets_of_a_new_group_are_set_and_read_by_its_members() -> None:
    world = ShareGroupWorld()
    errors = await world.manager.state_manager.alter_offsets(GROUP, {"t": {0: 7, 9: 1}, "gone": {0: 1}}, UNKNOWN_CLIENT)
    assert {place: error.code for place, error in errors.items()} == {
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert world.persister.states == {(GROUP, topic_id("t"), 0): (1, 7)}
    assert world.group.state_name == "Empty"
    same_state(world.group, world.loaded()[GROUP])
    world.restart()
    first = await world.beat("a", 0, "t")
    assert first.assignment == {topic_id("t"): {0}}
    second = await world.beat("a", first.epoch)
    assert second.assignment == {topic_id("t"): {0, 1}}
    assert world.persister.states[GROUP, topic_id("t"), 0] == (1, 7)
    with pytest.raises(KafkaError) as raised:
        await world.manager.state_manager.alter_offsets(GROUP, {"t": {0: 7}}, UNKNOWN_CLIENT)
    assert raised.value.code is ErrorCode.NON_EMPTY_GROUP


async def test_an_alteration_that_fails_reports_each_partition() -> None:
    world = ShareGroupWorld()
    world.persister.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    errors = await world.manager.state_manager.alter_offsets(GROUP, {"t": {0: 7, 1: 8}}, UNKNOWN_CLIENT)
    assert {error.code for error in errors.values()} == {ErrorCode.COORDINATOR_NOT_AVAILABLE} and len(errors) == 2
    world.groups.is_failing = True
    with pytest.raises(KafkaError):
        await world.manager.state_manager.alter_offsets("other", {"t": {0: 7}}, UNKNOWN_CLIENT)
    assert "other" not in world.groups.groups


async def test_offsets_are_deleted_topic_by_topic() -> None:
    world = ShareGroupWorld()
    epoch = await world.joined("a", "t", "u")
    manager = world.manager.state_manager
    with pytest.raises(KafkaError) as raised:
        await manager.delete_offsets(GROUP, ["t"])
    assert raised.value.code is ErrorCode.NON_EMPTY_GROUP
    await world.beat("a", -1)
    world.persister.error = ErrorCode.NOT_COORDINATOR
    assert (await manager.delete_offsets(GROUP, ["t"]))["t"].code is ErrorCode.NOT_COORDINATOR
    assert world.group.state_partitions.deleting == {topic_id("t"): "t"}
    world.restart()
    world.persister.error = ErrorCode.NONE
    manager = world.manager.state_manager
    errors = await manager.delete_offsets(GROUP, ["t", "gone"])
    assert errors["t"].code is ErrorCode.NONE and errors["gone"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.group.state_partitions.deleting == {}
    assert {key[1] for key in world.persister.states} == {topic_id("u")}
    assert (await manager.delete_offsets(GROUP, ["t"]))["t"].message == "There is no offset information to delete."
    with pytest.raises(KafkaError) as raised:
        await manager.delete_offsets("no group", ["t"])
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert epoch


async def test_a_group_is_deleted_after_its_share_state() -> None:
    world = ShareGroupWorld()
    await world.joined("a")
    outcomes: list[ErrorCode] = []
    delete = world.manager.state_manager.delete_group
    delete(world.group, outcomes.append)
    await world.settle()
    await world.beat("a", -1)
    world.persister.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    delete(world.group, outcomes.append)
    await world.settle()
    assert outcomes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert world.group.state_partitions.deleting == {topic_id("t"): "t"}
    world.restart()
    world.persister.error = ErrorCode.NONE
    world.manager.state_manager.delete_group(world.group, outcomes.append)
    await world.settle()
    assert outcomes[2:] == [ErrorCode.NONE] and not world.groups.groups and not world.persister.states
    assert not world.groups.log


async def test_nothing_is_written_for_a_group_that_another_request_has_deleted() -> None:
    world = ShareGroupWorld()
    await world.joined("a")
    await world.beat("a", -1)
    outcomes: list[ErrorCode] = []
    world.persister.requests.clear()
    world.manager.state_manager.delete_group(world.group, outcomes.append)
    world.manager.on_group_unloaded(world.groups.groups.pop(GROUP), ErrorCode.UNKNOWN_MEMBER_ID)  # type: ignore[arg-type]
    world.groups.log.clear()
    await world.settle()
    assert outcomes == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert not world.groups.log and not world.persister.requests


async def test_a_member_that_joins_during_the_deletion_keeps_the_group() -> None:
    world = ShareGroupWorld()
    await world.joined("a")
    await world.beat("a", -1)
    outcomes: list[ErrorCode] = []
    world.persister.gate.clear()
    world.manager.state_manager.delete_group(world.group, outcomes.append)
    await world.settle()
    joined = await world.beat("b", 0, "t")
    world.persister.gate.set()
    await world.settle()
    assert outcomes == [ErrorCode.NON_EMPTY_GROUP]
    assert (await world.beat("b", joined.epoch)).assignment == {topic_id("t"): {0, 1}}
    assert len(world.persister.states) == 2
