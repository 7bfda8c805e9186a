"""A group by itself: the table of states, who is let in, votes, leaders, static members, and its records."""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Callable, Iterable

import pytest

from barnabas.protocol.codec import encode_versioned
from barnabas.protocol.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.record_batch import ControlType, RecordBatch, RecordBatchBuilder, control_batch
from barnabas.server.coordinator import compacted_records
from barnabas.server.coordinator.compacted_records import CompactedRecords
from barnabas.server.coordinator.coordinator_topic import partition_for
from barnabas.server.coordinator.group import group_loader
from barnabas.server.coordinator.group.classic_group import (
    CAN_REBALANCE,
    COMMIT_ERRORS,
    HEARTBEAT_ERRORS,
    SYNC_ERRORS,
    TRANSITIONS,
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
    JoinResult,
    SyncResult,
)
from barnabas.server.coordinator.group.consumer_group import ConsumerGroup
from barnabas.server.coordinator.group.group_loader import load_groups
from barnabas.server.coordinator.group.group_records import (
    GroupMetadataEncoder,
    OffsetId,
    group_metadata_key,
    new_group_metadata_record,
    new_offset_commit_record,
    offset_commit_key,
    read_group,
    read_key,
    read_offset,
)
from barnabas.server.coordinator.group.offsets import CommittedOffset, GroupOffsets, OffsetExpirationCondition
from barnabas.server.coordinator.group.response_pacer import PacedReply, ResponsePacer
from barnabas.server.runtime.loop_sharing import CountBudget


class AtOnce(ResponsePacer):
    """It is always everybody's turn."""

    def __init__(self) -> None:
        """There is nothing to wait for."""

    def extend(self, answers: Iterable[Callable[[], None]]) -> None:
        for answer in answers:
            answer()


def make_member(
    name: str, *protocols: str, instance_id: str | None = None, metadata: bytes = b""
) -> ClassicGroupMember:
    return ClassicGroupMember(
        member_id=name,
        group_instance_id=instance_id,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=1000,
        session_timeout_ms=500,
        protocol_type="consumer",
        protocols=tuple((protocol, metadata) for protocol in protocols or ("range",)),
    )


def make_group(*members: ClassicGroupMember) -> ClassicGroup:
    group = ClassicGroup("g", 0)
    for member in members:
        group.add(member)
    return group


def test_every_state_can_be_reached_and_left_and_nothing_else_is_possible() -> None:
    reached, to_visit = {ClassicGroupState.EMPTY}, deque([ClassicGroupState.EMPTY])
    while to_visit:
        for following in TRANSITIONS[to_visit.popleft()] - reached:
            reached.add(following)
            to_visit.append(following)
    assert reached == set(ClassicGroupState)
    assert (
        frozenset({ClassicGroupState.EMPTY, ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE})
        == CAN_REBALANCE
    )
    for state in ClassicGroupState:
        assert state in HEARTBEAT_ERRORS and state in SYNC_ERRORS and state in COMMIT_ERRORS
        for following in ClassicGroupState:
            group = ClassicGroup("g", 0)
            group.state = state
            if following in TRANSITIONS[state]:
                group.transition_to(following, 5)
                assert (group.state, group.state_timestamp_ms) == (following, 5)
            else:
                with pytest.raises(AssertionError):
                    group.transition_to(following, 5)


def test_generations_begin_again_after_the_last_one() -> None:
    group = make_group(make_member("a"))
    group.generation = 2**31 - 1
    group.transition_to(ClassicGroupState.PREPARING_REBALANCE, 4)
    group.begin_generation(5)
    assert group.generation == 1
    assert read_group("g", new_group_metadata_record(group, {})[1] or b"", 0).generation == 1


def test_the_first_member_leads_and_another_one_follows_it() -> None:
    group = make_group(make_member("a"), make_member("b"))
    assert group.leader_id == "a" and group.protocol_type == "consumer"
    group.remove("a")
    assert group.leader_id == "b"
    group.remove("b")
    assert group.leader_id is None and not group.members


