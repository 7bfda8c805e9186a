"""The state machine of the share coordinator: validation, records and replay as in Kafka."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from tests.server.coordinator.share.share_requests import (
    delete_data,
    initialize_data,
    read_data,
    summary_data,
    write_data,
)

from barnabas.protocol.errors import ErrorCode
from barnabas.server.coordinator.share.persister_state_batch_combiner import PersisterStateBatch, normalize
from barnabas.server.coordinator.share.share_coordinator_record_helpers import CoordinatorRecordType, ShareStateRecord
from barnabas.server.coordinator.share.share_coordinator_shard import (
    OperationError,
    OperationResult,
    Outcome,
    ShareCoordinatorShard,
)
from barnabas.server.coordinator.share.share_group_offset import ShareGroupOffset
from barnabas.server.coordinator.share.share_partition_key import SharePartitionKey

TOPIC_ID, OTHER_ID = UUID(int=1), UUID(int=2)
KEY = SharePartitionKey("g", TOPIC_ID, 0)
MAX_BYTES = 1 << 20
MAX_EPOCH = (1 << 31) - 1
NONE, INVALID_REQUEST = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH
UNKNOWN_TOPIC_OR_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Shard:
    """A shard whose records are applied at increasing offsets; topic 1 has the partitions 0 to 2."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.now_ms = 1000
        self.partitions = {(TOPIC_ID, index) for index in range(3)}
        self.state = ShareCoordinatorShard(
            has_partition=lambda topic_id, index: (topic_id, index) in self.partitions,
            updates_per_snapshot=lambda: updates_per_snapshot,
            now_ms=lambda: self.now_ms,
        )
        self.log: list[ShareStateRecord] = []

    def apply(self, outcome: Outcome | list[ShareStateRecord]) -> ErrorCode:
        if isinstance(outcome, OperationError):
            return outcome.code
        for record in outcome.records if isinstance(outcome, OperationResult) else outcome:
            self.state.replay(record, len(self.log))
            self.log.append(record)
        return NONE

    def initialize(self, key: SharePartitionKey = KEY, **data: int) -> ErrorCode:
        return self.apply(self.state.initialize_state(key, initialize_data(key.partition, **data)))

    def write(self, *ranges: tuple[int, int, int, int], key: SharePartitionKey = KEY, **data: int) -> ErrorCode:
        batches = normalize(PersisterStateBatch(*one) for one in ranges if one[0] <= one[1])
        return self.apply(self.state.write_state(key, write_data(*ranges, **data), batches, MAX_BYTES))

    def read(self, key: SharePartitionKey = KEY, *, confirm: bool = False, **data: int) -> ErrorCode:
        return self.apply(self.state.read_state(key, read_data(**data), MAX_BYTES, confirm=confirm))

    def delete(self, key: SharePartitionKey = KEY) -> ErrorCode:
        return self.apply(self.state.delete_state(key, delete_data()))

    def offset(self, key: SharePartitionKey = KEY) -> ShareGroupOffset:
        return self.state.entries[key].offset

    def redundant_offset(self) -> int:
        steps = self.state.last_redundant_offset()
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return int(stop.value)

    def reloaded(self) -> ShareCoordinatorShard:
        """A shard with the records of the log that are not redundant."""
        other = Shard()
        for number, record in enumerate(self.log):
            if number >= self.redundant_offset():
                other.state.replay(record, number)
        return other.state


