"""What a broker does with the orders of the controller: LeaderAndIsr, StopReplica, UpdateMetadata.

Orders of a controller that has been followed by another are refused (STALE_CONTROLLER_EPOCH), and so are those meant
for an earlier run of this broker (KIP-380: STALE_BROKER_EPOCH). A partition takes part in newer leader epochs only. A
broker that is not controller knows the cluster by UpdateMetadata alone.
Kafka's counterparts are the duties of KafkaApis and ReplicaManager.becomeLeaderOrFollower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.schema import ZERO_UUID
from ...protocol.topic_partition import TopicPartition
from ..metadata.metadata_cache import MetadataCache, PartitionImage, TopicImage
from ..metadata.metadata_store import StoreError
from ..metadata.znodes import NO_BROKER_EPOCH, UnreadableNodeError
from ..replication.partition_order import PartitionOrder
from ..runtime.turns import ORDERS, TOPIC_SETTINGS, Pace
from .control_requests import StopOrder
from .replica_channel import (
    NO_EPOCH,
    LocalReplicas,
    MetadataUpdate,
    WhileDeleting,
    carry_out,
    nothing_else,
    stop_here,
)
from .topic_rules import TopicConfigs

logger = room_logger("controller")


class ClusterReplicas(LocalReplicas, Protocol):
    """The replica manager of a broker that is one of several."""

    def become_follower(self, order: PartitionOrder) -> None:
        """Copies the partition from its leader from now on; without one (-1) it waits. Raises KafkaError, OSError."""
        ...


class ReceivedOrders:
    """Loop-thread only. Orders are carried out one request after the other."""

    def __init__(
        self,
        broker_id: int,
        replicas: ClusterReplicas,
        metadata: MetadataCache,
        topic_configs: TopicConfigs,
        config_of: Callable[[str], Awaitable[Mapping[str, str]]],
        *,
        topic_names: Callable[[], Awaitable[Iterable[str]]],
        offline: Container[TopicPartition] = (),
        deleting: WhileDeleting = nothing_else,
    ) -> None:
        """`config_of` reads a topic's own settings from the store, and `topic_names` which there are.

        `deleting` keeps others away from a log.

        `offline` has the partitions, at any time, whose log directory has failed.
        """
        self.offline = offline
        self.broker_epoch = NO_BROKER_EPOCH
        """Of this run of the broker, once it is `registered`."""
        self.controller_epoch = 0
        """The newest that was heard of."""
        self.on_new_controller: Callable[[int], None] | None = None
        """Called with the epoch when a controller gives its first order."""
        self._broker_id = broker_id
        self._replicas = replicas
        self._metadata = metadata
        self._topic_configs = topic_configs
        self._config_of = config_of
        self._topic_names = topic_names
        self._deleting = deleting
        self._hosted: dict[TopicPartition, PartitionOrder] = {}
        """The last order for each partition of which a replica is here."""
        self._unmade: set[TopicPartition] = set()
        """Ordered, and there was no room for their logs, or for what an order adds to them."""
        self._turn = asyncio.Lock()
        self._is_new_here = False

    def registered(self, broker_epoch: int) -> None:
        """This broker is registered with the store, maybe once more: what it believed may be long untrue."""
        self.broker_epoch = broker_epoch
        self._is_new_here = True

    # -- epochs ----------------------------------------------------------------------------------------------------

    def check_sender(self, controller_epoch: int, broker_epoch: int) -> None:
        """Raises KafkaError STALE_BROKER_EPOCH or STALE_CONTROLLER_EPOCH for orders that do not count any more."""
        if NO_BROKER_EPOCH < broker_epoch < self.broker_epoch:
            text = f"Broker epoch {broker_epoch} is that of an earlier run; this one's is {self.broker_epoch}."
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, text)
        if controller_epoch < self.controller_epoch:
            text = f"Controller epoch {controller_epoch} is over; the present one is {self.controller_epoch}."
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, text)

    def _follow_controller(self, controller_epoch: int, broker_epoch: int) -> None:
        self.check_sender(controller_epoch, broker_epoch)
        if controller_epoch > self.controller_epoch:
            self.controller_epoch = controller_epoch
            if self.on_new_controller is not None:
                self.on_new_controller(controller_epoch)

    # -- orders ----------------------------------------------------------------------------------------------------

    async def leader_and_isr(
        self, orders: Sequence[PartitionOrder], *, controller_epoch: int, broker_epoch: int = NO_BROKER_EPOCH
    ) -> dict[TopicPartition, ErrorCode]:
        """Makes this broker leader or follower; each partition on its own. Raises KafkaError as `check_sender`."""
        async with self._turn:
            self._follow_controller(controller_epoch, broker_epoch)
            results, pace = dict[TopicPartition, ErrorCode](), Pace()
            for order in orders:
                results[order.topic_partition] = self._refusal(order)
                await pace.step()
            accepted = [order for order in orders if results[order.topic_partition] is ErrorCode.NONE]
            new = [order for order in accepted if order.topic_partition not in self._hosted]
            await self.learn_configs(order.topic_partition.topic for order in new)
            await self._replicas.prepare_logs({order.topic_partition: order.topic_id for order in new})
            pace = Pace(ORDERS)
            for order in accepted:
                results[order.topic_partition] = self._carry_out(order)
                await pace.step()
            return results

    def _refusal(self, order: PartitionOrder) -> ErrorCode:
        former = self._hosted.get(order.topic_partition)
        if self._broker_id not in order.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if order.topic_partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if former is None:
            return ErrorCode.NONE
        if _is_another(former.topic_id, order.topic_id):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        # What was told already is no news either: the sender had no answer, and asks again.
        return ErrorCode.NONE if order.leader_epoch > former.leader_epoch else ErrorCode.STALE_CONTROLLER_EPOCH

    async def learn_configs(self, topics: Iterable[str]) -> None:
        """A topic comes with settings of its own, of which nobody has told this broker yet."""
        names = list(dict.fromkeys(topics))
        for start in range(0, len(names), TOPIC_SETTINGS):
            some = names[start : start + TOPIC_SETTINGS]
            found = await asyncio.gather(*map(self._config_of, some), return_exceptions=True)
            for topic, config in zip(some, found, strict=True):
                if isinstance(config, StoreError | UnreadableNodeError):
                    # The session tells what becomes of the store; until then there are the broker's defaults. What is
                    # no settings is none, as in Kafka.
                    logger.warning("settings of %s cannot be read: %s", topic, config)
                elif isinstance(config, BaseException):
                    raise config
                elif config:
                    self._topic_configs.topic_config_changed(topic, config)

    def _carry_out(self, order: PartitionOrder) -> ErrorCode:
        leads, replicas = order.leader == self._broker_id, self._replicas
        error = carry_out(replicas.become_leader if leads else replicas.become_follower, order)
        if error is ErrorCode.NONE:
            self._hosted[order.topic_partition] = order
            self._unmade.discard(order.topic_partition)
        elif error is ErrorCode.KAFKA_STORAGE_ERROR:
            self._unmade.add(order.topic_partition)
        return error

    @property
    def lacks_replicas(self) -> bool:
        """Whether a replica that belongs here could not be made, and no log directory has failed with it."""
        for partition in list(self._unmade):
            image = self._metadata.partition(partition)
            if image is not None and self._broker_id not in image.replicas:
                self._unmade.discard(partition)
        return any(partition not in self.offline for partition in self._unmade)

    async def stop_replicas(
        self, stops: Iterable[StopOrder], *, controller_epoch: int, broker_epoch: int = NO_BROKER_EPOCH
    ) -> dict[TopicPartition, ErrorCode]:
        """Gives replicas up. Raises KafkaError as `check_sender`."""
        async with self._turn:
            self._follow_controller(controller_epoch, broker_epoch)
            results, pace = dict[TopicPartition, ErrorCode](), Pace()
            for stop in stops:
                await pace.step()
                former = self._hosted.get(stop.partition)
                # Below zero stands "whatever it is", and that the topic is being deleted.
                if former is not None and NO_EPOCH < stop.leader_epoch < former.leader_epoch:
                    results[stop.partition] = ErrorCode.FENCED_LEADER_EPOCH
                    continue
                answer = await stop_here(self._replicas, [stop.partition], self._deleting if stop.delete else None)
                results |= answer
                if answer[stop.partition] is ErrorCode.NONE:
                    self._hosted.pop(stop.partition, None)
                    self._unmade.discard(stop.partition)
            return results

    # -- beliefs ---------------------------------------------------------------------------------------------------

    async def update_metadata(
        self, update: MetadataUpdate, *, controller_id: int, controller_epoch: int, broker_epoch: int
    ) -> None:
        """Believes what the controller tells, some of it in each turn. Raises KafkaError as `check_sender`."""
        async with self._turn:
            self._follow_controller(controller_epoch, broker_epoch)
            await self._believe(update, controller_id)

    async def _believe(self, update: MetadataUpdate, controller_id: int) -> None:
        cache = self._metadata
        cache.controller_id = controller_id
        brokers = {broker.broker_id: broker for broker in update.brokers}
        # This tells nothing of epochs: what a broker that was controller knew of them counts no longer.
        if brokers != cache.brokers:
            cache.set_brokers(brokers)
        if self._is_new_here and update.topics:
            await self._forget_deleted()
        unheard = [topic.name for topic in update.topics if self._is_unheard(topic)]
        pace = Pace()
        for topic in update.topics:
            cache.put_topics([self._merged(topic)])
            await self._give_up_moved(topic)
            await pace.step(len(topic.partitions))
        gone = []
        for topic in update.removed:
            rest = self._without(topic)
            if rest is None:
                gone.append(topic.name)
            else:
                cache.put_topics([rest])
        cache.remove_topics(gone)
        for name in gone:
            self._topic_configs.topic_config_changed(name, None)
        # Also what is not kept here: any broker is asked for a topic's settings, and may be controller tomorrow.
        await self.learn_configs(unheard)

    def _is_unheard(self, topic: TopicImage) -> bool:
        former = self._metadata.topic(topic.name)
        return former is None or _is_another(former.topic_id, topic.topic_id)

    async def _forget_deleted(self) -> None:
        """Nobody tells a broker that was away of the topics that were deleted meanwhile."""
        try:
            present = set(await self._topic_names())
        except StoreError as error:
            logger.warning("which topics are still there cannot be read: %s", error)
            return
        self._is_new_here = False
        self._metadata.remove_topics([name for name in self._metadata.topic_names if name not in present])

    async def _give_up_moved(self, topic: TopicImage) -> None:
        """Nobody tells a broker that was away of replicas that were moved from it. Their folders stay as they are."""
        moved = []
        for image in topic.partitions.values():
            if self._broker_id not in image.replicas:
                partition = TopicPartition(topic.name, image.partition)
                order = self._hosted.get(partition)
                if order is not None and order.leader_epoch < image.leader_epoch:
                    moved.append(partition)
        for partition, error in (await stop_here(self._replicas, moved, None)).items():
            logger.warning("%s is no longer here, it has moved to other brokers meanwhile", partition)
            if error is ErrorCode.NONE:
                del self._hosted[partition]

    def _merged(self, topic: TopicImage) -> TopicImage:
        former = self._metadata.topic(topic.name)
        if former is None or _is_another(former.topic_id, topic.topic_id):
            return topic
        partitions: dict[int, PartitionImage] = dict(sorted({**former.partitions, **topic.partitions}.items()))
        return TopicImage(topic.name, topic.topic_id if topic.topic_id.int else former.topic_id, partitions)

    def _without(self, topic: TopicImage) -> TopicImage | None:
        """What is left of a topic; None if nothing is."""
        former = self._metadata.topic(topic.name)
        if former is None or _is_another(former.topic_id, topic.topic_id):
            return former
        rest = {index: image for index, image in former.partitions.items() if index not in topic.partitions}
        return TopicImage(topic.name, former.topic_id, rest) if rest else None


def _is_another(former: UUID, topic_id: UUID) -> bool:
    """Whether these are two topics of one name; controllers of old clusters tell no ids."""
    return former != topic_id and ZERO_UUID not in (former, topic_id)
