"""Planted bugs, most of them former bugs of Kafka or similar systems, which the simulation must find.

`python -m soak.sim.cluster.mutants` plants each bug and prints the number of seeds until the bug is found.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from soak.sim.cluster.plan import ClusterPlan
from soak.sim.cluster.scenario import play
from soak.sim.planted import Patch, PlantedBug, print_table

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_batch import RecordBatch
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.controller import partition_state_machine
from barnabas.server.controller.controller_context import ControllerContext
from barnabas.server.controller.kafka_controller import KafkaController
from barnabas.server.controller.partition_state_machine import PartitionStateMachine
from barnabas.server.controller.topic_deletion_manager import TopicDeletionManager
from barnabas.server.coordinator.compacted_records import CompactedRecords
from barnabas.server.coordinator.coordinator_log import CoordinatorLog
from barnabas.server.metadata.kafka_healthcheck import KafkaHealthcheck
from barnabas.server.metadata.metadata_store import Create, SetData, Stat, StoreUnavailableError
from barnabas.server.metadata.zookeeper_store import ZooKeeperStore
from barnabas.server.replication.append_request import AppendRequest
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.replica import Followers, Replica
from barnabas.server.replication.replica_fetcher import PartitionFetchState, ReplicaFetcher
from barnabas.server.replication.replica_manager import ReplicaManager
from barnabas.storage.leader_epochs import LeaderEpochCache
from barnabas.storage.log import Log
from barnabas.storage.log_loader import LogLoader
from barnabas.storage.log_validator import AppendOrigin
from barnabas.storage.producer_state import ProducerStateEntry

MAX_SEEDS = 500


async def nothing(*_: object, **__: Any) -> None:
    """Replace a step of a broker by doing nothing."""


# -- log divergence ------------------------------------------------------------------------------------------------


def truncate_to_the_high_watermark(patch: Patch) -> None:
    async def compare(
        self: ReplicaFetcher, due: Mapping[TopicPartition, PartitionFetchState], *, truncates_on_fetch: bool
    ) -> None:
        for one in due.values():
            if not one.is_truncated:
                one.is_truncated = await self._truncate_to(one, one.partition.log.high_watermark)

    patch.setattr(ReplicaFetcher, "_maybe_truncate", compare)
    report_no_diverging_epoch(patch)


def report_no_diverging_epoch(patch: Patch) -> None:
    patch.setattr(Partition, "find_diverging_epoch", lambda self, epoch, offset: None)


def keep_epochs_of_truncated_records(patch: Patch) -> None:
    patch.setattr(LeaderEpochCache, "truncate_from_end", lambda self, offset: None)


# -- the ISR and the high watermark --------------------------------------------------------------------------------


def expand_isr_immediately(patch: Patch) -> None:
    def grown(self: Followers, replica: Replica, high_watermark: int) -> tuple[int, ...] | None:
        if self.pending is not None or replica.broker_id in self.isr:
            return None
        return (*self.isr, replica.broker_id) if self._is_eligible(replica) else None

    patch.setattr(Followers, "expanded_isr", grown)


def count_the_proposed_isr(patch: Patch) -> None:
    patch.setattr(Followers, "maximal_isr", property(lambda self: set(self.pending.isr if self.pending else self.isr)))


def raise_the_high_watermark_past_followers(patch: Patch) -> None:
    patch.setattr(Followers, "isr_min_log_end_offset", lambda self, leader_end, durable_end: durable_end)


def wait_for_one_follower_only(patch: Patch) -> None:
    def least(self: Followers, leader_end: int, durable_end: int) -> int:
        return min(durable_end, max(one.log_end_offset for one in self.replicas.values()))

    patch.setattr(Followers, "isr_min_log_end_offset", least)


def acknowledge_before_replication(patch: Patch) -> None:
    patch.setattr(Partition, "check_enough_replicas_reach_offset", lambda self, offset: (True, ErrorCode.NONE))


def acknowledge_records_of_another_leader(patch: Patch) -> None:
    def check_enough_replicas_reach_offset(self: Partition, offset: int) -> tuple[bool, ErrorCode]:
        return self.log.high_watermark >= offset, ErrorCode.NONE

    patch.setattr(Partition, "check_enough_replicas_reach_offset", check_enough_replicas_reach_offset)


def ignore_min_isr(patch: Patch) -> None:
    patch.setattr(Partition, "_lacks_replicas", lambda self: False)


def forget_to_expand_the_isr(patch: Patch) -> None:
    patch.setattr(Followers, "expanded_isr", lambda self, replica, high_watermark: None)


def serve_uncommitted_records(patch: Patch) -> None:
    patch.setattr(Partition, "read_bound", lambda self, isolation: self.log.log_end_offset)


# -- disks ---------------------------------------------------------------------------------------------------------


def fetch_on_before_the_disk(patch: Patch) -> None:
    patch.setattr(ReplicaManager, "wait_until_flushed", nothing)


def count_the_leaders_page_cache(patch: Patch) -> None:
    patch.setattr(Partition, "durable_end_offset", lambda self: self.log.log_end_offset)
    patch.setattr(Partition, "_add_barrier", lambda self, info: None)


def take_every_start_for_a_clean_one(patch: Patch) -> None:
    original = LogLoader.load

    def load(self: LogLoader, *, recovery_point: int, log_start_offset: int, clean_shutdown: bool) -> Any:
        return original(self, recovery_point=recovery_point, log_start_offset=log_start_offset, clean_shutdown=True)

    patch.setattr(LogLoader, "load", load)


def copy_corrupt_records(patch: Patch) -> None:
    patch.setattr(RecordBatch, "is_valid", property(lambda self: True))


# -- producers -----------------------------------------------------------------------------------------------------


def forget_producers_at_each_election(patch: Patch) -> None:
    original = Partition.become_leader

    def lead(self: Partition, order: Any) -> None:
        self.log.producer_state.producers.clear()
        original(self, order)

    patch.setattr(Partition, "become_leader", lead)


def keep_no_producer_state_on_followers(patch: Patch) -> None:
    original = Log.append_as_follower

    def append(self: Log, *arguments: Any, **named: Any) -> Any:
        info = original(self, *arguments, **named)
        self.producer_state.producers.clear()
        return info

    patch.setattr(Log, "append_as_follower", append)


def forget_the_window_of_batches(patch: Patch) -> None:
    patch.setattr(ProducerStateEntry, "find_duplicate", lambda self, header: None)


# -- the controller ------------------------------------------------------------------------------------------------


def elect_the_first_that_lives(patch: Patch) -> None:
    def elect(replicas: Any, isr: Any, live: Any, *, allow_unclean: bool) -> Any:
        alive = [broker for broker in replicas if broker in live]
        return partition_state_machine.Election(alive[0], tuple(alive)) if alive else None

    patch.setattr(partition_state_machine, "offline_partition_leader_election", elect)


def elect_in_the_same_epoch(patch: Patch) -> None:
    original = partition_state_machine.next_state

    def state(former: Any, *arguments: Any, **named: Any) -> Any:
        return replace(original(former, *arguments, **named), leader_epoch=former.leader_epoch)

    patch.setattr(partition_state_machine, "next_state", state)


def take_no_notice_of_failed_brokers(patch: Patch) -> None:
    patch.setattr(KafkaController, "_on_broker_failure", nothing)


def take_no_notice_of_new_brokers(patch: Patch) -> None:
    patch.setattr(KafkaController, "_on_broker_startup", nothing)


def let_a_restarted_leader_go_on(patch: Patch) -> None:
    patch.setattr(ControllerContext, "partitions_with_restarted_leader", lambda self: [])


def accept_any_proposed_isr(patch: Patch) -> None:
    def accepted(self: KafkaController, broker_id: int, wanted: Any, state: Any) -> Any:
        return replace(state, isr=wanted.isr) if wanted.isr != state.isr else None

    patch.setattr(KafkaController, "_altered_state", accepted)


# -- reassignment, creation and deletion of topics -----------------------------------------------------------------


def move_before_the_new_replicas_have_it(patch: Patch) -> None:
    async def elect_among(
        self: PartitionStateMachine, partition: TopicPartition, kept: tuple[int, ...], term: Any
    ) -> None:
        def decide(_: TopicPartition, state: Any) -> Any:
            return partition_state_machine.next_state(state, term, kept[0], kept)

        await self.update_states([partition], decide, term)

    async def resume(self: KafkaController, partitions: Any, term: Any) -> None:
        for partition in partitions:
            assignment = self._context.full_replica_assignment(partition)
            if assignment.is_being_reassigned:
                await self._complete_reassignment(partition, assignment, term)

    # Remove the assertion that would find the bug immediately, so that the simulation has to find it.
    patch.setattr(ControllerContext, "_assert_valid", lambda self, partition, state: None)
    patch.setattr(PartitionStateMachine, "elect_among", elect_among)
    patch.setattr(KafkaController, "_resume_reassignments", resume)


def keep_replicas_that_have_moved_away(patch: Patch) -> None:
    patch.setattr(KafkaController, "_delete_replicas", nothing)


def forget_replicas_that_cannot_be_deleted(patch: Patch) -> None:
    patch.setattr(TopicDeletionManager, "_is_deleted", lambda self, name: True)


def keep_the_logs_of_deleted_topics(patch: Patch) -> None:
    original = ReplicaManager.stop_replicas

    async def stop(
        self: ReplicaManager, topic_partitions: Iterable[TopicPartition], *, delete: bool
    ) -> dict[TopicPartition, ErrorCode]:
        return await original(self, topic_partitions, delete=False)

    patch.setattr(ReplicaManager, "stop_replicas", stop)


def never_register_again(patch: Patch) -> None:
    patch.setattr(KafkaHealthcheck, "_come_back", nothing)


def take_a_lost_answer_for_done(patch: Patch) -> None:
    original = ZooKeeperStore._commit

    async def commit(self: ZooKeeperStore, operations: Any, session: int) -> Any:
        try:
            return await original(self, operations, session)
        except StoreUnavailableError:
            stat = Stat(1, 1, 1, 0, 0, 0, 0, 0)
            return [
                one.path if isinstance(one, Create) else stat if isinstance(one, SetData) else None
                for one in operations
            ]

    patch.setattr(ZooKeeperStore, "_commit", commit)


# -- groups --------------------------------------------------------------------------------------------------------


def load_no_groups(patch: Patch) -> None:
    async def load(self: CoordinatorLog, partition: Partition) -> CompactedRecords:
        return CompactedRecords()

    patch.setattr(CoordinatorLog, "load", load)


def commit_offsets_at_the_leader_alone(patch: Patch) -> None:
    original = ReplicaManager.append_records

    def append(self: ReplicaManager, batches: Any, request: AppendRequest, **named: Any) -> None:
        if request.rules.origin is AppendOrigin.COORDINATOR:
            request = replace(request, acks=1)
        original(self, batches, request, **named)

    patch.setattr(ReplicaManager, "append_records", append)


@dataclass(frozen=True, slots=True)
class Mutant(PlantedBug):
    """A planted bug, with the work that reveals the bug in addition to the faults."""

    work: frozenset[str] = frozenset()

    def violations(self, seed: int) -> list[str]:
        return play(ClusterPlan.draw(seed, quick=True).with_faults(self.faults, self.work)).violations


BOUNCES = frozenset({"kill", "expire", "move controller", "cut off"})
LOSSES = frozenset({"power", "power of all", "slow disk", "expire", "kill"})
CUTS = frozenset({"cut", "cut off", "cut one way", "slow link", "pause"})
ZOOKEEPER = frozenset({"expire", "zookeeper breaks", "move controller", "cut from zookeeper", "kill"})
RETRIES = frozenset({"reset", "kill", "expire", "produce-answer-lost", "tail"})

MUTANTS = (
    Mutant(truncate_to_the_high_watermark, "KIP-101", BOUNCES | {"stop"}),
    Mutant(report_no_diverging_epoch, "KIP-595", LOSSES | CUTS),
    Mutant(keep_epochs_of_truncated_records, "KAFKA-12153", LOSSES | CUTS),
    Mutant(expand_isr_immediately, "KAFKA-7128", BOUNCES | {"pause"}),
    Mutant(count_the_proposed_isr, "KIP-497", BOUNCES | CUTS),
    Mutant(raise_the_high_watermark_past_followers, "Jepsen 2013", BOUNCES),
    Mutant(wait_for_one_follower_only, "TLA+ WeakIsr", BOUNCES),
    Mutant(acknowledge_before_replication, "Jepsen 2013", BOUNCES),
    Mutant(acknowledge_records_of_another_leader, "KAFKA-3916", BOUNCES | CUTS),
    Mutant(ignore_min_isr, "Jepsen 2013", frozenset({"cut off", "kill"})),
    Mutant(forget_to_expand_the_isr, "KAFKA-2729", frozenset({"kill"})),
    Mutant(serve_uncommitted_records, "Redpanda #3036", BOUNCES | CUTS),
    Mutant(fetch_on_before_the_disk, "Jepsen NATS", LOSSES),
    Mutant(count_the_leaders_page_cache, "Jepsen NATS", LOSSES),
    Mutant(take_every_start_for_a_clean_one, "KIP-966", LOSSES),
    Mutant(forget_producers_at_each_election, "KAFKA-9144", RETRIES),
    Mutant(keep_no_producer_state_on_followers, "KAFKA-6003", RETRIES),
    Mutant(forget_the_window_of_batches, "Redpanda #3039", RETRIES),
    Mutant(elect_the_first_that_lives, "KAFKA-2169", BOUNCES),
    Mutant(elect_in_the_same_epoch, "KIP-101", BOUNCES),
    Mutant(take_no_notice_of_failed_brokers, "KAFKA-2300", frozenset({"kill"})),
    Mutant(take_no_notice_of_new_brokers, "KAFKA-1120", frozenset({"kill"})),
    Mutant(never_register_again, "KAFKA-2729", frozenset({"expire"})),
    Mutant(take_a_lost_answer_for_done, "KAFKA-5642", ZOOKEEPER),
    Mutant(load_no_groups, "KAFKA-8069", BOUNCES),
    Mutant(copy_corrupt_records, "NATS 2.12", frozenset({"bits rot", "kill", "cut"})),
    Mutant(let_a_restarted_leader_go_on, "KIP-380", LOSSES | {"move controller"}),
    Mutant(accept_any_proposed_isr, "KIP-841", BOUNCES | CUTS | {"reassign"}),
    Mutant(move_before_the_new_replicas_have_it, "KIP-455", frozenset({"reassign", "kill"})),
    Mutant(keep_replicas_that_have_moved_away, "KAFKA-1558", frozenset({"reassign"})),
    Mutant(forget_replicas_that_cannot_be_deleted, "KAFKA-1558", BOUNCES, frozenset({"churn"})),
    Mutant(keep_the_logs_of_deleted_topics, "KAFKA-2000", frozenset({"kill"}), frozenset({"churn"})),
    Mutant(commit_offsets_at_the_leader_alone, "Jepsen 2013", BOUNCES | LOSSES, frozenset({"members"})),
)


if __name__ == "__main__":
    sys.exit(print_table("soak.sim.cluster.mutants", __doc__, MUTANTS, MAX_SEEDS))