def test_a_leader_that_has_not_joined_is_replaced_by_one_that_has() -> None:
    answers: list[JoinResult] = []
    group = make_group(make_member("a", instance_id="s"), make_member("b"))
    assert not group.elect_joined_leader()
    group.update(group.members["b"], (("range", b""),), 1, 1, PacedReply(AtOnce(), answers.append))
    assert group.elect_joined_leader() and group.leader_id == "b"
    assert not group.has_all_joined
    group.remove("a")
    assert group.has_all_joined
    group.pending_members.add("c")
    assert not group.has_all_joined
    assert answers == []


def test_votes_among_what_everybody_supports() -> None:
    group = make_group(make_member("a", "x", "y"), make_member("b", "z", "y", "x"), make_member("c", "y", "x"))
    assert group.select_protocol() == "y"
    assert group.supports("consumer", (("x", b""),))
    assert not group.supports("consumer", (("z", b""),))
    assert not group.supports("connect", (("x", b""),))
    assert not group.supports("consumer", ())
    assert ClassicGroup("g", 0).supports("anything", (("p", b""),)) and not ClassicGroup("g", 0).supports(
        "", (("p", b""),)
    )
    group.update(group.members["a"], (("z", b""), ("y", b"")), 1, 1, None)
    assert not group.supports("consumer", (("x", b""),))
    group.remove("c")
    assert group.select_protocol() == "z"


def test_a_static_member_is_replaced_and_whatever_waited_is_fenced() -> None:
    joins: list[JoinResult] = []
    syncs: list[SyncResult] = []
    group = make_group(make_member("a", instance_id="s"), make_member("b"))
    group.update(group.members["a"], (("range", b""),), 1, 1, PacedReply(AtOnce(), joins.append))
    group.members["a"].sync_reply = PacedReply(AtOnce(), syncs.append)
    group.pending_syncs.add("a")
    replaced = group.replace_static("s", "a2")
    assert [one.error for one in joins] == [one.error for one in syncs] == [ErrorCode.FENCED_INSTANCE_ID]
    assert list(group.members) == ["a2", "b"] and group.leader_id == "a2" and group.pending_syncs == {"a2"}
    assert replaced.member_id == group.static_member_id("s") == "a2" and group.awaiting_join == 0
    assert group.check_member("a", "s") is ErrorCode.FENCED_INSTANCE_ID
    assert group.check_member("a2", "s") is ErrorCode.NONE
    assert group.check_member("a2", "other") is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.check_member("a", None) is ErrorCode.UNKNOWN_MEMBER_ID


def test_from_when_on_the_time_of_offsets_runs() -> None:
    group = ClassicGroup("g", 7)
    assert group.offset_expiration_condition == OffsetExpirationCondition()
    group.add(make_member("a"))
    group.subscribed_topics = frozenset({"t"})
    for state in (ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE):
        group.state = state
        assert group.offset_expiration_condition is None
    group.state = ClassicGroupState.STABLE
    assert group.offset_expiration_condition == OffsetExpirationCondition(keep=frozenset({"t"}))
    group.subscribed_topics = None
    assert group.offset_expiration_condition is None
    group.subscribed_topics, group.protocol_type = frozenset(), "connect"
    assert group.offset_expiration_condition is None
    group.state = ClassicGroupState.EMPTY
    assert group.offset_expiration_condition == OffsetExpirationCondition(since_ms=7)
    assert ConsumerGroup("g").offset_expiration_condition == OffsetExpirationCondition()


def test_a_member_in_order_that_commits_while_it_waits_for_its_assignment_is_told_so() -> None:
    group = make_group(make_member("a"))
    group.state, group.generation = ClassicGroupState.COMPLETING_REBALANCE, 3
    assert group.validate_offset_commit("a", None, 3, 8) is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.validate_offset_commit("a", None, 2, 8) is ErrorCode.ILLEGAL_GENERATION


