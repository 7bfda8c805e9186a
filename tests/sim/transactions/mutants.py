"""Planted bugs of transactions, most of them once real ones: what the simulation has to find to be believed.

`python -m tests.sim.transactions.mutants` plants one after the other and says how many seeds it took to find each.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from tests.sim.planted import Patch, PlantedBug, print_table
from tests.sim.transactions.plan import TransactionPlan
from tests.sim.transactions.scenario import play

from barnabas.protocol.errors import ErrorCode
from barnabas.server.coordinator.group.offsets import GroupOffsets
from barnabas.server.coordinator.group.transactional_offsets import TransactionalOffsets
from barnabas.server.coordinator.latest_records import LatestRecords
from barnabas.server.coordinator.transaction.completions import Completions
from barnabas.server.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.server.coordinator.transaction.enlistment import Enlisted, Enlistment, Manner
from barnabas.server.coordinator.transaction.metadata import Place, TransactionMetadata
from barnabas.server.coordinator.transaction.states import ENDING, TransactionState
from barnabas.server.coordinator.transaction.transaction import HeldTransaction
from barnabas.server.metadata.topic_names import GROUP_METADATA_TOPIC
from barnabas.server.replication.followers import Followers
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.verified_producers import VerifiedProducers
from barnabas.storage.log import NEVER, Log
from barnabas.storage.producer_state import ProducerStateManager
from barnabas.storage.transaction_index import TransactionIndex

MOST_SEEDS = 300


# -- who may write -------------------------------------------------------------------------------------------------


def take_every_batch_for_verified(patch: Patch) -> None:
    """A batch that was long on its way begins a transaction that nobody ends."""
    original = Enlistment.enlist

    def enlist(self: Enlistment, name: str, identity: Any, wanted: Any, manner: Manner, enlisted: Enlisted) -> None:
        if manner is Manner.ADDING:
            original(self, name, identity, wanted, manner, enlisted)
        else:
            enlisted({})

    patch.setattr(Enlistment, "enlist", enlist)
    patch.setattr(VerifiedProducers, "check", lambda self, partition, records, *, in_transaction: None)


def leave_the_epoch_at_each_end(patch: Patch) -> None:
    """What is late hits the next transaction."""
    original = TransactionMetadata.ending

    def ending(self: TransactionMetadata, state: TransactionState, version: int, next_id: int, now_ms: int) -> Any:
        changed = original(self, state, version, next_id, now_ms)
        return changed._replace(producer_epoch=self.producer_epoch, last_epoch=self.last_epoch, client_version=0)

    patch.setattr(TransactionMetadata, "ending", ending)


def leave_the_epoch_when_time_is_over(patch: Patch) -> None:
    def fenced(self: TransactionMetadata, client_version: int, now_ms: int) -> TransactionMetadata:
        return self.ending(TransactionState.PREPARE_ABORT, 0, -1, now_ms)

    patch.setattr(TransactionMetadata, "fenced", fenced)


def leave_the_epoch_to_a_new_producer(patch: Patch) -> None:
    """Who was it before goes on."""
    original = TransactionMetadata.with_next_epoch

    def with_next_epoch(self: TransactionMetadata, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> Any:
        changed = original(self, timeout_ms, expected_epoch, now_ms)
        is_first = self.producer_epoch < 0 or isinstance(changed, ErrorCode)
        return changed if is_first else changed._replace(producer_epoch=self.producer_epoch)

    patch.setattr(TransactionMetadata, "with_next_epoch", with_next_epoch)


# -- what is decided is done ---------------------------------------------------------------------------------------


def never_try_markers_again(patch: Patch) -> None:
    patch.setattr(Completions, "_later", lambda self, failures, work, transaction, *rest: None)


def take_every_marker_for_written(patch: Patch) -> None:
    def written(
        self: Completions, transaction: HeldTransaction, failures: int, outcomes: dict[Place, ErrorCode]
    ) -> None:
        self._done(transaction, outcomes.keys())

    patch.setattr(Completions, "_written", written)


def forget_what_is_decided_when_loading(patch: Patch) -> None:
    async def resume(self: TransactionCoordinator, transactions: dict[str, HeldTransaction]) -> None:
        return

    patch.setattr(TransactionCoordinator, "_resume", resume)


def decide_anew_when_loading(patch: Patch) -> None:
    original = TransactionCoordinator._build

    async def build(self: TransactionCoordinator, records: LatestRecords) -> dict[str, HeldTransaction]:
        found = await original(self, records)
        for one in found.values():
            if one.metadata.state in ENDING:
                one.metadata = one.metadata._replace(state=TransactionState.PREPARE_ABORT)
        return found

    patch.setattr(TransactionCoordinator, "_build", build)


def answer_before_the_decision_is_durable(patch: Patch) -> None:
    original = TransactionCoordinator._store

    def store(self: TransactionCoordinator, transaction: HeldTransaction, new: Any, reply: Any, **named: Any) -> None:
        original(self, transaction, new, lambda error: None, **named)
        reply(ErrorCode.NONE)

    patch.setattr(TransactionCoordinator, "_store", store)


def never_look_at_the_time(patch: Patch) -> None:
    patch.setattr(TransactionMetadata, "is_timed_out_at", None)


def leave_offsets_out_of_transactions(patch: Patch) -> None:
    original = TransactionMetadata.with_partitions

    def with_partitions(self: TransactionMetadata, added: frozenset[Place], version: int, now_ms: int) -> Any:
        kept = frozenset(place for place in added if place[0] != GROUP_METADATA_TOPIC)
        return original(self, kept, version, now_ms)

    patch.setattr(TransactionMetadata, "with_partitions", with_partitions)


# -- how far readers get -------------------------------------------------------------------------------------------


def forget_open_transactions_at_a_start(patch: Patch) -> None:
    patch.setattr(ProducerStateManager, "_find_ongoing_transactions", lambda self: None)


def forget_open_transactions_at_an_election(patch: Patch) -> None:
    original = Partition.become_leader

    def lead(self: Partition, order: Any) -> None:
        original(self, order)
        self.log.producer_state.ongoing_transactions.clear()
        self.log._first_unstable_offset = NEVER

    patch.setattr(Partition, "become_leader", lead)


def count_markers_before_they_are_replicated(patch: Patch) -> None:
    patch.setattr(
        Log,
        "last_stable_offset",
        property(lambda self: min([*self.producer_state.ongoing_transactions, self.log_end_offset])),
    )


def forget_aborted_transactions_at_a_start(patch: Patch) -> None:
    patch.setattr(TransactionIndex, "_load", lambda self: [])


# -- offsets -------------------------------------------------------------------------------------------------------


def show_offsets_before_the_end(patch: Patch) -> None:
    original = GroupOffsets.add_pending

    def add_pending(self: GroupOffsets, producer_id: int, offsets: Any) -> None:
        original(self, producer_id, offsets)
        self.committed.update(offsets)

    patch.setattr(GroupOffsets, "add_pending", add_pending)
    patch.setattr(GroupOffsets, "has_pending", lambda self, topic, partition: False)


def keep_offsets_of_what_was_aborted(patch: Patch) -> None:
    original = TransactionalOffsets.end

    def end(self: TransactionalOffsets, index: int, producer_id: int, *, is_commit: bool) -> None:
        original(self, index, producer_id, is_commit=True)

    patch.setattr(TransactionalOffsets, "end", end)


def forget_pending_offsets_when_loading(patch: Patch) -> None:
    patch.setattr(LatestRecords, "pending", lambda self: iter(()))


def take_every_coordinator_for_the_present_one(patch: Patch) -> None:
    """Who was followed by another and has not heard of it tells offsets of before."""
    patch.setattr(Followers, "heirs", frozenset())


@dataclass(frozen=True, slots=True)
class TransactionMutant(PlantedBug):
    """One of them, and what else brings it to light."""

    changes: dict[str, Any] = field(default_factory=dict)
    """Of the plan."""
    brokers: int | None = None

    def violations(self, seed: int) -> list[str]:
        plan = TransactionPlan.draw(seed, quick=True, brokers=self.brokers)
        return play(plan.with_faults(self.faults, **self.changes)).violations


STRIKES = frozenset({"strike a coordinator", "kill"})
LATE = frozenset({"requests late", "kill a copier", "zombie"})
ZOMBIES = frozenset({"zombie", "twin", "kill a copier"})
LOST = frozenset({"requests lost", "answers lost", "kill", "expire"})
V1: dict[str, Any] = {"version": 0}
V2: dict[str, Any] = {"version": 2}
ABORTS: dict[str, Any] = {"abort_chance": 0.3}
SLOW: dict[str, Any] = {"linger": 1.5, "timeout_ms": 500}

TRANSACTION_MUTANTS = (
    TransactionMutant(take_every_batch_for_verified, "KIP-890", frozenset({"requests late", "desert"}), V1),
    TransactionMutant(leave_the_epoch_at_each_end, "KIP-890", LATE, V2),
    TransactionMutant(leave_the_epoch_when_time_is_over, "KIP-588", frozenset[str](), V2 | SLOW),
    TransactionMutant(leave_the_epoch_to_a_new_producer, "KIP-98", ZOMBIES),
    TransactionMutant(never_try_markers_again, "KAFKA-16352", LOST, brokers=3),
    TransactionMutant(take_every_marker_for_written, "KAFKA-6052", LOST, brokers=3),
    TransactionMutant(forget_what_is_decided_when_loading, "KAFKA-10080", STRIKES),
    TransactionMutant(decide_anew_when_loading, "KAFKA-9777", STRIKES),
    TransactionMutant(
        answer_before_the_decision_is_durable,
        "Bufstream 0.1",
        frozenset({"power", "strike a coordinator", "slow disk"}),
    ),
    TransactionMutant(never_look_at_the_time, "KIP-98", frozenset({"desert"})),
    TransactionMutant(leave_offsets_out_of_transactions, "KIP-98", frozenset({"kill a copier"})),
    TransactionMutant(forget_open_transactions_at_a_start, "KAFKA-12520", frozenset({"stop", "kill", "desert"})),
    TransactionMutant(forget_open_transactions_at_an_election, "KAFKA-9144", frozenset({"expire", "stop", "desert"})),
    TransactionMutant(count_markers_before_they_are_replicated, "Redpanda #3036", STRIKES | {"pause"}),
    TransactionMutant(forget_aborted_transactions_at_a_start, "KAFKA-13603", frozenset({"stop", "kill"}), ABORTS),
    TransactionMutant(show_offsets_before_the_end, "KIP-447", ZOMBIES, ABORTS),
    TransactionMutant(keep_offsets_of_what_was_aborted, "KIP-98", frozenset({"kill a copier"}), ABORTS),
    TransactionMutant(forget_pending_offsets_when_loading, "KAFKA-8069", STRIKES | {"expire", "kill a copier"}),
    TransactionMutant(
        take_every_coordinator_for_the_present_one,
        "Raft 6.4",
        frozenset({"cut from zookeeper", "cut off", "kill a copier"}),
        ABORTS | {"manner": "assigned", "seconds": 4.0, "downtime": 3.0},
        brokers=3,
    ),
)


if __name__ == "__main__":
    sys.exit(print_table("tests.sim.transactions.mutants", __doc__, TRANSACTION_MUTANTS, MOST_SEEDS))
