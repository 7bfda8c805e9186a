"""How offset ranges become tasks, and how much a micro-batch takes."""

import random

from tests.cases import in_one_test

from barnabas.arrow.offset_range import OffsetRange
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark.admission import TriggerDelay, admit
from barnabas.spark.offset_ranges import TaskSizes, plan_tasks
from barnabas.spark.options import RateLimits

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def ranges(*sizes: int, bytes_per_record: float = 100.0) -> list[OffsetRange]:
    return [
        OffsetRange(TopicPartition("t", i), 10, 10 + size, bytes_per_record=bytes_per_record)
        for i, size in enumerate(sizes)
    ]


def test_small_partitions_share_a_task() -> None:
    tasks = plan_tasks(ranges(*[10] * 32), TaskSizes())
    assert len(tasks) == 1 and len(tasks[0]) == 32


def test_large_partitions_are_split_by_records_and_by_bytes() -> None:
    assert len(plan_tasks(ranges(500_000), TaskSizes())) == 2
    assert len(plan_tasks(ranges(5_000_000), TaskSizes())) == 4
    assert len(plan_tasks(ranges(50_000_000), TaskSizes())) == 25
    assert len(plan_tasks(ranges(10_000, bytes_per_record=1_000_000), TaskSizes())) == 38


def test_min_partitions_splits_by_size() -> None:
    tasks = plan_tasks(ranges(900, 100), TaskSizes(min_partitions=10))
    assert len(tasks) >= 10
    assert sum(piece.partition.partition == 0 for task in tasks for piece in task) == 9


def test_max_records_bounds_every_task() -> None:
    tasks = plan_tasks(ranges(1000, 5, 5, 3), TaskSizes(max_records=100))
    assert max(sum(piece.records for piece in task) for task in tasks) <= 100


@in_one_test("seed", range(20))
def test_every_offset_is_read_once(seed: int) -> None:
    chance = random.Random(seed)
    wanted = ranges(*[chance.choice([0, 1, 7, 10_000, 3_000_000]) for _ in range(10)])
    sizes = TaskSizes(chance.choice([None, 1, 5, 50]), chance.choice([None, 1000, 100_000]))
    tasks = plan_tasks(wanted, sizes)
    for r in wanted:
        pieces = sorted((p.start, p.end) for task in tasks for p in task if p.partition == r.partition)
        at = r.start
        for start, end in pieces:
            assert start == at < end
            at = end
        assert at == r.end


def test_a_rate_is_shared_by_what_waits() -> None:
    got = admit({A: 0, B: 100}, {A: 900, B: 200}, RateLimits(max_offsets=100), {})
    assert got == {A: 90, B: 110}


def test_a_rate_leaves_no_partition_standing() -> None:
    assert admit({A: 0, B: 0}, {A: 1_000_000, B: 1}, RateLimits(max_offsets=10), {}) == {A: 9, B: 1}


def test_bytes_bound_a_batch_by_the_average_record() -> None:
    assert admit({A: 0}, {A: 1000}, RateLimits(max_bytes=5000), {A: 50.0}) == {A: 100}
    assert admit({A: 0}, {A: 1000}, RateLimits(max_bytes=5000, max_offsets=10), {A: 50.0}) == {A: 10}


def test_records_of_unknown_size_are_as_large_as_the_others() -> None:
    assert admit({A: 0, B: 0}, {A: 1000, B: 1000}, RateLimits(max_bytes=10_000), {A: 50.0}) == {A: 100, B: 100}


def test_too_few_offsets_wait_for_the_delay() -> None:
    trigger_delay = TriggerDelay(RateLimits(min_offsets=100, max_delay_ms=1000))
    assert trigger_delay.is_worth_it(1, now_ms=10_000_000)
    assert not trigger_delay.is_worth_it(99, now_ms=10_000_999)
    assert trigger_delay.is_worth_it(100, now_ms=10_000_999)
    assert trigger_delay.is_worth_it(1, now_ms=10_001_999)