def test_who_may_commit() -> None:
    group = make_group(make_member("a"))
    group.state, group.generation = ClassicGroupState.STABLE, 3
    assert group.validate_offset_commit("a", None, 3, 8) is ErrorCode.NONE
    assert group.validate_offset_commit("a", None, 2, 8) is ErrorCode.ILLEGAL_GENERATION
    assert group.validate_offset_commit("b", None, 3, 8) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.validate_offset_commit("", None, -1, 8) is ErrorCode.UNKNOWN_MEMBER_ID
    assert ClassicGroup("g", 0).validate_offset_commit("", None, -1, 8) is ErrorCode.NONE
    group.state = ClassicGroupState.DEAD
    assert group.validate_offset_commit("a", None, 3, 8) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_what_the_consumers_of_a_generation_read() -> None:
    def subscribed(*topics: str) -> bytes:
        return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 1)

    group = make_group(make_member("a", metadata=subscribed("t", "u")), make_member("b", metadata=subscribed("v")))
    group.state = ClassicGroupState.PREPARING_REBALANCE
    group.begin_generation(9)
    assert group.subscribed_topics == {"t", "u", "v"}
    group.update(group.members["b"], (("range", b"\0"),), 1, 1, None)
    group.state = ClassicGroupState.PREPARING_REBALANCE
    group.begin_generation(9)
    assert group.subscribed_topics is None and group.generation == 2


@pytest.mark.parametrize("version", [0, 1, 3, 4, 77, 32767, -1])
def test_offsets_are_kept_by_what_every_version_of_a_subscription_begins_with(version: int) -> None:
    """Whatever a member's client says of the rest, which may be of a layout that nobody knows here."""
    plain = encode_versioned(ConsumerProtocolSubscription(topics=["t", "u"]), 0)
    foreign = version.to_bytes(2, "big", signed=True) + plain[2:] + b"\xff\xff\xffbehind it"
    group = make_group(make_member("a", metadata=foreign))
    group.state = ClassicGroupState.PREPARING_REBALANCE
    group.begin_generation(9)
    group.state = ClassicGroupState.STABLE
    assert group.offset_expiration_condition == OffsetExpirationCondition(keep=frozenset({"t", "u"}))


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [("", 0), ("test", 48), ("my-group", 12), ("console-consumer-12345", 6), ("grüße", 23), ("😀", 49)],
)
def test_the_partition_of_a_group_is_that_of_java(group_id: str, partition: int) -> None:
    assert partition_for(group_id, 50) == partition


def test_the_one_hash_without_a_positive_counterpart_is_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0  # its hashCode is Integer.MIN_VALUE


def test_partitions_of_long_names_are_not_remembered() -> None:
    """Of which a client can make up as many as it likes."""
    tracemalloc.start()
    try:
        for number in range(100):
            partition_for(f"{number}".ljust(10_000, "x"), 50)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000


def test_a_group_is_read_as_it_was_written() -> None:
    group = make_group(make_member("a", metadata=b"ma"), make_member("b", metadata=b"mb", instance_id="s"))
    group.state = ClassicGroupState.PREPARING_REBALANCE
    group.begin_generation(77)
    key, value = new_group_metadata_record(group, {"a": b"1"})
    assert value is not None
    assert key == group_metadata_key("g") == b"\x00\x02" + encode_versioned(GroupMetadataKey(group="g"), 2)[2:]
    assert read_key(key) == "g" and value[:2] == b"\x00\x03"
    again = read_group("g", value, 1000)
    assert (again.state, again.generation, again.leader_id, again.protocol_name) == (
        ClassicGroupState.STABLE,
        1,
        "a",
        "range",
    )
    assert again.state_timestamp_ms == 77 and again.static_member_id("s") == "b"
    assert [(m.member_id, m.metadata("range"), m.assignment) for m in again.members.values()] == [
        ("a", b"ma", b"1"),
        ("b", b"mb", b""),
    ]


