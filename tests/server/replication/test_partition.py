"""A partition's leader: high watermark, barriers, epochs, deletion of records; over a log in a simulated disk."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.server.data_plane import batch
from tests.server.partition_states import next_order
from tests.storage.logs import open_log

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.replication.append_request import AppendRequest
from barnabas.server.replication.leader_and_isr import IsrChange
from barnabas.server.replication.partition import NOT_DONE, Partition
from barnabas.simulation.disk import SimDisk
from barnabas.storage.errors import InvariantViolationError
from barnabas.storage.log_validator import CLIENT_RULES, AppendRules

NAME = TopicPartition("t", 0)


class Listener:
    """A ReplicaManager that notes the calls of a partition."""

    def __init__(self, *, acks_all_on_disk: bool) -> None:
        self.acks_all_on_disk = acks_all_on_disk
        self.requested = 0
        self.group_commit = SimpleNamespace(request=self.request_flush)
        self.raised: list[int] = []
        self.appends = self.syncs = self.low_watermarks = 0
        self.changes: list[IsrChange] = []

    def request_flush(self, partition: Partition, *, may_linger: bool = False) -> None:
        self.requested += 1

    def try_complete_delayed_requests(self, partition: Partition) -> None:
        self.raised.append(partition.log.high_watermark)

    def complete_fetches_later(self, partition: Partition) -> None:
        self.appends += 1

    def on_follower_flushed(self, partition: Partition) -> None:
        self.syncs += 1

    def submit_isr_change(self, partition: Partition, change: IsrChange) -> None:
        self.changes.append(change)

    def try_complete_delayed_deletes(self, partition: Partition) -> None:
        self.low_watermarks += 1


def leader(*, on_disk: bool = True, replicas: tuple[int, ...] = (1,), **settings: Any) -> Partition:
    disk = SimDisk()
    disk.make_dirs("/data/t-0")
    log = open_log("/data/t-0", fs=disk, **settings)
    partition = Partition(NAME, UUID(int=1), log, cast(Any, Listener(acks_all_on_disk=on_disk)))
    partition.become_leader(next_order(partition, 3, replicas=replicas, isr=replicas))
    return partition


def append(partition: Partition, acks: int, count: int = 1, **options: Any) -> int:
    records = memoryview(bytearray(batch(*[b"v"] * count, **options)))
    return partition.append_records_to_leader(records, AppendRequest(acks, 0, print, CLIENT_RULES)).first_offset


def listener_of(partition: Partition) -> Listener:
    found: Any = partition._replica_manager
    assert isinstance(found, Listener)
    return found


def flush(partition: Partition) -> None:
    """One round of the group commit."""
    task = partition.log.begin_flush()
    task.run()
    partition.on_flushed(partition.log.complete_flush(task))


def test_without_a_promise_the_high_watermark_follows_the_log() -> None:
    partition = leader()
    for number in range(1, 4):
        append(partition, 1 if number % 2 else 0)
        assert partition.log.high_watermark == number
    assert listener_of(partition).raised == [1, 2, 3]
    assert listener_of(partition).requested == 0


def test_what_is_promised_to_be_on_disk_holds_the_high_watermark_down() -> None:
    partition = leader()
    append(partition, 1)
    append(partition, -1, 2)
    append(partition, 1)
    append(partition, -1)
    assert (partition.log.high_watermark, partition.durable_end_offset(), partition.log.log_end_offset) == (1, 1, 5)
    assert partition.check_enough_replicas_reach_offset(1) == (True, ErrorCode.NONE)
    assert partition.check_enough_replicas_reach_offset(3) == (False, ErrorCode.NONE)
    task = partition.log.begin_flush()
    append(partition, -1)
    task.run()
    partition.on_flushed(partition.log.complete_flush(task))
    # What came after the flush had begun is not covered by it.
    assert (partition.log.high_watermark, partition.log.log_end_offset) == (5, 6)
    assert partition.check_enough_replicas_reach_offset(3) == (True, ErrorCode.NONE)
    assert partition.check_enough_replicas_reach_offset(6) == (False, ErrorCode.NONE)
    flush(partition)
    assert partition.log.high_watermark == 6
    assert listener_of(partition).raised == [1, 5, 6]


def test_with_the_page_cache_nothing_is_held_down() -> None:
    partition = leader(on_disk=False)
    append(partition, -1, 3)
    assert (partition.log.high_watermark, listener_of(partition).requested) == (3, 0)
    assert partition.check_enough_replicas_reach_offset(3) == (True, ErrorCode.NONE)


@pytest.mark.parametrize("on_disk", [True, False])
def test_every_so_many_messages_the_disk_is_waited_for(on_disk: bool) -> None:
    """flush.messages: Kafka flushes inside the append that reaches it."""
    partition = leader(flush_messages=3, on_disk=on_disk)
    append(partition, 1, 2)
    assert (partition.log.high_watermark, partition.check_flushed(2)) == (2, (True, ErrorCode.NONE))
    append(partition, 1)
    append(partition, 1, 2)
    assert (partition.log.high_watermark, partition.check_flushed(3), partition.check_flushed(5)) == (
        2,
        NOT_DONE,
        NOT_DONE,
    )
    assert len(partition._barriers) == 1, "it counts from what the flush will cover"
    task = partition.log.begin_flush()
    append(partition, 1)
    task.run()
    partition.on_flushed(partition.log.complete_flush(task))
    assert (partition.log.high_watermark, partition.check_flushed(5)) == (5, (True, ErrorCode.NONE))
    assert partition.check_flushed(6) == (False, ErrorCode.NONE)
    flush(partition)
    assert (partition.log.high_watermark, partition.check_flushed(6)) == (6, (True, ErrorCode.NONE))
    append(partition, 0, 2)
    assert partition.log.high_watermark == 8
    partition.is_offline = True
    assert partition.check_flushed(6) == (True, ErrorCode.KAFKA_STORAGE_ERROR)


def test_a_flush_is_told_where_the_high_watermark_cannot_rise() -> None:
    partition = leader(replicas=(1, 2), flush_messages=1, min_insync_replicas=2)
    partition.in_sync_replicas = (1,)
    append(partition, 1)
    assert partition.check_flushed(1) == (False, ErrorCode.NONE)
    flush(partition)
    assert (partition.log.high_watermark, partition.check_flushed(1)) == (0, (True, ErrorCode.NONE))
    assert listener_of(partition).raised == [0], "whoever waits for the flush looks again"


def test_a_duplicate_raises_no_barrier_of_its_own() -> None:
    partition = leader()
    producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    assert append(partition, -1, **producer) == 0
    flushes = listener_of(partition).requested
    assert append(partition, -1, **producer) == 0
    assert listener_of(partition).requested == flushes + 1
    flush(partition)
    assert append(partition, -1, **producer) == 0
    assert listener_of(partition).requested == flushes + 1
    assert partition.log.high_watermark == 1


def test_an_append_that_is_refused_changes_nothing() -> None:
    partition = leader()
    with pytest.raises(KafkaError):
        partition.append_records_to_leader(memoryview(b"x" * 100), AppendRequest(-1, 0, print, CLIENT_RULES))
    assert (partition.log.log_end_offset, partition.durable_end_offset(), listener_of(partition).requested) == (0, 0, 0)


def test_a_set_without_a_whole_message_raises_no_barrier() -> None:
    partition = leader()
    info = partition.append_records_to_leader(memoryview(bytearray(5)), AppendRequest(-1, 0, print, AppendRules()))
    assert (info.first_offset, partition.durable_end_offset(), listener_of(partition).requested) == (-1, 0, 0)
    append(partition, 1)
    assert partition.log.high_watermark == 1


def test_what_is_in_the_log_already_waits_for_replicas_like_the_first_time() -> None:
    """Who is refused it, and has the next taken, may send it once more under another epoch."""
    partition = leader(min_insync_replicas=2, replicas=(1, 2))
    partition.in_sync_replicas = (1, 2)
    producer = {"producer_id": 1, "producer_epoch": 0}
    assert append(partition, -1, **producer, base_sequence=0) == 0
    partition.in_sync_replicas = (1,)
    assert append(partition, -1, **producer, base_sequence=0) == 0
    for sequence in (1, 2):
        with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
            append(partition, -1, **producer, base_sequence=sequence)
    with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
        partition.append_records_to_leader(memoryview(bytearray(b"x" * 100)), AppendRequest(-1, 0, print, CLIENT_RULES))
    assert partition.log.log_end_offset == 1


def test_too_few_replicas_in_sync() -> None:
    partition = leader(min_insync_replicas=2, replicas=(1, 2))
    partition.in_sync_replicas = (1,)
    with pytest.raises(KafkaError) as caught:
        append(partition, -1)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    append(partition, 1)
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (1, 0)
    partition.replicas = (1,)
    assert partition.min_in_sync_replicas == 1


@pytest.mark.parametrize("replicas", [(1,), (1, 2), (1, 2, 3)])
def test_more_in_sync_replicas_than_there_are_replicas_cannot_be_asked_for(replicas: tuple[int, ...]) -> None:
    partition = leader(min_insync_replicas=5, on_disk=False, replicas=replicas)
    assert partition.min_in_sync_replicas == len(replicas)
    append(partition, -1)
    for fewer in (replicas[:count] for count in range(1, len(replicas))):
        partition.in_sync_replicas = fewer
        with pytest.raises(KafkaError) as refused:
            append(partition, -1)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 1


def test_only_a_newer_leader_epoch_counts() -> None:
    partition = leader()
    append(partition, 1)
    for epoch, partition_epoch in ((2, 9), (3, 0)):
        order = next_order(partition, epoch, partition_epoch=partition_epoch, replicas=(1, 2), isr=(1, 2))
        partition.become_leader(order)
        assert (partition.leader_epoch, partition.partition_epoch, partition.replicas) == (3, 0, (1,))
    partition.become_leader(next_order(partition, 5, replicas=(1,), isr=(1,)))
    append(partition, 1)
    assert partition.end_offset_for_epoch(3) == (3, 1)
    assert partition.end_offset_for_epoch(5) == (5, 2)


def test_fencing_by_epoch() -> None:
    partition = leader()
    for epoch, code in ((2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(KafkaError) as caught:
            partition.check_leader_epoch(epoch)
        assert caught.value.code is code
    partition.check_leader_epoch(3)
    partition.check_leader_epoch(-1)
    partition.is_leader = False
    for epoch in (3, -1):
        with pytest.raises(KafkaError) as caught:
            partition.check_leader_epoch(epoch)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_who_waits_is_told_why_it_will_not_happen() -> None:
    partition = leader()
    append(partition, -1)
    partition.is_leader = False
    assert partition.check_enough_replicas_reach_offset(1) == (True, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    partition.is_offline = True
    assert partition.check_enough_replicas_reach_offset(1) == (True, ErrorCode.KAFKA_STORAGE_ERROR)


@pytest.mark.parametrize("segment_bytes", [1 << 20, 100])
def test_what_a_leader_sends_is_refused_where_it_is_no_batch(segment_bytes: int) -> None:
    """Whatever is in a header there: as an error of the partition, by which others that are followed go on."""
    partition = leader(segment_bytes=segment_bytes)
    partition.become_follower(next_order(partition, 4, leader=2))
    good, bad = batch(b"v"), bytearray(batch(b"w"))
    bad[8:12] = (5).to_bytes(4)
    with pytest.raises(KafkaError) as refused:
        partition.append_records_as_follower(memoryview(bytearray(good + bad)))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_an_isr_outside_of_the_replicas_violates_an_invariant() -> None:
    partition = leader(replicas=(1, 2))
    partition.check_invariants()
    partition.in_sync_replicas = (1, 3)
    with pytest.raises(InvariantViolationError, match=r"ISR \(1, 3\) contains brokers that are not among"):
        partition.check_invariants()


def test_a_high_watermark_outside_of_the_log_violates_an_invariant() -> None:
    partition = leader()
    append(partition, 1, 3)
    with pytest.raises(InvariantViolationError, match="invalid new high watermark 4; log start offset 0"):
        partition.log.update_high_watermark(4)
    partition.log.high_watermark = 5
    with pytest.raises(InvariantViolationError, match="out of order"):
        partition.log.check_invariants()
