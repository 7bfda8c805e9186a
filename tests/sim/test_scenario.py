"""Whole brokers under seeded faults: nothing acknowledged is lost, doubled or reordered; and the harness proves itself.

A failing seed names the command that replays it: `python -m soak.sim --seed N`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from soak.sim.scenario import play
from tests.nightly import mark_rest_nightly

from barnabas.protocol.errors import ErrorCode
from barnabas.server.replication.partition import Partition
from barnabas.storage.log import Log
from barnabas.storage.log_values import LogAppendInfo
from barnabas.storage.producer_state import ProducedBatch, ProducerStateManager
from barnabas.storage.unsynced_files import FlushTask

FEW = range(8)
MANY = range(1000, 1150)


@pytest.mark.parametrize("seed", FEW)
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    outcome = play(seed)
    assert not outcome.violations, outcome.explain()
    assert outcome.acknowledged > 0


@pytest.mark.parametrize("seed", range(3))
def test_the_page_cache_survives_everything_but_power_loss(seed: int) -> None:
    outcome = play(seed, durability="page-cache")
    assert not outcome.violations, outcome.explain()


def test_a_seed_replays_exactly() -> None:
    first, again, other = play(5), play(5), play(6)
    assert first.digest == again.digest
    assert first.digest != other.digest


@pytest.mark.verify
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", mark_rest_nightly(range(MANY.start, MANY.stop, 10), 6))
def test_nothing_acknowledged_is_lost_in_many_worlds(first: int) -> None:
    for seed in range(first, first + 10):
        outcome = play(seed)
        assert not outcome.violations, outcome.explain()


# -- the harness proves itself: each planted bug is found within a bounded number of seeds ---------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def acknowledge_before_the_disk(patch: pytest.MonkeyPatch) -> None:
    def check_enough_replicas_reach_offset(self: Partition, required_offset: int) -> tuple[bool, ErrorCode]:
        return self.log.log_end_offset >= required_offset, ErrorCode.NONE

    patch.setattr(Partition, "check_enough_replicas_reach_offset", check_enough_replicas_reach_offset)


def show_readers_what_is_not_on_disk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "read_bound", lambda self, *, read_committed: self.log.log_end_offset)


def flush_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlushTask, "sync", lambda self: None)


def forget_the_window_of_batches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStateManager, "check", lambda self, header, *, is_client: None)


def forget_producers_at_restart(patch: pytest.MonkeyPatch) -> None:
    original = ProducerStateManager._load_from_snapshot

    def load(self: ProducerStateManager, log_start_offset: int, now_ms: int) -> None:
        original(self, log_start_offset, now_ms)
        self.producers.clear()

    patch.setattr(ProducerStateManager, "_load_from_snapshot", load)


def acknowledge_before_the_append(patch: pytest.MonkeyPatch) -> None:
    original = Log.append_as_leader
    count = 0

    def append(self: Log, records: memoryview, **arguments: Any) -> object:
        nonlocal count
        count += 1
        info = original(self, records, **arguments)  # type: ignore[arg-type]
        if count % 50 == 0 and not info.duplicate:
            self.truncate_to(info.first_offset)
        return info

    patch.setattr(Log, "append_as_leader", append)
    patch.setattr(Partition, "check_enough_replicas_reach_offset", lambda self, required_offset: (True, ErrorCode.NONE))


def give_offsets_twice(patch: pytest.MonkeyPatch) -> None:
    original = Log.append_as_leader
    count = 0

    def append(self: Log, records: memoryview, **arguments: Any) -> object:
        nonlocal count
        count += 1
        if count % 40 == 0:
            self.log_end_offset += 1
        return original(self, records, **arguments)  # type: ignore[arg-type]

    patch.setattr(Log, "append_as_leader", append)


def answer_duplicates_with_new_offsets(patch: pytest.MonkeyPatch) -> None:
    original = Log._duplicate_info

    def info(self: Log, batch: ProducedBatch) -> LogAppendInfo:
        answer = original(self, batch)
        return answer._replace(first_offset=answer.first_offset + 1)

    patch.setattr(Log, "_duplicate_info", info)


def count_a_flush_for_what_came_after_it_began(patch: pytest.MonkeyPatch) -> None:
    original = Partition.on_flushed
    patch.setattr(Partition, "on_flushed", lambda self, _: original(self, self.log.log_end_offset))


def sync_files_but_not_their_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlushTask, "sync_names", lambda self: None)


POWER = frozenset({"power", "slow_disk"})
RETRIES = frozenset({"reset", "kill", "produce-answer-lost"})

MUTANTS: dict[Plant, frozenset[str]] = {
    acknowledge_before_the_disk: POWER,
    show_readers_what_is_not_on_disk: POWER,
    flush_nothing: POWER,
    count_a_flush_for_what_came_after_it_began: POWER,
    sync_files_but_not_their_names: POWER,
    forget_the_window_of_batches: RETRIES,
    forget_producers_at_restart: RETRIES | {"stop"},
    answer_duplicates_with_new_offsets: RETRIES,
    acknowledge_before_the_append: frozenset(),
    give_offsets_twice: frozenset(),
}
"""Each planted bug with the faults that bring it to light."""
SEEDS_PER_MUTANT = 80


@pytest.mark.verify
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(play(seed, faults=MUTANTS[plant]).violations for seed in range(SEEDS_PER_MUTANT)), "no seed found it"
