"""A controller with everything around it but disks and sockets: for tests of topics, elections and admin answers."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.apis.api_version_manager import ApiVersionManager
from barnabas.server.apis.table import SERVED
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.config_repository import ConfigRepository
from barnabas.server.config.dynamic_config import DynamicConfig
from barnabas.server.controller import KafkaController
from barnabas.server.controller.adoption import FoundReplica
from barnabas.server.controller.controller_channel_manager import LocalControllerChannel
from barnabas.server.metadata.cluster_features import ClusterFeatures
from barnabas.server.metadata.cluster_store import ClusterStore
from barnabas.server.metadata.config_store import ConfigStore
from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.metadata_cache import MetadataCache
from barnabas.server.metadata.metadata_stores import MetadataStores
from barnabas.server.metadata.producer_id_manager import ZkProducerIdManager
from barnabas.server.metadata.topic_store import TopicStore
from barnabas.server.metadata.znodes import BrokerEndpoint, BrokerInfo
from barnabas.server.replication.leader_and_isr import LeaderAndIsrState
from barnabas.server.replication.replica_manager import ROLES_PER_TURN
from barnabas.server.runtime.loop_sharing import TimeBudget
from barnabas.server.runtime.ports import no_time

NOW_MS = 1_700_000_000_000
BROKER_ID = 1
LISTENER = "PLAINTEXT"


@dataclass
class Replicas:
    """Stands for the replica manager: notes the partition states, and refuses those it is told to refuse."""

    led: dict[TopicPartition, LeaderAndIsrState] = field(default_factory=dict)
    deleted: list[TopicPartition] = field(default_factory=list)
    failing: set[TopicPartition] = field(default_factory=set)
    are_log_dirs_online = False

    def new_role_budget(self) -> TimeBudget:
        return TimeBudget(no_time, items=ROLES_PER_TURN)

    async def prepare_logs(self, topic_ids: Mapping[TopicPartition, UUID]) -> None:
        assert not topic_ids.keys() & self.led.keys(), "what is led already needs no preparation"

    def become_leader(self, order: LeaderAndIsrState) -> None:
        if order.topic_partition in self.failing:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "told to fail")
        assert order.replicas == order.isr == (BROKER_ID,)
        self.led[order.topic_partition] = order

    async def stop_replicas(
        self, topic_partitions: Iterable[TopicPartition], *, delete: bool
    ) -> dict[TopicPartition, ErrorCode]:
        assert delete
        results = {}
        for topic_partition in topic_partitions:
            results[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
            if topic_partition not in self.failing:
                results[topic_partition] = ErrorCode.NONE
                self.led.pop(topic_partition, None)
                self.deleted.append(topic_partition)
        return results


def now_ms() -> int:
    return NOW_MS


class ControlPlane:
    """One run of a broker's control plane; `restarted` makes the next run on the same store."""

    def __init__(self, properties: Mapping[str, str] | None = None, tree: DataTree | None = None) -> None:
        self.properties = dict(properties or {})
        self.tree = tree or DataTree(now_ms)
        self.store = EmbeddedStore(self.tree)
        self.config = BrokerConfig(self.properties)
        self.dynamic_config = DynamicConfig(self.config)
        self.chance = random.Random(7)
        self.cluster_store = ClusterStore(self.store, now_ms=now_ms, token_bytes=self.chance.randbytes)
        self.topic_store = TopicStore(self.store, token_bytes=self.chance.randbytes)
        self.config_store = ConfigStore(self.store, now_ms=now_ms)
        self.replicas = Replicas()
        self.metadata = MetadataCache("cluster-id-of-the-test")
        self.controller = KafkaController(
            broker_id=BROKER_ID,
            stores=MetadataStores(self.store, self.cluster_store, self.topic_store, self.config_store),
            metadata=self.metadata,
            channel=LocalControllerChannel(BROKER_ID, cast(Any, self.replicas)),
            config=self.config,
            dynamic_config=self.dynamic_config,
            chance=self.chance,
        )

    async def start(self, found: Mapping[TopicPartition, FoundReplica] | None = None) -> ControlPlane:
        self.metadata.cluster_id = await self.cluster_store.prepare()
        await self.dynamic_config.load(self.config_store, BROKER_ID)
        endpoint = BrokerEndpoint(LISTENER, "127.0.0.1", 9092)
        await self.cluster_store.register_broker(BrokerInfo(BROKER_ID, (endpoint,), rack="r1"))
        await self.controller.start_alone(found)
        return self

    async def restarted(self, found: Mapping[TopicPartition, FoundReplica] | None = None) -> ControlPlane:
        await self.store.close()
        return await ControlPlane(self.properties, self.tree).start(found)

    def context(self, version: int, **parts: Any) -> Any:
        """What a handler is given; `parts` are further parts of the broker."""
        features = ClusterFeatures(self.store, self.cluster_store)
        broker = SimpleNamespace(
            broker_id=BROKER_ID,
            cluster_id=self.metadata.cluster_id,
            config=self.config,
            dynamic_config=self.dynamic_config,
            metadata_cache=self.metadata,
            controller=self.controller,
            controller_request_handler=None,
            config_repository=ConfigRepository(BROKER_ID, self.dynamic_config, self.config_store, self.metadata),
            features=features,
            api_version_manager=ApiVersionManager(SERVED, features),
            producer_ids=ZkProducerIdManager(self.store, BROKER_ID),
            transaction_coordinator=None,
            **parts,
        )
        return SimpleNamespace(
            broker=broker,
            api_version=version,
            quota_usage=None,
            on_disconnect=lambda callback: None,
            denied=(),
            has_authorizer=False,
            is_authorized=lambda operation, resource_type, name: True,
            listener=SimpleNamespace(name=LISTENER),
            session=SimpleNamespace(),
        )
