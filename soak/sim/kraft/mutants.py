"""Planted bugs in the broker code for KRaft clusters, which the simulation must find.

`python -m soak.sim.kraft.mutants` plants each bug and prints the number of seeds until the bug is found.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from soak.sim.kraft.plan import KRaftPlan
from soak.sim.kraft.scenario import play
from soak.sim.planted import Patch, PlantedBug, print_table

from barnabas.protocol.metadata_records import PartitionChangeRecord
from barnabas.server.image.configurations_image import ConfigurationsDelta
from barnabas.server.image.metadata_batch_loader import MetadataBatchLoader
from barnabas.server.image.metadata_delta import MetadataDelta
from barnabas.server.image.topics_image import TopicsDelta
from barnabas.server.kraft import kraft_member
from barnabas.server.kraft.assignments_manager import AssignmentsManager
from barnabas.server.kraft.broker_metadata_publisher import BrokerMetadataPublisher
from barnabas.server.kraft.image_topics import cached_broker
from barnabas.server.kraft.kraft_member import KRaftMember
from barnabas.server.raft.broker_lifecycle_manager import BrokerLifecycleManager
from barnabas.server.raft.kafka_raft_client import KafkaRaftClient
from barnabas.server.raft.kafka_raft_log import KafkaRaftLog
from barnabas.server.raft.observer_state import ObserverState
from barnabas.storage.leader_epochs import EpochEntry

MOST_SEEDS = 100


async def nothing(*_: Any, **__: Any) -> None:
    """Replace a step of a broker by doing nothing."""


# -- the observer ------------------------------------------------------------------------------------------------------


def apply_uncommitted_records(patch: Patch) -> None:
    original = KafkaRaftClient._update_high_watermark

    async def update(self: KafkaRaftClient, replica: KafkaRaftLog, state: ObserverState, offset: int) -> None:
        await original(self, replica, state, replica.end_offset)

    patch.setattr(KafkaRaftClient, "_update_high_watermark", update)


def miss_truncations(patch: Patch) -> None:
    patch.setattr(KafkaRaftLog, "truncate_to_end_offset", lambda self, diverging: self.end_offset)


def keep_epochs_of_truncated_records(patch: Patch) -> None:
    original = KafkaRaftLog.truncate_to_end_offset

    def truncate(self: KafkaRaftLog, diverging: Any) -> int:
        cache = self._log.leader_epochs
        before: list[EpochEntry] = cache.entries
        offset = original(self, diverging)
        cache._entries = before
        cache._refresh()
        return offset

    patch.setattr(KafkaRaftLog, "truncate_to_end_offset", truncate)


def follow_leaders_of_earlier_epochs(patch: Patch) -> None:
    original = ObserverState._handle_leader

    def handle(
        self: ObserverState, destination: Any, error: Any, leader_id: int, epoch: int, endpoints: Any
    ) -> bool | None:
        if 0 <= epoch < self._epoch and leader_id >= 0:
            self._epoch = epoch
            self._leader_id = leader_id
            self._leader_endpoint = endpoints.get(leader_id)
            return False
        return original(self, destination, error, leader_id, epoch, endpoints)

    patch.setattr(ObserverState, "_handle_leader", handle)


def halt_on_a_snapshot(patch: Patch) -> None:
    original = KafkaRaftClient._loaded_snapshot

    async def loaded(self: KafkaRaftClient, replica: KafkaRaftLog, snapshot_id: Any) -> Any:
        if self._listeners[0].next_offset >= 0:
            raise RuntimeError("a snapshot while records are applied")
        return await original(self, replica, snapshot_id)

    patch.setattr(KafkaRaftClient, "_loaded_snapshot", loaded)


# -- images ------------------------------------------------------------------------------------------------------------


def apply_a_snapshot_as_a_delta(patch: Patch) -> None:
    original = TopicsDelta.between

    async def between(before: Any, after: Any, budget: Any) -> TopicsDelta | None:
        delta: TopicsDelta | None = await original(before, after, budget)
        if delta is not None:
            delta.deleted.clear()
        return delta

    patch.setattr(TopicsDelta, "between", between)


def drop_settings_of_snapshots(patch: Patch) -> None:
    patch.setattr(ConfigurationsDelta, "between", nothing)


def apply_a_delta_twice(patch: Patch) -> None:
    original = MetadataDelta.replay

    def replay(self: MetadataDelta, record: Any) -> None:
        original(self, record)
        if isinstance(record, PartitionChangeRecord) and record.isr is not None:
            original(self, record)

    patch.setattr(MetadataDelta, "replay", replay)


def apply_aborted_transactions(patch: Patch) -> None:
    def end(self: MetadataBatchLoader, record: Any) -> None:
        self._is_in_transaction = False

    patch.setattr(MetadataBatchLoader, "_end_transaction", end)


def publish_open_transactions(patch: Patch) -> None:
    async def flush(self: MetadataBatchLoader) -> None:
        is_in_transaction = self._is_in_transaction
        await self._flush()
        self._is_in_transaction = is_in_transaction

    patch.setattr(MetadataBatchLoader, "maybe_flush_batches", flush)


# -- publishers --------------------------------------------------------------------------------------------------------


def keep_replicas_of_deleted_topics(patch: Patch) -> None:
    patch.setattr(BrokerMetadataPublisher, "_stop_replicas", nothing)


def match_topics_by_name(patch: Patch) -> None:
    original = BrokerMetadataPublisher._stop_replicas

    async def stop(self: BrokerMetadataPublisher, stopped: Any) -> None:
        names = self._published.image.topics.ids
        await original(self, {key for key in stopped if key.topic not in names})

    patch.setattr(BrokerMetadataPublisher, "_stop_replicas", stop)


def lead_until_elected_again(patch: Patch) -> None:
    original = BrokerMetadataPublisher._change_roles

    async def change(self: BrokerMetadataPublisher, partitions: Mapping[Any, Any]) -> None:
        manager = self._replica_manager
        kept = {}
        for key, one in partitions.items():
            present = manager.get_partition(key.topic, key.partition)
            if present is None or not present.is_leader or one.leader == self._broker_id:
                kept[key] = one
        await original(self, kept)

    patch.setattr(BrokerMetadataPublisher, "_change_roles", change)


def ignore_fencing(patch: Patch) -> None:
    def set_brokers(snapshot: Any, image: Any) -> None:
        snapshot.set_brokers({one.id: cached_broker(one) for one in image.cluster.brokers.values()})

    patch.setattr(BrokerMetadataPublisher, "_set_brokers", staticmethod(set_brokers))


def publish_brokers_before_topics(patch: Patch) -> None:
    original = BrokerMetadataPublisher._set_image

    async def set_image(self: BrokerMetadataPublisher, delta: MetadataDelta, image: Any, stopped: Any) -> Any:
        if delta.cluster is not None:
            snapshot = self._metadata.snapshot.copy()
            self._set_brokers(snapshot, image)
            self._metadata.set_snapshot(snapshot)
            await asyncio.sleep(0.02)
        return await original(self, delta, image, stopped)

    patch.setattr(BrokerMetadataPublisher, "_set_image", set_image)


def serve_strays(patch: Patch) -> None:
    patch.setattr(kraft_member, "strays_of_cluster", lambda folders, topics: {})


def report_no_directories(patch: Patch) -> None:
    patch.setattr(AssignmentsManager, "check", nothing)


# -- the lifecycle -----------------------------------------------------------------------------------------------------


def register_with_a_former_incarnation(patch: Patch) -> None:
    original = BrokerLifecycleManager.start

    def start(self: BrokerLifecycleManager, *arguments: Any) -> None:
        self._incarnation_id = UUID(int=(1 << 64) + self._node_id)
        original(self, *arguments)

    patch.setattr(BrokerLifecycleManager, "start", start)


def use_the_epoch_of_a_former_registration(patch: Patch) -> None:
    epochs: dict[int, int] = {}

    def epoch(self: KRaftMember) -> int:
        if self._lifecycle is None or self._lifecycle.broker_epoch < 0:
            return -1
        return epochs.setdefault(self._broker_id, self._lifecycle.broker_epoch)

    patch.setattr(KRaftMember, "_broker_epoch", epoch)


def claim_a_clean_stop_after_a_crash(patch: Patch) -> None:
    original, register = BrokerLifecycleManager.start, BrokerLifecycleManager._register
    epochs: dict[int, int] = {}

    def start(self: BrokerLifecycleManager, *arguments: Any) -> None:
        original(self, *arguments)
        self._previous_broker_epoch = epochs.get(self._node_id, -1)

    async def keep(self: BrokerLifecycleManager, channel: Any) -> float:
        pause = await register(self, channel)
        epochs[self._node_id] = self.broker_epoch
        return pause

    patch.setattr(BrokerLifecycleManager, "start", start)
    patch.setattr(BrokerLifecycleManager, "_register", keep)


def send_heartbeats_after_the_metadata(patch: Patch) -> None:
    original = BrokerLifecycleManager._send_heartbeat

    async def send(self: BrokerLifecycleManager, channel: Any) -> float:
        member: Any = getattr(self._highest_metadata_offset, "__self__", None)
        async with member._publisher._publication_lock:
            return await original(self, channel)

    patch.setattr(BrokerLifecycleManager, "_send_heartbeat", send)


def skip_the_controlled_shutdown(patch: Patch) -> None:
    async def leave(self: KRaftMember) -> bool:
        return False

    patch.setattr(KRaftMember, "leave", leave)


@dataclass(frozen=True, slots=True)
class KRaftMutant(PlantedBug):
    """A planted bug, with the work and the changes of the plan that reveal the bug."""

    work: frozenset[str] = frozenset()
    changes: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    def violations(self, seed: int) -> list[str]:
        plan = KRaftPlan.draw(seed, quick=True).with_faults(self.faults, self.work, **self.changes)
        plan.settings.update(self.settings)
        return play(plan).violations


FAILOVERS = frozenset({"kill controller", "elect", "isolate leader", "slow commits", "alter topic", "prefer"})
SNAPSHOTS = frozenset({"snapshot", "many snapshots", "cut from controllers", "kill", "replace topic", "alter topic"})
CHANGES = frozenset({"replace topic", "reassign", "prefer", "kill"})
TRANSACTIONS = frozenset({"transaction"})
BUSY: dict[str, Any] = {"nemeses": 3, "seconds": 4.0, "downtime": 1.5}
LONG: dict[str, Any] = {"seconds": 9.0, "gap": 1.0}

KRAFT_MUTANTS = (
    KRaftMutant(apply_uncommitted_records, "KIP-595", FAILOVERS),
    KRaftMutant(miss_truncations, "KIP-595", FAILOVERS),
    KRaftMutant(keep_epochs_of_truncated_records, "KAFKA-12153", FAILOVERS),
    KRaftMutant(
        follow_leaders_of_earlier_epochs,
        "KIP-595",
        FAILOVERS | {"cut from leader", "lose responses"},
        changes={"election": 1.0, "nemeses": 2, "seconds": 5.0},
    ),
    KRaftMutant(halt_on_a_snapshot, "KIP-630", SNAPSHOTS),
    KRaftMutant(apply_a_snapshot_as_a_delta, "KIP-630", SNAPSHOTS, changes=BUSY),
    KRaftMutant(drop_settings_of_snapshots, "KIP-630", SNAPSHOTS, changes=BUSY),
    KRaftMutant(apply_a_delta_twice, "KIP-500", CHANGES),
    KRaftMutant(apply_aborted_transactions, "KIP-868", TRANSACTIONS),
    KRaftMutant(publish_open_transactions, "KIP-868", TRANSACTIONS),
    KRaftMutant(keep_replicas_of_deleted_topics, "KAFKA-2000", CHANGES),
    KRaftMutant(match_topics_by_name, "KIP-516", CHANGES),
    KRaftMutant(lead_until_elected_again, "KIP-500", CHANGES),
    KRaftMutant(ignore_fencing, "KIP-631", frozenset({"kill", "pause"})),
    KRaftMutant(publish_brokers_before_topics, "KIP-500", frozenset({"kill", "pause"})),
    KRaftMutant(serve_strays, "KAFKA-14616", frozenset({"kill", "replace topic", "reassign"})),
    KRaftMutant(report_no_directories, "KIP-858", CHANGES, settings={"log.dirs": "/data,/more"}),
    KRaftMutant(register_with_a_former_incarnation, "KIP-631", frozenset({"kill"})),
    KRaftMutant(use_the_epoch_of_a_former_registration, "KIP-841", frozenset({"kill", "reassign"})),
    KRaftMutant(claim_a_clean_stop_after_a_crash, "KIP-966", frozenset({"kill", "stop"})),
    KRaftMutant(
        send_heartbeats_after_the_metadata,
        "KIP-631",
        frozenset({"slow disk", "replace topic", "grow"}),
        changes=LONG | {"slow_job": 4.0},
    ),
    KRaftMutant(skip_the_controlled_shutdown, "KIP-631", frozenset({"stop"}), changes=LONG),
)


if __name__ == "__main__":
    sys.exit(print_table("soak.sim.kraft.mutants", __doc__, KRAFT_MUTANTS, MOST_SEEDS))
