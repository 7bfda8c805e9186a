"""Planted bugs of share groups, which the simulation must find.

`python -m soak.sim.share_groups.mutants` plants each bug and prints the number of seeds until the bug is found.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from soak.sim.planted import Patch, PlantedBug, print_table
from soak.sim.share_groups.plan import SharePlan
from soak.sim.share_groups.scenario import play

from barnabas.clients.share.share_in_flight_batch import ShareRecord
from barnabas.clients.share_consumer import ShareConsumer
from barnabas.protocol.errors import ErrorCode
from barnabas.server.coordinator.coordinator_log import CoordinatorLog
from barnabas.server.coordinator.share.persister_state_batch_combiner import PersisterStateBatch
from barnabas.server.coordinator.share.share_coordinator import ShareCoordinator
from barnabas.server.coordinator.share.share_coordinator_shard import OperationError, ShareCoordinatorShard
from barnabas.server.runtime.loop_sharing import Steps
from barnabas.server.share import share_partition
from barnabas.server.share.in_flight_batch import InFlightState
from barnabas.server.share.managed_share_partition import ManagedSharePartition, WriteCallback
from barnabas.server.share.record_state import AcknowledgementType, RecordState
from barnabas.server.share.share_partition import DeadLetters, SharePartition
from barnabas.server.share.share_partition_manager import SharePartitionManager
from barnabas.server.share.state_update import StateUpdate

MAX_SEEDS = 200


# -- owners --------------------------------------------------------------------------------------------------------


def release_the_records_of_all_members(patch: Patch) -> None:
    """Release the records of other members too when a session ends."""

    def release_acquired_records(self: SharePartition, member_id: str) -> StateUpdate:
        update = StateUpdate()
        for batch in self._batches:
            for state in batch.states:
                if state.state is RecordState.ACQUIRED:
                    self._start_state_transition(update, self._settings(), state, RecordState.AVAILABLE, None)
        return update

    patch.setattr(SharePartition, "release_acquired_records", release_acquired_records)


def expire_locks_early(patch: Patch) -> None:
    original = SharePartition.expire_locks
    patch.setattr(SharePartition, "expire_locks", lambda self, now: original(self, now + 0.5))


def renew_no_locks(patch: Patch) -> None:
    """Respond to a renewal without an error, but let the lock expire at its former time."""
    original = SharePartition._acknowledge_offsets

    def acknowledge_offsets(self: SharePartition, update: Any, settings: Any, member_id: str, *rest: Any) -> None:
        if rest[2] != AcknowledgementType.RENEW:
            original(self, update, settings, member_id, *rest)

    patch.setattr(SharePartition, "_acknowledge_offsets", acknowledge_offsets)


def never_expire_locks(patch: Patch) -> None:
    patch.setattr(ManagedSharePartition, "set_timer", lambda self: None)


# -- durable states ------------------------------------------------------------------------------------------------


def answer_before_the_write(patch: Patch) -> None:
    """Respond to an acknowledgement before the share coordinator has written it."""
    original = ManagedSharePartition.submit

    def submit(self: ManagedSharePartition, update: StateUpdate, done: WriteCallback) -> None:
        original(self, update, lambda error: None)
        done(None)

    patch.setattr(ManagedSharePartition, "submit", submit)


def answer_before_the_commit(patch: Patch) -> None:
    """Respond to a write of the share coordinator before its followers have the write."""
    original = ShareCoordinator._append

    def append(self: ShareCoordinator, shard: Any, records: Any, encoded: Any, done: Any) -> None:
        original(self, shard, records, encoded, lambda _: None)
        done(ErrorCode.NONE)

    patch.setattr(ShareCoordinator, "_append", append)


def lose_records_when_loading(patch: Patch) -> None:
    """Skip every tenth record when the share coordinator loads its log."""
    original = CoordinatorLog.replay

    async def replay(self: CoordinatorLog, partition: Any, take: Any) -> None:
        if "share" not in partition.topic_partition.topic:
            await original(self, partition, take)
            return
        numbers = itertools.count(1)
        await original(self, partition, lambda *record: take(*record) if next(numbers) % 10 else None)

    patch.setattr(CoordinatorLog, "replay", replay)


def prune_up_to_the_newest_snapshot(patch: Patch) -> None:
    def last_redundant_offset(self: ShareCoordinatorShard) -> Steps[int]:
        return max((entry.snapshot_offset for entry in self.entries.values()), default=0)
        yield

    patch.setattr(ShareCoordinatorShard, "last_redundant_offset", last_redundant_offset)


def accept_writes_of_former_leaders(patch: Patch) -> None:
    original = ShareCoordinatorShard._validate_write

    def validate_write(self: ShareCoordinatorShard, key: Any, data: Any) -> OperationError | None:
        error = original(self, key, data)
        return None if error is not None and error.code is ErrorCode.FENCED_LEADER_EPOCH else error

    patch.setattr(ShareCoordinatorShard, "_validate_write", validate_write)


def write_the_end_as_the_start_offset(patch: Patch) -> None:
    """Let the next leader begin after records that are not acknowledged."""
    original = ManagedSharePartition._write

    async def write(self: ManagedSharePartition, state_epoch: int, start: int, *rest: Any) -> Any:
        return await original(self, state_epoch, max(start, self.share.next_new_offset), *rest)

    patch.setattr(ManagedSharePartition, "_write", write)


# -- records -------------------------------------------------------------------------------------------------------


def lose_released_records(patch: Patch) -> None:
    states = share_partition._STATE_OF_TYPE | {AcknowledgementType.RELEASE: RecordState.ARCHIVED}
    patch.setattr(share_partition, "_STATE_OF_TYPE", states)


def forget_acquired_records_when_loading(patch: Patch) -> None:
    """Do not deliver records again that a former leader has delivered without an acknowledgement."""

    def add_unread(self: SharePartition, first_offset: int, last_offset: int) -> None:
        state = InFlightState(first_offset, last_offset, RecordState.ARCHIVED, 0)
        self._batches.append(share_partition.InFlightBatch(state))
        self.delivery_complete_count += len(state)

    patch.setattr(SharePartition, "_add_unread", add_unread)


def forget_delivery_counts_when_loading(patch: Patch) -> None:
    original = SharePartition.initialize

    def initialize(
        self: SharePartition, state_epoch: int, start_offset: int, batches: Iterable[PersisterStateBatch]
    ) -> list[DeadLetters]:
        return original(self, state_epoch, start_offset, [one._replace(delivery_count=0) for one in batches])

    patch.setattr(SharePartition, "initialize", initialize)


def count_releases_back(patch: Patch) -> None:
    """Restore the delivery count before the delivery when a record is released."""
    original = SharePartition._change_state

    def change_state(self: SharePartition, update: Any, settings: Any, state: InFlightState, *rest: Any) -> None:
        if rest[0] is RecordState.AVAILABLE:
            state.delivery_count -= 1
        original(self, update, settings, state, *rest)

    patch.setattr(SharePartition, "_change_state", change_state)


def ignore_the_delivery_count_limit(patch: Patch) -> None:
    original = SharePartition._change_state

    def change_state(self: SharePartition, update: Any, settings: Any, *rest: Any) -> None:
        original(self, update, settings._replace(delivery_count_limit=100), *rest)

    patch.setattr(SharePartition, "_change_state", change_state)


def keep_sessions_of_closed_connections(patch: Patch) -> None:
    """Keep the records of dead members acquired. Their locks do not expire either."""
    patch.setattr(SharePartitionManager, "_release", lambda self, session: None)
    never_expire_locks(patch)


# -- clients -------------------------------------------------------------------------------------------------------


def accept_records_that_are_not_returned(patch: Patch) -> None:
    """Return one of several records to the application, but accept all of them."""
    original = ShareConsumer._take

    def take(self: ShareConsumer, max_records: int) -> list[ShareRecord]:
        taken = original(self, max_records)
        for record in taken[1:]:
            record.accept()
        return taken[:1]

    patch.setattr(ShareConsumer, "_take", take)


@dataclass(frozen=True, slots=True)
class ShareMutant(PlantedBug):
    """A planted bug, with the changes of the plan that reveal the bug."""

    changes: dict[str, Any] = field(default_factory=dict)
    brokers: int | None = None
    settings: dict[str, str] = field(default_factory=dict)

    def violations(self, seed: int) -> list[str]:
        plan = SharePlan.draw(seed, quick=True, brokers=self.brokers).with_faults(self.faults, **self.changes)
        return play(replace(plan, settings=plan.settings | self.settings)).violations


NONE = frozenset[str]()
DEATHS = frozenset({"strike a leader", "strike a coordinator", "kill"})
POWER = DEATHS | {"power", "slow disk"}
CONSUMERS = frozenset({"kill a consumer", "pause a consumer"})
STALE = frozenset({"cut from zookeeper", "kill a consumer", "pause a consumer"})
FORGET: dict[str, Any] = {"forget_chance": 0.1, "delivery_count_limit": 8}
RELEASE: dict[str, Any] = {"release_chance": 0.3, "delivery_count_limit": 8}
RENEW: dict[str, Any] = {"renew_chance": 0.5, "processing": 1.0}

SHARE_MUTANTS = (
    ShareMutant(release_the_records_of_all_members, "KIP-932", CONSUMERS),
    ShareMutant(expire_locks_early, "KIP-932", CONSUMERS, FORGET),
    ShareMutant(renew_no_locks, "KIP-1222", NONE, RENEW),
    ShareMutant(never_expire_locks, "KIP-932", NONE, FORGET),
    ShareMutant(answer_before_the_write, "KIP-932", DEATHS),
    ShareMutant(answer_before_the_commit, "Jepsen 2013", POWER),
    ShareMutant(lose_records_when_loading, "KAFKA-8069", DEATHS),
    ShareMutant(
        prune_up_to_the_newest_snapshot,
        "KIP-932",
        DEATHS,
        {"partitions": 3, "seconds": 4.0},
        settings={
            "share.coordinator.snapshot.update.records.per.snapshot": "5",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.prune.interval.ms": "200",
        },
    ),
    ShareMutant(
        accept_writes_of_former_leaders,
        "KIP-932",
        STALE,
        {"downtime": 4.0, "seconds": 6.0, "members": 4, "processing": 1.0},
        brokers=3,
        settings={"zookeeper.session.timeout.ms": "500"},
    ),
    ShareMutant(write_the_end_as_the_start_offset, "KIP-932", DEATHS),
    ShareMutant(lose_released_records, "KIP-932", NONE, RELEASE),
    ShareMutant(forget_acquired_records_when_loading, "KIP-932", DEATHS, FORGET),
    ShareMutant(forget_delivery_counts_when_loading, "KIP-932", DEATHS, RELEASE),
    ShareMutant(count_releases_back, "KIP-932", NONE, RELEASE),
    ShareMutant(ignore_the_delivery_count_limit, "KIP-932", NONE, {"release_chance": 0.5, "delivery_count_limit": 2}),
    ShareMutant(keep_sessions_of_closed_connections, "KIP-932", CONSUMERS),
    ShareMutant(accept_records_that_are_not_returned, "KIP-932", NONE),
)


if __name__ == "__main__":
    sys.exit(print_table("soak.sim.share_groups.mutants", __doc__, SHARE_MUTANTS, MAX_SEEDS))
