"""Kafka's TopicDeletionManager: deletes each replica of a topic first, then the topic's nodes in the store.

The node in `/admin/delete_topics` keeps the deletion: a later controller finishes it when the last replica can be
deleted. Until then no broker serves the topic, and its name is taken. `DelayedDeleteTopics` holds requests until the
deletion is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode
from ...protocol.topic_partition import TopicPartition
from ..config.dynamic_config import DynamicConfig
from ..metadata.cluster_store import ControllerTerm
from ..metadata.metadata_store import StoreError
from ..metadata.topic_store import TopicStore
from ..runtime.loop_sharing import CountBudget
from .control_requests import EPOCH_DURING_DELETION
from .controller_channel_manager import ControllerChannel
from .controller_context import ControllerContext, ReplicaState
from .update_metadata_sender import UpdateMetadataSender

logger = room_logger("controller")

PARTITIONS_PER_TURN = 200
"""Partitions of deleted topics whose replicas are checked."""
STARTED_OR_DELETED = (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL)


class TopicDeletionManager:
    """Kafka's TopicDeletionManager. `KafkaController` owns it and makes one change after another."""

    def __init__(
        self,
        context: ControllerContext,
        store: TopicStore,
        channel: ControllerChannel,
        update_metadata_sender: UpdateMetadataSender,
        dynamic_config: DynamicConfig,
    ) -> None:
        self._context = context
        self._store = store
        self._channel = channel
        self._update_metadata_sender = update_metadata_sender
        self._dynamic_config = dynamic_config
        self._refused: set[tuple[TopicPartition, int]] = set()
        """Replicas that a live broker could not delete."""

    async def process_delete_topic_nodes(self, term: ControllerTerm, *, may_delete: bool = True) -> None:
        """Delete the topics that the nodes in the store name; without `may_delete` delete the nodes.

        A node without a topic is deleted too: the next controller would otherwise delete the next topic of that name.
        Raises StoreError, KafkaError NOT_CONTROLLER.
        """
        marked = [
            name for name in await self._store.topics_to_delete() if name not in self._context.topics_to_be_deleted
        ]
        known = [name for name in marked if may_delete and self._context.topic(name) is not None]
        if len(known) < len(marked):
            # The context may lack a topic that one of Apache Kafka's brokers has just written.
            present = set(await self._store.names()) if may_delete else set()
            await self._store.remove_marks([name for name in marked if name not in present], term)
        if known:
            await self.enqueue_topics_for_deletion(known, term)

    async def enqueue_topics_for_deletion(self, names: Iterable[str], term: ControllerTerm) -> None:
        """Have the brokers stop serving topics and delete all replicas that can be reached."""
        new = [name for name in names if self._context.topic(name) is not None]
        self._context.topics_to_be_deleted.update(new)
        self._update_metadata_sender.publish_deleted_topics(new)
        budget = CountBudget(PARTITIONS_PER_TURN)
        for name in new:
            for partition in self._context.partitions_of(name):
                self._context.take_offline(partition)
                await budget.step()
        await self.resume_deletions(new, term)

    async def resume_deletions(self, names: Iterable[str], term: ControllerTerm) -> None:
        """Delete the remaining replicas that can be reached, then the topics without a replica."""
        by_broker: dict[int, dict[TopicPartition, int]] = {}
        budget = CountBudget(PARTITIONS_PER_TURN)
        for name in names:
            for partition in self._context.partitions_of(name):
                await budget.step()
                for broker in self._context.replicas(partition):
                    if self._context.replica_state(partition, broker) in STARTED_OR_DELETED:
                        continue
                    if broker in self._context.reachable_replicas(partition):
                        self._context.move_replica(partition, broker, ReplicaState.DELETION_STARTED)
                        self._refused.discard((partition, broker))
                        by_broker.setdefault(broker, {})[partition] = EPOCH_DURING_DELETION
                    elif self._context.replica_state(partition, broker) is not ReplicaState.DELETION_INELIGIBLE:
                        # The topic's nodes must be kept: the replica's broker could return with it.
                        self._mark_ineligible(partition, broker, is_refused=broker in self._context.brokers)
        for broker, partitions in by_broker.items():
            results = await self._channel.stop_replicas(broker, partitions, delete=True)
            self.process_stop_replica_response(broker, results)
        await self.complete_deletions(term)

    def process_stop_replica_response(self, broker_id: int, results: Mapping[TopicPartition, ErrorCode]) -> None:
        """Record which replicas a broker has deleted. `complete_deletions` follows."""
        for partition, error in results.items():
            if partition not in self._context or broker_id not in self._context.replicas(partition):
                continue
            if self._context.replica_state(partition, broker_id) is not ReplicaState.DELETION_STARTED:
                continue
            if error is ErrorCode.NONE:
                self._context.move_replica(partition, broker_id, ReplicaState.DELETION_SUCCESSFUL)
            else:
                logger.error("broker %d could not delete %s: %s", broker_id, partition, error.name)
                self._mark_ineligible(partition, broker_id, is_refused=True)

    def on_broker_failure(self, broker_id: int) -> None:
        """Postpone a dead broker's unconfirmed deletions until it is back (Kafka: failReplicaDeletion)."""
        for name in self._context.topics_to_be_deleted:
            for partition in self._context.partitions_of(name):
                if (
                    broker_id in self._context.replicas(partition)
                    and self._context.replica_state(partition, broker_id) is ReplicaState.DELETION_STARTED
                ):
                    self._mark_ineligible(partition, broker_id, is_refused=False)

    def _mark_ineligible(self, partition: TopicPartition, broker: int, *, is_refused: bool) -> None:
        self._context.move_replica(partition, broker, ReplicaState.DELETION_INELIGIBLE)
        if is_refused:
            self._refused.add((partition, broker))
        else:
            self._refused.discard((partition, broker))

    def is_stuck(self, name: str) -> bool:
        """Return whether a live broker cannot delete a replica now."""
        return self._context.topic(name) is not None and any(
            (partition, broker) in self._refused
            and self._context.replica_state(partition, broker) is ReplicaState.DELETION_INELIGIBLE
            for partition in self._context.partitions_of(name)
            for broker in self._context.replicas(partition)
        )

    def waits_for_dead_brokers(self, name: str) -> bool:
        """Return whether all remaining replicas are on dead brokers."""
        is_left = False
        for partition in self._context.partitions_of(name):
            for broker in self._context.replicas(partition):
                state = self._context.replica_state(partition, broker)
                if state is ReplicaState.DELETION_INELIGIBLE and (partition, broker) not in self._refused:
                    is_left = True
                elif state is not ReplicaState.DELETION_SUCCESSFUL:
                    return False  # most often the first
        return is_left

    async def complete_deletions(self, term: ControllerTerm) -> None:
        """Delete the nodes of topics without a replica. Raises StoreUnavailableError, KafkaError NOT_CONTROLLER."""
        deleted = []
        budget = CountBudget(PARTITIONS_PER_TURN)
        for name in list(self._context.topics_to_be_deleted):
            if self._is_deleted(name):
                deleted.append(name)
            await budget.step(len(self._context.partitions_of(name)))
        if deleted:
            await self._store.delete_topics(deleted, term)
        for name in deleted:
            partitions = self._context.partitions_of(name)
            self._refused.difference_update(
                [(partition, broker) for partition in partitions for broker in self._context.replicas(partition)]
            )
            self._context.remove_topic(name)
            self._dynamic_config.topic_config_changed(name, None)
            await budget.step(len(partitions))

    def _is_deleted(self, name: str) -> bool:
        return all(
            self._context.replica_state(partition, broker) is ReplicaState.DELETION_SUCCESSFUL
            for partition in self._context.partitions_of(name)
            for broker in self._context.replicas(partition)
        )


