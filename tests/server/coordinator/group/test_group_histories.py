"""Seeds of the groups' life, and bugs planted into the coordinator that those seeds must bring to light."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from soak.groups import __main__ as command
from soak.groups.group_history import History
from soak.groups.group_life import play_seed
from tests.nightly import mark_rest_nightly

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_batch import Batch
from barnabas.server.coordinator.compacted_records import CompactedRecords
from barnabas.server.coordinator.coordinator_log import CoordinatorLog
from barnabas.server.coordinator.group import classic_group as classic
from barnabas.server.coordinator.group import classic_group_manager
from barnabas.server.coordinator.group.classic_group import (
    COMMIT_ERRORS,
    HEARTBEAT_ERRORS,
    ClassicGroup,
    ClassicGroupState,
    SyncRequest,
)
from barnabas.server.coordinator.group.classic_group_manager import ClassicGroupManager, DelayedJoin
from barnabas.server.coordinator.group.member_timers import MemberTimers
from barnabas.server.replication.delayed_produce import DelayedProduce


def play_seeds(seeds: range) -> int:
    """How many rebalances these seeds had."""
    rebalances = 0
    for seed in seeds:
        try:
            rebalances += len(play_seed(seed).generations)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    return rebalances


@pytest.mark.parametrize("first", range(0, 18, 6))
def test_groups_come_through_whatever_happens(first: int) -> None:
    assert play_seeds(range(first, first + 6)) > 100


@pytest.mark.verify
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", mark_rest_nightly(range(1000, 1200, 50), 1))
def test_groups_come_through_whatever_happens_at_length(first: int) -> None:
    assert play_seeds(range(first, first + 50)) > 1000


# -- the histories prove themselves: each planted bug is found within a bounded number of seeds ----------------------

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


def nothing(*_: Any, **__: Any) -> None:
    return None


def commits_without_a_look_at_the_generation(patch: Patch) -> None:
    def validate_offset_commit(
        group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, _: int
    ) -> ErrorCode:
        if group.state is ClassicGroupState.EMPTY and generation < 0:
            return ErrorCode.NONE
        return group.check_member(member_id, instance_id) or COMMIT_ERRORS[group.state]

    patch.setattr(ClassicGroup, "validate_offset_commit", validate_offset_commit)


def syncs_without_a_look_at_the_generation(patch: Patch) -> None:
    check = ClassicGroup.check_sync

    def check_sync(group: ClassicGroup, syncing: SyncRequest) -> ErrorCode:
        error = check(group, syncing)
        return ErrorCode.NONE if error is ErrorCode.ILLEGAL_GENERATION else error

    patch.setattr(ClassicGroup, "check_sync", check_sync)


def heartbeats_that_do_not_prolong_the_session(patch: Patch) -> None:
    patch.setattr(ClassicGroupManager, "extend_session", nothing)


def heartbeats_that_keep_a_rebalance_to_themselves(patch: Patch) -> None:
    answers = {**HEARTBEAT_ERRORS, ClassicGroupState.PREPARING_REBALANCE: ErrorCode.NONE}
    patch.setattr(classic_group_manager, "HEARTBEAT_ERRORS", answers)


def ids_given_out_for_ever(patch: Patch) -> None:
    patch.setattr(ClassicGroupManager, "_remove_pending_member", nothing)


def a_rebalance_that_ends_with_the_first_to_join(patch: Patch) -> None:
    patch.setattr(DelayedJoin, "try_complete", lambda self: self._group.awaiting_join > 0 and self.force_complete())


def members_removed_without_a_rebalance(patch: Patch) -> None:
    def remove(self: ClassicGroupManager, group: ClassicGroup, member_id: str, reason: str) -> None:
        self._sessions.end(group, member_id)
        group.remove(member_id)

    patch.setattr(ClassicGroupManager, "_remove_member_and_rebalance", remove)


def members_that_never_expire(patch: Patch) -> None:
    patch.setattr(ClassicGroupManager, "_expire_member_heartbeat", nothing)


def members_loaded_without_a_session(patch: Patch) -> None:
    patch.setattr(ClassicGroupManager, "on_group_loaded", nothing)


def sessions_shorter_than_promised(patch: Patch) -> None:
    restart = MemberTimers.restart
    patch.setattr(
        MemberTimers, "restart", lambda self, group, name, timeout_ms: restart(self, group, name, timeout_ms // 4)
    )


def answers_before_the_disk(patch: Patch) -> None:
    patch.setattr(DelayedProduce, "try_complete_for", lambda self, _: self.force_complete())


def deleted_offsets_that_come_back_at_load(patch: Patch) -> None:
    take: Any = CompactedRecords.take

    async def take_without_tombstones(self: CompactedRecords, batch: Batch) -> None:
        before = dict(self._latest)
        await take(self, batch)
        self._latest = before | self._latest

    patch.setattr(CompactedRecords, "take", take_without_tombstones)


def older_records_that_win_at_load(patch: Patch) -> None:
    take: Any = CompactedRecords.take

    async def take_the_first(self: CompactedRecords, batch: Batch) -> None:
        before = dict(self._latest)
        await take(self, batch)
        self._latest.update(before)

    patch.setattr(CompactedRecords, "take", take_the_first)


def deletions_that_leave_the_offsets_in_the_log(patch: Patch) -> None:
    append = CoordinatorLog.append

    def append_no_tombstones(self: CoordinatorLog, index: int, entries: Any, *rest: Any, **named: Any) -> None:
        append(self, index, [entry for entry in entries if entry[1] is not None], *rest, **named)

    patch.setattr(CoordinatorLog, "append", append_no_tombstones)


def static_members_that_are_not_fenced(patch: Patch) -> None:
    def check_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
        is_known = instance_id in group._static or member_id in group.members
        return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID

    patch.setattr(ClassicGroup, "check_member", check_member)


def assignments_kept_from_an_older_generation(patch: Patch) -> None:
    def assign(group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        for member_id, member in group.members.items():
            member.assignment = member.assignment or assignments.get(member_id, b"")

    patch.setattr(ClassicGroup, "assign", assign)


def commits_taken_from_strangers(patch: Patch) -> None:
    patch.setattr(classic, "COMMIT_ERRORS", dict.fromkeys(ClassicGroupState, ErrorCode.NONE))
    validate_offset_commit = ClassicGroup.validate_offset_commit

    def check(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, version: int) -> ErrorCode:
        error = validate_offset_commit(group, member_id, instance_id, generation, version)
        return ErrorCode.NONE if error is ErrorCode.UNKNOWN_MEMBER_ID else error

    patch.setattr(ClassicGroup, "validate_offset_commit", check)


PLANTED: list[Plant] = [
    commits_without_a_look_at_the_generation,
    syncs_without_a_look_at_the_generation,
    heartbeats_that_do_not_prolong_the_session,
    heartbeats_that_keep_a_rebalance_to_themselves,
    ids_given_out_for_ever,
    a_rebalance_that_ends_with_the_first_to_join,
    members_removed_without_a_rebalance,
    members_that_never_expire,
    members_loaded_without_a_session,
    sessions_shorter_than_promised,
    answers_before_the_disk,
    deleted_offsets_that_come_back_at_load,
    older_records_that_win_at_load,
    deletions_that_leave_the_offsets_in_the_log,
    static_members_that_are_not_fenced,
    assignments_kept_from_an_older_generation,
    commits_taken_from_strangers,
]
SEEDS_PER_BUG = 120


@pytest.mark.verify
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play_seeds(range(SEEDS_PER_BUG))


def test_the_command_names_the_seed_that_fails(monkeypatch: Patch, capsys: pytest.CaptureFixture[str]) -> None:
    def play(seed: int) -> History:
        assert seed != 12, "two owners"
        return History(generations={(1, number) for number in range(10)})

    monkeypatch.setattr(command, "play_seed", play)  # the processes are forks of this one
    monkeypatch.setattr("sys.argv", ["", "--first", "10", "--rebalances", "50"])
    assert command.main() == 1
    first, *_, replay, last = capsys.readouterr().out.splitlines()
    assert first == "seed 12: AssertionError: two owners"
    assert replay == "   replay: python -m soak.groups --seed 12"
    assert last.startswith("50 rebalances in 6 seeds, 1 failed, ") and last.endswith("; next: --first 16")