@pytest.mark.parametrize(
    ("operation", "data", "expected"),
    [
        ("initialize", {"key": SharePartitionKey("g", TOPIC_ID, -1)}, INVALID_REQUEST),
        ("initialize", {"state_epoch": -1}, INVALID_REQUEST),
        ("initialize", {"state_epoch": 4}, FENCED_STATE_EPOCH),
        ("initialize", {"state_epoch": 5}, NONE),
        ("initialize", {"state_epoch": MAX_EPOCH}, NONE),
        ("initialize", {"key": SharePartitionKey("g", OTHER_ID, 0)}, UNKNOWN_TOPIC_OR_PARTITION),
        ("initialize", {"key": SharePartitionKey("g", TOPIC_ID, 3)}, UNKNOWN_TOPIC_OR_PARTITION),
        ("write", {"key": SharePartitionKey("g", TOPIC_ID, -1)}, INVALID_REQUEST),
        ("write", {"leader_epoch": -1, "state_epoch": 5}, INVALID_REQUEST),
        ("write", {"leader_epoch": 3, "state_epoch": -1}, INVALID_REQUEST),
        ("write", {"key": SharePartitionKey("g", TOPIC_ID, 1), "leader_epoch": 3, "state_epoch": 5}, INVALID_REQUEST),
        ("write", {"leader_epoch": 2, "state_epoch": 4}, FENCED_LEADER_EPOCH),
        ("write", {"leader_epoch": 3, "state_epoch": 4}, FENCED_STATE_EPOCH),
        ("write", {"leader_epoch": 3, "state_epoch": 5}, NONE),
        ("write", {"leader_epoch": MAX_EPOCH, "state_epoch": MAX_EPOCH}, NONE),
        ("read", {"key": SharePartitionKey("g", TOPIC_ID, -1)}, INVALID_REQUEST),
        ("read", {"leader_epoch": -1}, INVALID_REQUEST),
        ("read", {"key": SharePartitionKey("g", TOPIC_ID, 1)}, INVALID_REQUEST),
        ("read", {"leader_epoch": 2}, FENCED_LEADER_EPOCH),
        ("read", {"leader_epoch": 3}, NONE),
        ("read", {"leader_epoch": MAX_EPOCH}, NONE),
        ("delete", {"key": SharePartitionKey("g", TOPIC_ID, -1)}, INVALID_REQUEST),
        ("delete", {"key": SharePartitionKey("g", OTHER_ID, 0)}, UNKNOWN_TOPIC_OR_PARTITION),
        ("delete", {"key": SharePartitionKey("g", TOPIC_ID, 1)}, NONE),
        ("delete", {}, NONE),
    ],
)
def test_requests_are_validated_as_by_kafka(operation: str, data: dict[str, Any], expected: ErrorCode) -> None:
    shard = Shard()
    assert shard.initialize(state_epoch=5, start=10) is NONE
    assert shard.read(leader_epoch=3) is NONE
    before = dict(shard.state.entries)
    assert getattr(shard, operation)(**data) is expected
    if expected is not NONE:
        assert shard.state.entries == before


def test_a_state_of_a_topic_that_no_longer_exists_is_not_changed() -> None:
    shard = Shard()
    shard.initialize()
    shard.partitions.clear()
    assert shard.write() is UNKNOWN_TOPIC_OR_PARTITION
    assert shard.read() is UNKNOWN_TOPIC_OR_PARTITION
    assert shard.apply(shard.state.read_state_summary(KEY, summary_data())) is UNKNOWN_TOPIC_OR_PARTITION
    assert len(shard.log) == 1


def test_a_batch_that_ends_before_it_begins_is_refused() -> None:
    shard = Shard()
    shard.initialize()
    assert shard.write((5, 4, 2, 1)) is INVALID_REQUEST


def test_writes_are_combined_and_the_start_offset_never_falls() -> None:
    shard = Shard()
    shard.initialize(start=10)
    assert shard.offset() == ShareGroupOffset(0, 0, 0, 10, 0, [], 1000, 1000)
    shard.write((10, 14, 2, 1), (20, 24, 0, 2), start=10, count=5)
    shard.write((22, 22, 2, 2), start=15, count=1)
    state = [PersisterStateBatch(20, 21, 0, 2), PersisterStateBatch(22, 22, 2, 2), PersisterStateBatch(23, 24, 0, 2)]
    assert shard.offset()[3:6] == (15, 1, state)
    # A write that was sent earlier and arrives later: its count includes offsets before the start offset.
    shard.write((10, 14, 2, 1), start=10, count=5)
    assert shard.offset()[3:6] == (15, 1, state)
    shard.write(start=15, count=0)
    assert shard.offset().delivery_complete_count == 1, "the count of one start offset never falls"
    assert [record.type for record in shard.log] == [CoordinatorRecordType.SHARE_SNAPSHOT] + [
        CoordinatorRecordType.SHARE_UPDATE
    ] * 4
    assert shard.reloaded().entries == shard.state.entries


def test_a_write_that_is_repeated_changes_nothing() -> None:
    shard = Shard()
    shard.initialize()
    shard.write((0, 3, 2, 1), (4, 9, 4, 5), start=0, count=10)
    before = shard.offset()
    shard.write((0, 3, 2, 1), (4, 9, 4, 5), start=0, count=10)
    assert shard.offset() == before


def test_a_read_stores_the_leader_epoch_once() -> None:
    shard = Shard()
    shard.initialize(start=7)
    for _ in range(2):
        assert shard.read(leader_epoch=4) is NONE
    assert len(shard.log) == 2
    assert shard.offset().leader_epoch == 4
    shard.read(leader_epoch=4, confirm=True)
    assert len(shard.log) == 3
    # A new state begins with leader epoch 0; older leaders remain fenced.
    shard.initialize(state_epoch=1, start=9)
    assert shard.offset().leader_epoch == 0
    assert shard.read(leader_epoch=3) is FENCED_LEADER_EPOCH
    assert shard.write(leader_epoch=3, state_epoch=1) is FENCED_LEADER_EPOCH