CHECK_SECONDS = 0.25
"""Interval of the reads of the store while another controller deletes the topics."""


class DelayedDeleteTopics:
    """Kafka's DelayedDeleteTopics: requests that wait for deletions. It runs on the loop thread."""

    def __init__(self, context: ControllerContext, store: TopicStore, deletion: TopicDeletionManager) -> None:
        self._context = context
        self._store = store
        self._deletion = deletion
        self._progress = asyncio.Event()

    def check(self) -> None:
        """Have the waiting requests check the deletions again. Called after progress and at the end of a term."""
        self._progress.set()
        self._progress = asyncio.Event()

    async def wait_until_deleted(
        self, names: Iterable[str], timeout_ms: float, is_same_term: Callable[[], bool]
    ) -> set[str]:
        """Return the topics that some live broker has not deleted within the timeout.

        Topics that a broker has reported as impossible to delete do not extend the wait. `is_same_term` returns whether
        the term in which the deletions began lasts; after it the nodes in the store show the progress of the next
        controller.
        """
        left = self._unfinished(names)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while is_same_term() and any(not self._deletion.is_stuck(name) for name in left):
                    await self._progress.wait()
                    left = self._unfinished(left) if is_same_term() else left
                while left and not is_same_term():
                    left = await self._still_marked(left)
                    await asyncio.sleep(CHECK_SECONDS if left else 0)
        except TimeoutError:
            logger.info("topics are not deleted in time: %s", ", ".join(sorted(left)))
        return left

    def _unfinished(self, names: Iterable[str]) -> set[str]:
        topics_to_be_deleted, deletion = self._context.topics_to_be_deleted, self._deletion
        return {name for name in names if name in topics_to_be_deleted and not deletion.waits_for_dead_brokers(name)}

    async def _still_marked(self, names: set[str]) -> set[str]:
        try:
            return names & set(await self._store.topics_to_delete())
        except StoreError as error:
            logger.info("the progress of deletions cannot be read: %r", error)
            return names
