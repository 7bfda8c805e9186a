"""Planted bugs of transactions, most of them former bugs of Kafka, which the simulation must find.

`python -m soak.sim.transactions.mutants` plants each bug and prints the number of seeds until the bug is found.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any, cast

from soak.sim.planted import Patch, PlantedBug, print_table
from soak.sim.transactions.plan import LONG_MS, TransactionPlan
from soak.sim.transactions.scenario import play

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartitionKey
from barnabas.server.coordinator.compacted_records import CompactedRecords
from barnabas.server.coordinator.group.group_coordinator import GroupCoordinator
from barnabas.server.coordinator.group.offsets import GroupOffsets
from barnabas.server.coordinator.transaction.add_partitions_to_txn_manager import (
    AddOrVerifyCallback,
    AddPartitionsToTxnManager,
    TransactionSupportedOperation,
    _PendingAddOrVerify,
)
from barnabas.server.coordinator.transaction.transaction_marker_channel_manager import TransactionMarkerChannelManager
from barnabas.server.coordinator.transaction.transaction_metadata import (
    ENDING,
    TransactionEntry,
    TransactionMetadata,
    TransactionState,
)
from barnabas.server.coordinator.transaction.transaction_state_manager import TransactionStateManager
from barnabas.server.metadata.topic_names import GROUP_METADATA_TOPIC
from barnabas.server.replication.leader_and_isr import LeaderAndIsrState
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.replica import Followers
from barnabas.server.replication.verification_guards import VerificationGuards
from barnabas.storage.log import NEVER, Log
from barnabas.storage.producer_state import ProducerStateManager
from barnabas.storage.transaction_index import TransactionIndex

MAX_SEEDS = 300


# -- verification and fencing of producers -------------------------------------------------------------------------


def take_every_batch_for_verified(patch: Patch) -> None:
    """Let a late batch begin a transaction that no request ends."""
    original = AddPartitionsToTxnManager.add_or_verify_transaction

    def add_or_verify_transaction(
        self: AddPartitionsToTxnManager,
        name: str,
        identity: Any,
        wanted: Any,
        supported_operation: TransactionSupportedOperation,
        enlisted: AddOrVerifyCallback,
    ) -> None:
        if supported_operation is TransactionSupportedOperation.ADD_PARTITION:
            original(self, name, identity, wanted, supported_operation, enlisted)
        else:
            enlisted({})

    patch.setattr(AddPartitionsToTxnManager, "add_or_verify_transaction", add_or_verify_transaction)
    patch.setattr(VerificationGuards, "check", lambda self, partition, records, *, in_transaction: None)


def end_verifications_with_the_leader_epoch(patch: Patch) -> None:
    """Fail verifications with a fatal error after a new leader epoch, as after the death of a follower."""
    become_leader, check = Partition.become_leader, VerificationGuards.check

    def lead(self: Partition, order: LeaderAndIsrState) -> None:
        become_leader(self, order)
        self._replica_manager.verification_guards.remove_partition(self.topic_partition)  # type: ignore[attr-defined]

    def check_once(
        self: VerificationGuards, partition: Partition, records: memoryview, *, in_transaction: bool
    ) -> None:
        try:
            check(self, partition, records, in_transaction=in_transaction)
        except KafkaError as error:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE) from error

    patch.setattr(_PendingAddOrVerify, "_is_stale", lambda self, topic_partition: False)
    patch.setattr(Partition, "become_leader", lead)
    patch.setattr(VerificationGuards, "check", check_once)


def leave_the_epoch_at_each_end(patch: Patch) -> None:
    """Let a late request affect the next transaction."""
    original = TransactionMetadata.prepare_abort_or_commit

    def prepare_abort_or_commit(
        self: TransactionMetadata, state: TransactionState, version: int, next_id: int, now_ms: int
    ) -> Any:
        changed = original(self, state, version, next_id, now_ms)
        return changed._replace(producer_epoch=self.producer_epoch, last_epoch=self.last_epoch, client_version=0)

    patch.setattr(TransactionMetadata, "prepare_abort_or_commit", prepare_abort_or_commit)


def leave_the_epoch_when_time_is_over(patch: Patch) -> None:
    def prepare_fence_producer_epoch(
        self: TransactionMetadata, client_version: int, next_id: int, now_ms: int
    ) -> TransactionMetadata:
        return self.prepare_abort_or_commit(TransactionState.PREPARE_ABORT, 0, -1, now_ms)

    patch.setattr(TransactionMetadata, "prepare_fence_producer_epoch", prepare_fence_producer_epoch)


def leave_the_epoch_to_a_new_producer(patch: Patch) -> None:
    """Do not fence the former producer."""
    original = TransactionMetadata.prepare_increment_producer_epoch

    def prepare_increment_producer_epoch(
        self: TransactionMetadata, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> Any:
        changed = original(self, timeout_ms, expected_epoch, now_ms)
        is_first = self.producer_epoch < 0 or isinstance(changed, ErrorCode)
        return changed if is_first else cast(TransactionMetadata, changed)._replace(producer_epoch=self.producer_epoch)

    patch.setattr(TransactionMetadata, "prepare_increment_producer_epoch", prepare_increment_producer_epoch)


# -- execution of decided transactions -----------------------------------------------------------------------------


def never_try_markers_again(patch: Patch) -> None:
    patch.setattr(
        TransactionMarkerChannelManager, "_retry_later", lambda self, failures, work, transaction, *rest: None
    )


def take_every_marker_for_written(patch: Patch) -> None:
    def written(
        self: TransactionMarkerChannelManager,
        transaction: TransactionEntry,
        failures: int,
        outcomes: dict[TopicPartitionKey, ErrorCode],
    ) -> None:
        self._remove_partitions(transaction, outcomes.keys())

    patch.setattr(TransactionMarkerChannelManager, "_on_markers_written", written)


def forget_decided_transactions_when_loading(patch: Patch) -> None:
    async def resume(self: TransactionStateManager, transactions: dict[str, TransactionEntry]) -> None:
        return

    patch.setattr(TransactionStateManager, "_on_loaded", resume)


def decide_again_when_loading(patch: Patch) -> None:
    original = TransactionStateManager._load

    async def build(self: TransactionStateManager, partition: Partition) -> dict[str, TransactionEntry]:
        found = await original(self, partition)
        for one in found.values():
            if one.metadata.state in ENDING:
                one.metadata = one.metadata._replace(state=TransactionState.PREPARE_ABORT)
        return found

    patch.setattr(TransactionStateManager, "_load", build)


def answer_before_the_decision_is_durable(patch: Patch) -> None:
    original = TransactionStateManager.append_transaction_to_log

    def store(self: TransactionStateManager, transaction: TransactionEntry, new: Any, reply: Any, **named: Any) -> None:
        original(self, transaction, new, lambda error: None, **named)
        reply(ErrorCode.NONE)

    patch.setattr(TransactionStateManager, "append_transaction_to_log", store)


def never_look_at_the_time(patch: Patch) -> None:
    patch.setattr(TransactionMetadata, "timeout_at_ms", None)


def leave_offsets_out_of_transactions(patch: Patch) -> None:
    original = TransactionMetadata.prepare_add_partitions

    def prepare_add_partitions(
        self: TransactionMetadata, added: frozenset[TopicPartitionKey], version: int, now_ms: int
    ) -> Any:
        kept = frozenset(topic_partition for topic_partition in added if topic_partition[0] != GROUP_METADATA_TOPIC)
        return original(self, kept, version, now_ms)

    patch.setattr(TransactionMetadata, "prepare_add_partitions", prepare_add_partitions)


# -- the last stable offset ----------------------------------------------------------------------------------------


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
    original = TransactionIndex.sanity_check

    def check(self: TransactionIndex, end_offset: int) -> None:
        original(self, end_offset)
        self.reset()

    patch.setattr(TransactionIndex, "sanity_check", check)


# -- offsets -------------------------------------------------------------------------------------------------------


def show_offsets_before_the_end(patch: Patch) -> None:
    original = GroupOffsets.add_pending

    def add_pending(self: GroupOffsets, producer_id: int, offsets: Any) -> None:
        original(self, producer_id, offsets)
        self.committed.update(offsets)

    patch.setattr(GroupOffsets, "add_pending", add_pending)
    patch.setattr(GroupOffsets, "has_pending", lambda self, topic, partition: False)


def keep_offsets_of_aborted_transactions(patch: Patch) -> None:
    original = GroupCoordinator.complete_transaction

    def complete_transaction(self: GroupCoordinator, index: int, producer_id: int, *, is_commit: bool) -> None:
        original(self, index, producer_id, is_commit=True)

    patch.setattr(GroupCoordinator, "complete_transaction", complete_transaction)


def forget_pending_offsets_when_loading(patch: Patch) -> None:
    patch.setattr(CompactedRecords, "pending", lambda self: iter(()))


def take_every_coordinator_for_the_present_one(patch: Patch) -> None:
    """Let a former coordinator return outdated offsets."""
    patch.setattr(Followers, "other_electable_replicas", frozenset())


@dataclass(frozen=True, slots=True)
class TransactionMutant(PlantedBug):
    """A planted bug, with the changes of the plan that reveal the bug."""

    changes: dict[str, Any] = field(default_factory=dict)
    """The changes to the plan."""
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
DEATHS_OF_BROKERS = frozenset({"expire", "kill", "slow link"})
MANY_COPY: dict[str, Any] = {
    "copiers": 6,
    "downtime": 0.7,
    "linger": 0.0,
    "manner": "assigned",
    "most_records": 1,
    "request_timeout_ms": 3000,
    "timeout_ms": LONG_MS,
}
"""Copiers without pauses, and a transaction timeout that no transaction reaches."""
ABORTS: dict[str, Any] = {"abort_chance": 0.3}
SLOW: dict[str, Any] = {"linger": 1.5, "timeout_ms": 500}

TRANSACTION_MUTANTS = (
    TransactionMutant(take_every_batch_for_verified, "KIP-890", frozenset({"requests late", "desert"}), V1),
    TransactionMutant(end_verifications_with_the_leader_epoch, "4.4.0", DEATHS_OF_BROKERS, MANY_COPY, brokers=3),
    TransactionMutant(leave_the_epoch_at_each_end, "KIP-890", LATE, V2),
    TransactionMutant(leave_the_epoch_when_time_is_over, "KIP-588", frozenset[str](), V2 | SLOW),
    TransactionMutant(leave_the_epoch_to_a_new_producer, "KIP-98", ZOMBIES),
    TransactionMutant(never_try_markers_again, "KAFKA-16352", LOST, brokers=3),
    TransactionMutant(take_every_marker_for_written, "KAFKA-6052", LOST, brokers=3),
    TransactionMutant(forget_decided_transactions_when_loading, "KAFKA-10080", STRIKES),
    TransactionMutant(decide_again_when_loading, "KAFKA-9777", STRIKES),
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
    TransactionMutant(keep_offsets_of_aborted_transactions, "KIP-98", frozenset({"kill a copier"}), ABORTS),
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
    sys.exit(print_table("soak.sim.transactions.mutants", __doc__, TRANSACTION_MUTANTS, MAX_SEEDS))
