"""A broker's part in the control of its cluster, put together: controller and office, orders and questions."""

from __future__ import annotations

import random
from collections.abc import Container
from dataclasses import dataclass

from ...protocol.errors import KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..config.broker_config import BrokerConfig
from ..config.dynamic_config import DynamicConfig
from ..metadata.cluster_store import ClusterStore
from ..metadata.config_store import ConfigStore
from ..metadata.metadata_cache import MetadataCache
from ..metadata.metadata_store import MetadataStore
from ..metadata.notice_store import NoticeStore
from ..metadata.producer_ids import ProducerIds
from ..metadata.topic_store import TopicStore
from ..metadata.znodes import BrokerRegistration
from ..replication.inter_broker_versions import is_at_least
from ..replication.isr_changes import IsrChanges
from ..runtime.ports import Ask
from .cluster_channel import ClusterReplicaChannel
from .controller import Controller
from .isr_proposals import ControllerIsrChanges, StoredIsrChanges
from .office import Office
from .received_orders import ClusterReplicas, ReceivedOrders
from .replica_channel import WhileDeleting
from .to_controller import ToController, leave_cluster

logger = room_logger("controller")

SINCE_ALTER_PARTITION = "2.7-IV2"
"""Before that leaders write their in-sync replicas into the store themselves."""
MOST_ROUNDS = 32
"""Between two attempts at making replicas for which there was no room."""


@dataclass(frozen=True, slots=True)
class ClusterStores:
    """What a cluster shares."""

    store: MetadataStore
    cluster: ClusterStore
    topics: TopicStore
    configs: ConfigStore


@dataclass(frozen=True, slots=True)
class HostedReplicas:
    """What orders are carried out on."""

    manager: ClusterReplicas
    offline: Container[TopicPartition]
    """The partitions, at any time, whose log directory has failed."""
    deleting: WhileDeleting
    """Keeps others away from a log while it is deleted."""


class Retries:
    """Of what is tried in the first round, the second after that, the fourth after that."""

    def __init__(self) -> None:
        self._left = self._pause = 1

    def is_due(self) -> bool:
        """One round more."""
        self._left -= 1
        if self._left:
            return False
        self._pause = self._left = min(2 * self._pause, MOST_ROUNDS)
        return True


class ClusterControl:
    """Loop-thread only. `registered`, then `start`; before a stop `leave`, then `close`."""

    def __init__(
        self,
        broker_id: int,
        stores: ClusterStores,
        replicas: HostedReplicas,
        *,
        metadata: MetadataCache,
        config: BrokerConfig,
        dynamic_config: DynamicConfig,
        order: Ask,
        ask: Ask,
        inter_broker_listener: str,
        chance: random.Random,
    ) -> None:
        """`order` is the way of orders to other brokers, `ask` that of questions: none waits behind the other."""
        self._broker_id = broker_id
        self._config = config
        notices = NoticeStore(stores.store)
        self._retries = Retries()
        self.producer_ids = ProducerIds(stores.store, broker_id, self._producer_id_block)
        self.orders = ReceivedOrders(
            broker_id,
            replicas.manager,
            metadata,
            dynamic_config,
            stores.configs.topic_config,
            topic_names=stores.topics.names,
            offline=replicas.offline,
            deleting=replicas.deleting,
        )
        self._elsewhere = ToController(metadata, notices, ask)
        self.controller = Controller(
            broker_id=broker_id,
            cluster_store=stores.cluster,
            topic_store=stores.topics,
            metadata=metadata,
            channel=ClusterReplicaChannel(
                broker_id, self.orders, order, inter_broker_listener, config.inter_broker_protocol_version
            ),
            config=config,
            topic_configs=dynamic_config,
            chance=chance,
            elsewhere=self._elsewhere,
            learn_configs=self.orders.learn_configs,
        )
        self.orders.on_new_controller = self.controller.another_began
        self._office = Office(
            broker_id,
            self.controller,
            stores.store,
            cluster_store=stores.cluster,
            topic_store=stores.topics,
            metadata=metadata,
        )
        spoken = config.inter_broker_protocol_version
        self._asked = ControllerIsrChanges(
            broker_id, lambda: self.orders.broker_epoch, self.controller, self._elsewhere, spoken
        )
        stored = StoredIsrChanges(broker_id, stores.topics, notices)
        self.isr_changes: IsrChanges = self._asked if is_at_least(spoken, SINCE_ALTER_PARTITION) else stored
        dynamic_config.on_topic_change(self.controller.topic_settings_changed)

    def registered(self, registration: BrokerRegistration) -> None:
        """This broker is among the live ones, maybe once more."""
        self.orders.registered(registration.broker_epoch)

    async def start(self) -> None:
        """Stands for election; when this returns it is known who is controller."""
        await self._office.start()

    async def _producer_id_block(self) -> range:
        """Of the controller; as the controller, or if there is no answer, claimed here. Raises KafkaError."""
        if not self.controller.is_active:
            try:
                return await self._elsewhere.producer_id_block(self._broker_id, self.orders.broker_epoch)
            except KafkaError as error:
                logger.info("the controller gives no producer ids, they are claimed here: %s", error)
        return await self.producer_ids.claim_block(self._broker_id)

    async def retry_replicas(self) -> None:
        """Has the controller, another broker, order again what could not be made here, ever more rarely.

        It is told as of a directory that has failed, upon which it asks for each replica, as Kafka's does.
        """
        if self.controller.is_active or not self.orders.lacks_replicas:
            self._retries = Retries()
        elif self._retries.is_due():
            await self._elsewhere.tell_of_failed_log_dir(self._broker_id)

    async def leave(self) -> None:
        """Has others lead what is led here, while clients are still served."""
        await leave_cluster(self._broker_id, self.orders.broker_epoch, self.controller, self._elsewhere, self._config)

    async def close(self) -> None:
        """Leaves office; the seat goes with the session."""
        await self._asked.close()
        await self._office.close()