def test_the_count_is_unknown_until_the_start_offset_is() -> None:
    shard = Shard()
    shard.initialize(start=-1)
    assert shard.offset()[3:5] == (-1, -1)
    shard.write((0, 0, 2, 1), start=-1)
    assert shard.offset()[3:6] == (-1, -1, [PersisterStateBatch(0, 0, 2, 1)])


def test_snapshots_follow_a_number_of_updates() -> None:
    shard = Shard(updates_per_snapshot=3)
    shard.initialize()
    for number in range(8):
        shard.now_ms += 1
        shard.write((number, number, 2, 1))
    types = "".join("SU"[record.type] for record in shard.log)
    assert types == "SUUUSUUUS"
    assert shard.offset()[0] == 2
    assert shard.offset()[5:] == ([PersisterStateBatch(0, 7, 2, 1)], 1008, 1008)
    assert shard.redundant_offset() == 8
    assert shard.reloaded().entries[KEY].offset == shard.offset()


def test_each_write_is_a_snapshot_if_there_are_no_updates_between_snapshots() -> None:
    shard = Shard(updates_per_snapshot=0)
    shard.initialize()
    shard.write((0, 0, 2, 1))
    shard.read(leader_epoch=1)
    assert {record.type for record in shard.log} == {CoordinatorRecordType.SHARE_SNAPSHOT}


def test_a_deleted_state_can_be_initialized_with_any_epoch() -> None:
    shard = Shard()
    shard.initialize(state_epoch=9)
    shard.read(leader_epoch=9)
    shard.delete()
    assert shard.redundant_offset() == 2
    assert shard.write() is INVALID_REQUEST
    assert shard.initialize(state_epoch=0) is NONE
    assert shard.read(leader_epoch=0) is NONE
    assert shard.reloaded().entries == shard.state.entries


def test_the_last_redundant_offset_is_the_oldest_snapshot() -> None:
    shard = Shard()
    other = KEY._replace(partition=1)
    shard.initialize()
    shard.initialize(other)
    shard.write((0, 0, 2, 1))
    assert shard.redundant_offset() == 0
    shard.initialize(state_epoch=1)
    assert shard.redundant_offset() == 1
    shard.delete(other)
    assert shard.redundant_offset() == 3


def test_cold_share_partitions_get_snapshots_after_the_interval() -> None:
    shard = Shard()
    shard.initialize()
    shard.write((0, 0, 2, 1))
    shard.now_ms += 99
    assert shard.state.snapshot_if_cold(KEY, 100) == []
    shard.now_ms += 1
    shard.apply(shard.state.snapshot_if_cold(KEY, 100))
    assert shard.offset() == ShareGroupOffset(1, 0, 0, 0, 0, [PersisterStateBatch(0, 0, 2, 1)], 1000, 1100)
    assert shard.redundant_offset() == 2


def test_the_states_of_deleted_topics_are_deleted() -> None:
    shard = Shard()
    shard.initialize()
    assert shard.state.cleanup_share_state(KEY, {OTHER_ID}) == []
    shard.apply(shard.state.cleanup_share_state(KEY, {TOPIC_ID}))
    assert not shard.state.entries
    assert shard.state.cleanup_share_state(KEY, {TOPIC_ID}) == []


def test_the_snapshot_epoch_begins_again_after_its_last_value() -> None:
    shard = Shard(updates_per_snapshot=0)
    shard.initialize()
    entry = shard.state.entries[KEY]
    shard.state.entries[KEY] = entry._replace(offset=entry.offset._replace(snapshot_epoch=MAX_EPOCH))
    shard.write((0, 0, 2, 1))
    assert shard.offset().snapshot_epoch == 0
    shard.log[-1].encode()


@pytest.mark.parametrize("updates_per_snapshot", [0, 500])
def test_a_state_without_room_in_a_record_is_refused(updates_per_snapshot: int) -> None:
    shard = Shard(updates_per_snapshot)
    shard.initialize()
    ranges = [(4 * one, 4 * one, 2, 1) for one in range(50_000)]
    assert shard.write(*ranges) is NONE
    assert sum(len(part or b"") for part in shard.log[-1].encode()) < MAX_BYTES
    others = [(4 * one + 2, 4 * one + 2, 2, 1) for one in range(5000)]
    before = shard.offset()
    assert shard.write(*others) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert shard.offset() is before
    assert shard.write((0, 200_000, 2, 1)) is NONE, "a write that makes the state smaller is possible"
    assert len(shard.offset().state_batches) == 1


def test_an_update_whose_snapshot_was_deleted_counts_until_the_next_snapshot() -> None:
    shard = Shard(updates_per_snapshot=1)
    shard.initialize(state_epoch=5)
    shard.write((0, 0, 2, 1), state_epoch=5)
    shard.write((1, 1, 2, 1), state_epoch=5)
    other = Shard()
    for record in shard.log[1:]:
        other.apply([record])
    assert other.offset() == shard.offset()