@pytest.mark.parametrize("at_a_time", [1, 2, 3, 4, 5, 100])
def test_a_group_written_in_pieces_is_the_same(at_a_time: int) -> None:
    group = make_group(*[make_member(f"m{index}", metadata=b"x" * index) for index in range(4)])
    group.state = ClassicGroupState.PREPARING_REBALANCE
    group.begin_generation(77)
    assignments = {"m0": b"first", "m3": b"last"}
    members = [
        MemberMetadata(
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata("range"),
            assignment=assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m0",
        current_state_timestamp=77,
        members=members,
    )
    encoder = GroupMetadataEncoder(group, assignments)
    while not encoder.is_done:
        encoder.encode_members(at_a_time)
    assert (
        encoder.record()
        == new_group_metadata_record(group, assignments)
        == (group_metadata_key("g"), encode_versioned(value, 3))
    )


def test_an_offset_is_read_as_it_was_written() -> None:
    offset = CommittedOffset(5, 3, "note", 99)
    key, value = new_offset_commit_record("g", ("t", 1), offset)
    assert value is not None and value[:2] == b"\x00\x03"
    assert read_key(key) == OffsetId("g", ("t", 1)) and read_offset(value) == offset
    expiring = CommittedOffset(5, -1, "", 99, expire_timestamp_ms=200)
    _, value = new_offset_commit_record("g", ("t", 1), expiring)
    assert value is not None and value[:2] == b"\x00\x01" and read_offset(value) == expiring
    assert read_key(b"\x00\x08whatever") is None
    with pytest.raises(ProtocolError):
        read_key(b"\x00\x01\x00")


def test_expiry() -> None:
    offsets = GroupOffsets()
    offsets.committed[("t", 0)] = CommittedOffset(1, -1, "", 100)
    offsets.committed[("u", 0)] = CommittedOffset(1, -1, "", 100, expire_timestamp_ms=105)
    assert list(offsets.expired(109, 10, OffsetExpirationCondition())) == [("u", 0)]
    assert list(offsets.expired(110, 10, OffsetExpirationCondition())) == [("t", 0), ("u", 0)]
    assert list(offsets.expired(110, 10, OffsetExpirationCondition(101, frozenset({"u"})))) == []
    offsets.begin([("t", 0)])
    assert list(offsets.expired(110, 10, OffsetExpirationCondition(keep=frozenset({"u"})))) == []
    offsets.finish([("t", 0)])
    assert list(offsets.expired(110, 10, OffsetExpirationCondition(keep=frozenset({"u"})))) == [("t", 0)]


class Name(str):
    """Counts how often it is looked up, in whatever it is a part of."""

    __slots__ = ()
    lookups = 0

    def __hash__(self) -> int:
        Name.lookups += 1
        return super().__hash__()


def test_what_is_asked_of_one_partition_does_not_cost_a_look_at_every_transaction() -> None:
    offsets, transactions = GroupOffsets(), 1000
    for producer_id in range(transactions):
        offsets.add_pending(producer_id, {("t", producer_id): CommittedOffset(1, -1, "", 100)})
    Name.lookups = 0
    assert offsets.has_pending(Name("t"), 7) and not offsets.has_pending(Name("u"), 7)
    offsets.commit({(Name("t"), 7): CommittedOffset(2, -1, "", 100)})
    assert not offsets.has_pending(Name("t"), 7) and 7 not in offsets.pending
    offsets.add_pending(7, {(Name("t"), 8): CommittedOffset(3, -1, "", 100)})
    offsets.complete_transaction(7, is_commit=True)
    assert offsets.get("t", 8) == CommittedOffset(3, -1, "", 100) and 8 not in offsets.pending
    assert len(offsets.pending) == transactions - 2
    assert Name.lookups < 50


def batch(base: int, *entries: tuple[bytes, bytes | None], producer_id: int = -1) -> RecordBatch:
    builder = RecordBatchBuilder(
        base_offset=base, producer_id=producer_id, producer_epoch=0, is_transactional=producer_id >= 0
    )
    for key, value in entries:
        builder.append(key, value, timestamp=0)
    return RecordBatch(memoryview(builder.build()))


def offset_value(offset: int) -> bytes:
    return encode_versioned(OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1), 3)


