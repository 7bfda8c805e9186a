"""The state machine of a share partition, case by case."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.share.record_state import AcquireMode, RecordState
from barnabas.server.share.share_group_settings import ShareGroupSettings
from barnabas.server.share.share_partition import (
    AcquiredRecords,
    FetchedBatch,
    ShareAcknowledgementBatch,
    SharePartition,
)
from barnabas.server.share.state_update import DeadLetterCause, PersisterStateBatch, StateUpdate, merged_batches
from barnabas.storage.transaction_index import AbortedTxn

AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED = 0, 2, 3, 4


class Case:
    """A share partition whose settings may change, with writes that succeed."""

    def __init__(self, *persisted: tuple[int, int, int, int], start: int = 0, **settings: object) -> None:
        self.settings = ShareGroupSettings(**settings)  # type: ignore[arg-type]
        self.share = SharePartition("g", "t-0", 0, lambda: self.settings)
        self.letters = self.share.initialize(3, start, [PersisterStateBatch(*one) for one in persisted])
        self.now = 100.0

    def acquire(
        self,
        *log: tuple[int, int],
        member: str = "m",
        most: int = 500,
        batch_size: int = 500,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        aborted: Sequence[AbortedTxn] = (),
        batches: Sequence[FetchedBatch] = (),
    ) -> list[tuple[int, int, int]]:
        offset = self.share.next_fetch_offset()
        batches = batches or [FetchedBatch(first, last) for first, last in log if last >= offset]
        found: list[AcquiredRecords] = self.share.acquire(
            member,
            mode,
            batch_size=batch_size,
            max_records=most,
            fetch_offset=offset,
            batches=batches,
            now=self.now,
            aborted=aborted,
        )
        self.share.check_invariants()
        return [(first, last, count) for first, last, count in found]

    def acknowledge(self, first: int, last: int, *types: int, member: str = "m") -> StateUpdate:
        update = self.share.acknowledge(member, [ShareAcknowledgementBatch(first, last, types)], self.now)
        self.share.check_invariants()
        return update

    def write(self, update: StateUpdate, *, is_written: bool = True) -> list[tuple[int, int, int, int]]:
        self.letters = self.share.complete(update, is_written=is_written)
        self.share.check_invariants()
        return [(first, last, state, count) for first, last, state, count in merged_batches([update])]

    def expire(self, seconds: float) -> StateUpdate:
        self.now += seconds
        update = self.share.expire_locks(self.now)
        self.share.check_invariants()
        return update


def test_acquired_batches_end_with_batches_of_the_log() -> None:
    case = Case()
    log = [(0, 9), (10, 19), (20, 29)]
    assert case.acquire(*log, most=5) == [(0, 9, 1)]
    assert case.acquire(*log, most=11, batch_size=10) == [(10, 19, 1), (20, 29, 1)]
    assert case.share.next_fetch_offset() == 30


def test_the_record_limit_mode_never_exceeds_the_limit() -> None:
    case = Case()
    assert case.acquire((0, 9), most=4, mode=AcquireMode.RECORD_LIMIT) == [(0, 3, 1)]
    assert case.acquire((0, 9), most=4, mode=AcquireMode.RECORD_LIMIT) == [(4, 7, 1)]
    case.write(case.acknowledge(0, 7, 2))
    assert case.acquire((0, 9), most=3, mode=AcquireMode.RECORD_LIMIT) == [(0, 2, 2)]


def test_a_huge_batch_does_not_exceed_the_limit_of_locks() -> None:
    case = Case(partition_max_record_locks=100)
    assert case.acquire((0, 999_999), most=10) == [(0, 99, 1)]
    assert not case.share.can_acquire_records()
    assert case.acquire((0, 999_999), most=10) == []


def test_acknowledgements_move_the_start_offset_over_finished_records_only() -> None:
    case = Case()
    case.acquire((0, 9))
    assert case.write(case.acknowledge(5, 9, 1)) == [(5, 9, ACKNOWLEDGED, 1)]
    assert (case.share.start_offset, case.share.delivery_complete_count) == (0, 5)
    update = case.acknowledge(0, 4, 1, 1, 0, 3, 2)
    assert case.share.start_offset == 0
    assert case.write(update) == [(0, 1, ACKNOWLEDGED, 1), (2, 3, ARCHIVED, 1), (4, 4, AVAILABLE, 1)]
    assert (case.share.start_offset, case.share.delivery_complete_count) == (4, 5)
    assert case.acquire((0, 9)) == [(4, 4, 2)]
    case.write(case.acknowledge(0, 4, 1))
    assert (case.share.start_offset, case.share.end_offset, case.share.num_in_flight_records) == (10, 10, 0)


@pytest.mark.parametrize(
    ("first", "last", "types", "member", "code"),
    [
        (0, 9, (1,), "other", ErrorCode.INVALID_RECORD_STATE),
        (0, 10, (1,), "m", ErrorCode.INVALID_REQUEST),
        (0, 9, (1, 1), "m", ErrorCode.INVALID_REQUEST),
        (0, 9, (7,), "m", ErrorCode.INVALID_REQUEST),
        (9, 0, (1,), "m", ErrorCode.INVALID_REQUEST),
        (0, 9, (), "m", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_refused_acknowledgement_changes_nothing(
    first: int, last: int, types: tuple[int, ...], member: str, code: ErrorCode
) -> None:
    case = Case()
    case.acquire((0, 9))
    with pytest.raises(KafkaError) as caught:
        case.acknowledge(first, last, *types, member=member)
    assert caught.value.code is code
    assert case.write(case.acknowledge(0, 9, 1)) == [(0, 9, ACKNOWLEDGED, 1)]


def test_a_request_is_refused_as_a_whole() -> None:
    case = Case()
    case.acquire((0, 9))
    batches = [ShareAcknowledgementBatch(0, 4, (1,)), ShareAcknowledgementBatch(4, 9, (1,))]
    with pytest.raises(KafkaError):
        case.share.acknowledge("m", batches, case.now)
    case.share.check_invariants()
    assert case.share.delivery_complete_count == 0
    assert case.write(case.acknowledge(0, 9, 1)) == [(0, 9, ACKNOWLEDGED, 1)]


def test_a_failed_write_returns_the_records_to_their_owner_unless_the_lock_has_expired() -> None:
    case = Case(record_lock_duration_ms=1000)
    case.acquire((0, 1))
    update = case.acknowledge(0, 0, 1)
    assert case.acquire((0, 1)) == []
    case.write(update, is_written=False)
    assert case.share.delivery_complete_count == 0
    update = case.acknowledge(0, 0, 1)
    assert [tuple(one) for one in merged_batches([case.expire(1.0)])] == [(1, 1, AVAILABLE, 1)]
    case.write(update, is_written=False)
    assert [tuple(one) for one in merged_batches([case.expire(0.0)])] == [(0, 0, AVAILABLE, 1)]


def test_renewed_locks_expire_later() -> None:
    case = Case(record_lock_duration_ms=1000)
    case.acquire((0, 3))
    case.now += 0.6
    assert not case.acknowledge(1, 2, 4)
    assert [tuple(one) for one in merged_batches([case.expire(0.4)])] == [(0, 0, AVAILABLE, 1), (3, 3, AVAILABLE, 1)]
    assert case.share.next_lock_deadline() == pytest.approx(case.now + 0.6)
    case.settings = case.settings._replace(renew_acknowledge_enable=False)
    with pytest.raises(KafkaError):
        case.acknowledge(1, 1, 4)


def test_records_that_may_fail_their_members_are_delivered_in_smaller_portions() -> None:
    case = Case(delivery_count_limit=5)
    log = [(0, 99)]
    delivered = []
    for _ in range(12):
        found = case.acquire(*log)
        delivered.append((sum(last - first + 1 for first, last, _ in found), found[0][2]))
        case.write(case.share.release_acquired_records("m"))
    # Whole batches three times, then halves and quarters, and each record alone for its last delivery.
    assert delivered[:3] == [(100, 1), (100, 2), (100, 3)]
    assert delivered[3] == (50, 4)
    assert (1, 5) in delivered[4:]


@pytest.mark.parametrize("queue", ["", "dlq.q"])
def test_records_at_the_delivery_limit_are_archived(queue: str) -> None:
    case = Case(delivery_count_limit=2, dlq_topic_name=queue)
    case.acquire((0, 0), (1, 1))
    case.write(case.share.release_acquired_records("m"))
    assert case.acquire((0, 0), (1, 1)) == [(0, 1, 2)]
    final = ARCHIVING if queue else ARCHIVED
    assert case.write(case.share.release_acquired_records("m")) == [(0, 1, final, 2)]
    causes = [letters.cause for letters in case.letters]
    assert causes == ([DeadLetterCause.DELIVERY_COUNT_EXCEEDED] if queue else [])
    for letters in case.letters:
        case.write(case.share.archive(letters))
    assert case.share.start_offset == 2


def test_the_persisted_state_is_loaded_and_its_gaps_are_delivered() -> None:
    case = Case((2, 3, ACKNOWLEDGED, 1), (6, 7, AVAILABLE, 2), (8, 8, ARCHIVING, 3), start=0, dlq_topic_name="dlq.q")
    assert (case.share.start_offset, case.share.end_offset, case.share.delivery_complete_count) == (0, 8, 2)
    assert [(one.first_offset, one.delivery_count) for one in case.letters] == [(8, 3)]
    assert case.acquire((0, 4), (5, 9)) == [(0, 1, 1), (4, 5, 1), (6, 7, 3), (9, 9, 1)]


@pytest.mark.parametrize("batches", [[(0, 3, 2, 1), (3, 4, 2, 1)], [(4, 3, 2, 1)], [(0, 1, 9, 1)]])
def test_a_contradictory_persisted_state_is_refused(batches: list[tuple[int, int, int, int]]) -> None:
    with pytest.raises(KafkaError):
        Case(*batches)


def test_offsets_without_records_are_passed_over() -> None:
    case = Case()
    case.acquire((0, 9))
    case.write(case.acknowledge(0, 9, 2))
    # Compaction has removed the first batch; the offsets of later holes are part of no batch.
    assert case.acquire(batches=[FetchedBatch(20, 24)]) == [(20, 24, 1)]
    assert case.share.start_offset == 20
    case.acquire(batches=[FetchedBatch(30, 31)])
    case.write(case.acknowledge(20, 24, 1))
    assert case.share.start_offset == 30


def test_the_log_start_offset_removes_records_in_any_state() -> None:
    case = Case()
    case.acquire((0, 4), (5, 9), batch_size=5)
    pending = case.acknowledge(2, 6, 1)
    case.share.update_cache_and_offsets(4)
    case.share.check_invariants()
    assert (case.share.start_offset, case.share.delivery_complete_count) == (4, 3)
    case.write(pending, is_written=False)
    assert case.share.delivery_complete_count == 0
    case.share.update_cache_and_offsets(50)
    case.share.check_invariants()
    assert case.acquire((50, 51)) == [(50, 51, 1)]


def test_aborted_transactions_are_archived_when_they_are_acquired() -> None:
    case = Case()
    batches = [
        FetchedBatch(0, 1),
        FetchedBatch(2, 4, 7, is_transactional=True),
        FetchedBatch(5, 5, 7, is_transactional=True, is_control=True, is_abort_marker=True),
        FetchedBatch(6, 7, 7, is_transactional=True),
    ]
    aborted = [AbortedTxn(7, 2, 5, 2)]
    assert case.acquire(batches=batches, aborted=aborted) == [(0, 1, 1), (5, 7, 1)]
    assert case.share.delivery_complete_count == 3
    only = Case()
    assert only.acquire(batches=batches[1:2], aborted=aborted) == []
    assert only.share.start_offset == 5


def test_the_heap_of_locks_stays_small() -> None:
    case = Case()
    for offset in range(3000):
        case.acquire((offset, offset))
        case.write(case.acknowledge(offset, offset, 1))
    assert len(case.share._locks) < 200
    assert RecordState(ACKNOWLEDGED).is_terminal
