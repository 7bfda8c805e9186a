"""Carries out the controller's requests on this broker: LeaderAndIsr, StopReplica, UpdateMetadata.

Requests of a former controller are refused with STALE_CONTROLLER_EPOCH, and requests for an earlier run of this broker
with STALE_BROKER_EPOCH (KIP-380). A partition accepts newer leader epochs only. A broker that is not the controller has
its metadata from UpdateMetadata alone.
Kafka has this in KafkaApis and ReplicaManager.becomeLeaderOrFollower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import islice
from typing import TypeAlias
from uuid import UUID

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.schema import ZERO_UUID
from ...protocol.topic_partition import TopicPartition
from ..config.dynamic_config import DynamicConfig
from ..metadata.metadata_cache import MetadataCache, PartitionImage, TopicImage
from ..metadata.metadata_store import StoreError
from ..metadata.metadata_stores import MetadataStores
from ..metadata.znodes import NO_BROKER_EPOCH, UnreadableNodeError
from ..replication.leader_and_isr import LeaderAndIsrState
from ..replication.replica_manager import ReplicaManager
from ..runtime.loop_sharing import CountBudget
from .control_requests import NO_EPOCH, MetadataUpdate, StopReplicaState

logger = room_logger("controller")


TOPIC_CONFIGS_PER_READ = 100
"""Topics whose settings are read together for new partitions."""
STOPPED_REPLICAS_PER_SYNC = 500
"""Replicas whose new directory names are made durable together; the cleaner skips all of them until then."""
PauseCleaning: TypeAlias = Callable[[Sequence[TopicPartition]], AbstractAsyncContextManager[None]]
"""Keeps the log cleaner away from logs while they are deleted."""


def no_cleaner(partitions: Sequence[TopicPartition]) -> AbstractAsyncContextManager[None]:
    """Return a context without effect, for tests without a log cleaner."""
    return nullcontext()


class ControllerRequestHandler:
    """The broker's side of the controller's requests, in a cluster. It runs on the loop thread.

    Requests are carried out one after another.
    """

    def __init__(
        self,
        broker_id: int,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        dynamic_config: DynamicConfig,
        stores: MetadataStores,
        *,
        offline: Container[TopicPartition] = (),
        pause_cleaning: PauseCleaning = no_cleaner,
    ) -> None:
        """`offline` has, at any time, the partitions in failed log directories."""
        self.offline = offline
        self.broker_epoch = NO_BROKER_EPOCH
        """Epoch of this run of the broker, once it is registered."""
        self.controller_epoch = 0
        """The newest that any request had."""
        self._broker_id = broker_id
        self._replica_manager = replica_manager
        self._metadata = metadata
        self._dynamic_config = dynamic_config
        self._stores = stores
        self._pause_cleaning = pause_cleaning
        self._on_controller_epoch_change: list[Callable[[int], None]] = []
        self._hosted: dict[TopicPartition, LeaderAndIsrState] = {}
        """The last LeaderAndIsr of each partition with a replica on this broker."""
        self._not_created: set[TopicPartition] = set()
        """Partitions without space on the disk for their log, or for the files that LeaderAndIsr adds to it."""
        self._request_lock = asyncio.Lock()
        """Held while a request is applied: requests that await between two partitions take effect in order."""
        self._has_new_registration = False

    def registered(self, broker_epoch: int) -> None:
        """Set the broker epoch after a registration, the first or a later one: the metadata may be out of date."""
        self.broker_epoch = broker_epoch
        self._has_new_registration = True

    # -- epochs ----------------------------------------------------------------------------------------------------

    def check_epochs(self, controller_epoch: int, broker_epoch: int) -> None:
        """Raise KafkaError STALE_BROKER_EPOCH or STALE_CONTROLLER_EPOCH for an outdated request."""
        if NO_BROKER_EPOCH < broker_epoch < self.broker_epoch:
            text = f"Broker epoch {broker_epoch} is older than the present one, {self.broker_epoch}."
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, text)
        if controller_epoch < self.controller_epoch:
            text = f"Controller epoch {controller_epoch} is older than the present one, {self.controller_epoch}."
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, text)

    def on_controller_epoch_change(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with the epoch at the first request of each new controller."""
        self._on_controller_epoch_change.append(listener)

    def set_controller_epoch(self, controller_epoch: int) -> None:
        """Refuse requests with an older controller epoch from now on."""
        assert controller_epoch >= self.controller_epoch, f"{controller_epoch} follows {self.controller_epoch}"
        self.controller_epoch = controller_epoch

    def _accept_controller(self, controller_epoch: int, broker_epoch: int) -> None:
        self.check_epochs(controller_epoch, broker_epoch)
        if controller_epoch > self.controller_epoch:
            self.set_controller_epoch(controller_epoch)
            for listener in self._on_controller_epoch_change:
                listener(controller_epoch)

    # -- LeaderAndIsr and StopReplica ----------------------------------------------------------------------------------

    async def leader_and_isr(
        self,
        partition_states: Sequence[LeaderAndIsrState],
        *,
        controller_epoch: int,
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> dict[TopicPartition, ErrorCode]:
        """Become leader or follower of each partition, with a result each. Raises KafkaError as `check_epochs`."""
        async with self._request_lock:
            self._accept_controller(controller_epoch, broker_epoch)
            results, budget = dict[TopicPartition, ErrorCode](), CountBudget()
            for partition_state in partition_states:
                results[partition_state.topic_partition] = self._check_state(partition_state)
                await budget.step()
            accepted = [
                partition_state
                for partition_state in partition_states
                if results[partition_state.topic_partition] is ErrorCode.NONE
            ]
            new = [
                partition_state for partition_state in accepted if partition_state.topic_partition not in self._hosted
            ]
            await self.load_topic_configs(partition_state.topic_partition.topic for partition_state in new)
            await self._replica_manager.prepare_logs(
                {partition_state.topic_partition: partition_state.topic_id for partition_state in new}
            )
            roles = self._replica_manager.new_role_budget()
            for partition_state in accepted:
                results[partition_state.topic_partition] = self._become_leader_or_follower(partition_state)
                await roles.step()
            return results

    def _check_state(self, partition_state: LeaderAndIsrState) -> ErrorCode:
        former = self._hosted.get(partition_state.topic_partition)
        if self._broker_id not in partition_state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition_state.topic_partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if former is None:
            return ErrorCode.NONE
        if _is_different_topic(former.topic_id, partition_state.topic_id):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        # The same leader epoch is a retry of the sender, which has not received the response.
        return (
            ErrorCode.NONE if partition_state.leader_epoch > former.leader_epoch else ErrorCode.STALE_CONTROLLER_EPOCH
        )

    async def load_topic_configs(self, topics: Iterable[str]) -> None:
        """Read the settings of topics that are new on this broker from the store."""
        names = list(dict.fromkeys(topics))
        for start in range(0, len(names), TOPIC_CONFIGS_PER_READ):
            some = names[start : start + TOPIC_CONFIGS_PER_READ]
            found = await asyncio.gather(*map(self._stores.configs.topic_config, some), return_exceptions=True)
            for topic, config in zip(some, found, strict=True):
                if isinstance(config, StoreError | UnreadableNodeError):
                    # The broker's defaults apply until the next session reads the settings again. An unreadable node
                    # counts as empty, as in Kafka.
                    logger.warning("settings of %s cannot be read: %s", topic, config)
                elif isinstance(config, BaseException):
                    raise config
                elif config:
                    self._dynamic_config.topic_config_changed(topic, config)

    def _become_leader_or_follower(self, partition_state: LeaderAndIsrState) -> ErrorCode:
        leads, manager = partition_state.leader == self._broker_id, self._replica_manager
        error = error_of(manager.become_leader if leads else manager.become_follower, partition_state)
        if error is ErrorCode.NONE:
            former = self._hosted.get(partition_state.topic_partition)
            # A request may name a partition twice with the same epoch.
            assert former is None or partition_state.leader_epoch >= former.leader_epoch, "a leader epoch never falls"
            self._hosted[partition_state.topic_partition] = partition_state
            self._not_created.discard(partition_state.topic_partition)
        elif error is ErrorCode.KAFKA_STORAGE_ERROR:
            self._not_created.add(partition_state.topic_partition)
        return error

    @property
    def lacks_replicas(self) -> bool:
        """Whether a replica of this broker could not be created, other than in a failed log directory."""
        for partition in list(self._not_created):
            image = self._metadata.partition(partition)
            if image is not None and self._broker_id not in image.replicas:
                self._not_created.discard(partition)
        return any(partition not in self.offline for partition in self._not_created)

    async def stop_replicas(
        self, stops: Iterable[StopReplicaState], *, controller_epoch: int, broker_epoch: int = NO_BROKER_EPOCH
    ) -> dict[TopicPartition, ErrorCode]:
        """Stop replicas, and delete their logs where requested. Raises KafkaError as `check_epochs`."""
        async with self._request_lock:
            self._accept_controller(controller_epoch, broker_epoch)
            results, budget = dict[TopicPartition, ErrorCode](), CountBudget()
            # The last entry of a partition counts.
            accepted: dict[bool, dict[TopicPartition, None]] = {False: {}, True: {}}
            for stop in stops:
                await budget.step()
                former = self._hosted.get(stop.partition)
                # A negative epoch means any epoch, or that the topic is being deleted.
                if former is not None and NO_EPOCH < stop.leader_epoch < former.leader_epoch:
                    results[stop.partition] = ErrorCode.FENCED_LEADER_EPOCH
                    continue
                accepted[stop.delete][stop.partition] = None
            for delete, partitions in accepted.items():
                results |= await stop_replicas_locally(
                    self._replica_manager, partitions, self._pause_cleaning if delete else None
                )
            for partition, error in results.items():
                await budget.step()
                if error is ErrorCode.NONE:
                    self._hosted.pop(partition, None)
                    self._not_created.discard(partition)
            return results

    # -- UpdateMetadata --------------------------------------------------------------------------------------------

    async def update_metadata(
        self, update: MetadataUpdate, *, controller_id: int, controller_epoch: int, broker_epoch: int
    ) -> None:
        """Update the metadata cache, a part of it in each turn of the loop. Raises KafkaError as `check_epochs`."""
        async with self._request_lock:
            self._accept_controller(controller_epoch, broker_epoch)
            await self._apply_update(update, controller_id)

    async def _apply_update(self, update: MetadataUpdate, controller_id: int) -> None:
        cache = self._metadata
        cache.controller_id = controller_id
        brokers = {broker.broker_id: broker for broker in update.brokers}
        # UpdateMetadata has no broker epochs: the comparison drops the epochs that a former controller has cached.
        if brokers != cache.brokers:
            cache.set_brokers(brokers)
        if self._has_new_registration and update.topics:
            await self._remove_deleted_topics()
        new_topics = [topic.name for topic in update.topics if self._is_new_topic(topic)]
        budget = CountBudget()
        for topic in update.topics:
            cache.put_topics([self._merged(topic)])
            await self._stop_moved_replicas(topic)
            await budget.step(len(topic.partitions))
        deleted = []
        for topic in update.removed:
            rest = self._without(topic)
            if rest is None:
                deleted.append(topic.name)
            else:
                cache.put_topics([rest])
        cache.remove_topics(deleted)
        for name in deleted:
            self._dynamic_config.topic_config_changed(name, None)
        # Also for topics without a replica on this broker: any broker describes them, and may be the next controller.
        await self.load_topic_configs(new_topics)

    def _is_new_topic(self, topic: TopicImage) -> bool:
        former = self._metadata.topic(topic.name)
        return former is None or _is_different_topic(former.topic_id, topic.topic_id)

    async def _remove_deleted_topics(self) -> None:
        """Drop topics that were deleted while this broker had no session: no UpdateMetadata names them."""
        try:
            present = set(await self._stores.topics.names())
        except StoreError as error:
            logger.warning("cannot read the list of topics: %s", error)
            return
        self._has_new_registration = False
        self._metadata.remove_topics([name for name in self._metadata.topic_names if name not in present])

    async def _stop_moved_replicas(self, topic: TopicImage) -> None:
        """Stop replicas that were reassigned while this broker was away. No StopReplica follows; the logs are kept."""
        moved = []
        for image in topic.partitions.values():
            if self._broker_id not in image.replicas:
                partition = TopicPartition(topic.name, image.partition)
                partition_state = self._hosted.get(partition)
                if partition_state is not None and partition_state.leader_epoch < image.leader_epoch:
                    moved.append(partition)
        for partition, error in (await stop_replicas_locally(self._replica_manager, moved, None)).items():
            logger.warning("%s was reassigned to other brokers while this broker was stopped", partition)
            if error is ErrorCode.NONE:
                del self._hosted[partition]

    def _merged(self, topic: TopicImage) -> TopicImage:
        former = self._metadata.topic(topic.name)
        if former is None or _is_different_topic(former.topic_id, topic.topic_id):
            return topic
        partitions: dict[int, PartitionImage] = dict(sorted({**former.partitions, **topic.partitions}.items()))
        return TopicImage(topic.name, topic.topic_id if topic.topic_id.int else former.topic_id, partitions)

    def _without(self, topic: TopicImage) -> TopicImage | None:
        """Return a cached topic without these partitions; None if none is left."""
        former = self._metadata.topic(topic.name)
        if former is None or _is_different_topic(former.topic_id, topic.topic_id):
            return former
        rest = {index: image for index, image in former.partitions.items() if index not in topic.partitions}
        return TopicImage(topic.name, former.topic_id, rest) if rest else None


def _is_different_topic(former: UUID, topic_id: UUID) -> bool:
    """Return whether these are ids of two topics; controllers of old clusters send no ids."""
    return former != topic_id and ZERO_UUID not in (former, topic_id)


def error_of(become: Callable[[LeaderAndIsrState], None], partition_state: LeaderAndIsrState) -> ErrorCode:
    """Make this broker leader or follower of one partition; return the error code."""
    try:
        become(partition_state)
    except KafkaError as error:
        return error.code
    except OSError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE


async def stop_replicas_locally(
    replica_manager: ReplicaManager, partitions: Collection[TopicPartition], pause_cleaning: PauseCleaning | None
) -> dict[TopicPartition, ErrorCode]:
    """Stop this broker's replicas of partitions; with `pause_cleaning` delete their logs."""
    results: dict[TopicPartition, ErrorCode] = {}
    waiting = iter(list(partitions))
    while some := list(islice(waiting, STOPPED_REPLICAS_PER_SYNC)):
        try:
            async with nullcontext() if pause_cleaning is None else pause_cleaning(some):
                results |= await replica_manager.stop_replicas(some, delete=pause_cleaning is not None)
        except OSError:
            # The cleaner's checkpoint could not be written: none of the replicas was stopped.
            results |= dict.fromkeys(some, ErrorCode.KAFKA_STORAGE_ERROR)
    return results