def marker(base: int, producer_id: int, control_type: ControlType) -> RecordBatch:
    data = control_batch(
        control_type, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=base
    )
    return RecordBatch(memoryview(data))


async def test_the_last_record_of_a_key_counts_and_transactions_count_from_their_commit() -> None:
    loaded = CompactedRecords()
    key = [offset_commit_key("g", ("t", partition)) for partition in range(5)]
    await loaded.take(
        batch(0, (key[0], offset_value(1)), (key[1], offset_value(1)), (key[2], offset_value(1))), CountBudget()
    )
    await loaded.take(batch(3, (key[0], offset_value(2)), (key[1], None)), CountBudget())
    await loaded.take(batch(5, (key[0], offset_value(3)), (key[2], offset_value(3)), producer_id=7), CountBudget())
    await loaded.take(batch(7, (key[3], offset_value(4)), producer_id=8), CountBudget())
    await loaded.take(batch(8, (key[2], offset_value(5))), CountBudget())
    await loaded.take(marker(9, 7, ControlType.COMMIT), CountBudget())
    await loaded.take(marker(10, 8, ControlType.ABORT), CountBudget())
    await loaded.take(batch(11, (key[4], offset_value(6)), producer_id=9), CountBudget())  # never decided
    await loaded.take(batch(12, (b"\x00\x63unknown kind", b"x"), (b"\x00\x02\x00", b"broken")), CountBudget())
    groups = await load_groups(loaded, 0)
    found = {place[1]: offset.offset for place, offset in groups["g"].offsets.committed.items()}
    assert found == {0: 3, 2: 5}
    assert list(groups) == ["g"]


class Key(bytes):
    """As `Name`."""

    lookups = 0

    def __hash__(self) -> int:
        Key.lookups += 1
        return super().__hash__()


async def test_a_record_that_is_loaded_does_not_cost_a_look_at_every_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = CompactedRecords()
    for producer_id in range(1000):
        key = offset_commit_key("g", ("t", producer_id))
        await loaded.take(batch(producer_id, (key, offset_value(1)), producer_id=producer_id), CountBudget())
    monkeypatch.setattr(compacted_records, "bytes", Key, raising=False)
    await loaded.take(batch(1000, (offset_commit_key("g", ("t", 7)), offset_value(2))), CountBudget())
    await loaded.take(batch(1001, (offset_commit_key("other", ("t", 7)), offset_value(3))), CountBudget())
    assert Key.lookups < 20
    assert 7 not in {producer_id for producer_id, *_ in loaded.pending()}


async def test_a_group_with_a_null_value_is_gone() -> None:
    loaded = CompactedRecords()
    entry = new_group_metadata_record(make_group(make_member("a")), {})
    await loaded.take(batch(0, entry, (entry[0], None)), CountBudget())
    assert await load_groups(loaded, 0) == {}


async def test_a_record_that_fails_when_it_is_loaded_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entries = [new_offset_commit_record(group, ("t", 1), CommittedOffset(5, 3, "", 99)) for group in ("a", "bad", "z")]

    def read(value: bytes) -> CommittedOffset:
        if value == b"bad":
            raise ValueError("on purpose")
        return read_offset(value)

    monkeypatch.setattr(group_loader, "read_offset", read)
    loaded = CompactedRecords()
    await loaded.take(batch(0, entries[0], (entries[1][0], b"bad"), entries[2]), CountBudget())
    groups = await load_groups(loaded, 0)
    assert {name for name, group in groups.items() if group.offsets.committed} == {"a", "z"}
    assert "a record of a group is skipped" in caplog.text
