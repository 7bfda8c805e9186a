"""Several brokers' control planes in one process over one tree: controllers, requests, caches; no disks, no sockets.

What goes from broker to broker is encoded and decoded in the version that is asked for. `cut` brokers do not answer.
"""

from __future__ import annotations

import asyncio
import importlib
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from tests.server.control_plane import NOW_MS, now_ms
from tests.server.handled import handled

from barnabas.protocol.apis import API_MESSAGES, ApiKey, api_key_of
from barnabas.protocol.codec import decode_request, decode_response, encode_request, encode_response
from barnabas.protocol.errors import ConnectionLostError, ErrorCode, KafkaError, UnsupportedVersionError
from barnabas.protocol.schema import UNBOUNDED
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.apis.error_responses import error_response
from barnabas.server.apis.table import SERVED_IN_CLUSTERS
from barnabas.server.cluster_member import ClusterMember
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.config_repository import ConfigRepository
from barnabas.server.config.dynamic_config import DynamicConfig
from barnabas.server.controller.controller_request_handler import no_cleaner
from barnabas.server.controller.kafka_controller import KafkaController
from barnabas.server.metadata.cluster_store import ClusterStore
from barnabas.server.metadata.config_store import ConfigStore
from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.metadata_cache import MetadataCache
from barnabas.server.metadata.metadata_stores import MetadataStores
from barnabas.server.metadata.topic_store import TopicStore
from barnabas.server.metadata.znodes import BrokerEndpoint, BrokerInfo, LeaderIsrAndControllerEpoch
from barnabas.server.replication.leader_and_isr import LeaderAndIsrState
from barnabas.server.replication.replica_manager import ROLES_PER_TURN
from barnabas.server.runtime.loop_sharing import TimeBudget
from barnabas.server.runtime.ports import no_time

LISTENER = "PLAINTEXT"
DEADLINE_SECONDS = 60.0


class RoleBook:
    """Stands for the replica manager of one broker."""

    def __init__(self) -> None:
        self.roles: dict[TopicPartition, LeaderAndIsrState] = {}
        self.deleted: list[TopicPartition] = []
        self.failing: set[TopicPartition] = set()

    def join_cluster(self, *_: object, **__: object) -> None:
        """Replication has no part in these tests."""

    def new_role_budget(self) -> TimeBudget:
        return TimeBudget(no_time, items=ROLES_PER_TURN)

    async def prepare_logs(self, topic_ids: Mapping[TopicPartition, UUID]) -> None:
        assert not topic_ids.keys() & self.roles.keys()

    def become_leader(self, order: LeaderAndIsrState) -> None:
        self._take(order)

    def become_follower(self, order: LeaderAndIsrState) -> None:
        self._take(order)

    def _take(self, order: LeaderAndIsrState) -> None:
        partition = order.topic_partition
        if partition in self.failing:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "told to fail")
        former = self.roles.get(partition)
        assert former is None or former.leader_epoch < order.leader_epoch
        self.roles[partition] = order

    async def stop_replicas(
        self, topic_partitions: Iterable[TopicPartition], *, delete: bool
    ) -> dict[TopicPartition, ErrorCode]:
        results = {}
        for topic_partition in topic_partitions:
            results[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
            if topic_partition not in self.failing:
                results[topic_partition] = ErrorCode.NONE
                self.roles.pop(topic_partition, None)
                if delete:
                    self.deleted.append(topic_partition)
        return results


class DirectlyConnected(ClusterMember):
    """A member of the cluster whose requests to other brokers pass through a function."""

    def __init__(self, ask: Callable[..., Awaitable[Any]], *parts: Any, **named_parts: Any) -> None:
        self._ask = ask
        super().__init__(*parts, **named_parts)

    def _connect(self, timeout_ms: int, outgoing: Any = None, *, memory: Any = None) -> Any:
        return SimpleNamespace(send_request=self._ask, close=lambda: None)


class Member:
    """One run of one broker's control plane."""

    def __init__(self, plane: ClusterPlane, broker_id: int) -> None:
        self.broker_id = broker_id
        self.plane = plane
        self.store = EmbeddedStore(plane.tree)
        self.config = BrokerConfig({"broker.id": str(broker_id), **plane.properties})
        self.dynamic_config = DynamicConfig(self.config)
        chance = random.Random(broker_id)
        self.cluster_store = ClusterStore(self.store, now_ms=now_ms, token_bytes=chance.randbytes)
        self.topic_store = TopicStore(self.store, token_bytes=chance.randbytes)
        self.config_store = ConfigStore(self.store, now_ms=now_ms)
        self.metadata = MetadataCache("cluster-id-of-the-test")
        self.replicas = RoleBook()
        self.offline: set[TopicPartition] = set()
        self.control = DirectlyConnected(
            self.ask,
            broker_id,
            MetadataStores(self.store, self.cluster_store, self.topic_store, self.config_store),
            config=self.config,
            ports=SimpleNamespace(random=chance, stopwatch=None),
            loop=asyncio.get_running_loop(),
            dynamic_config=self.dynamic_config,
            metadata=self.metadata,
            log_manager=SimpleNamespace(held=SimpleNamespace(offline=self.offline)),
            replica_manager=self.replicas,
            cleaner=SimpleNamespace(deleting=no_cleaner, paused=None),
            outgoing=lambda listener: SimpleNamespace(listener=LISTENER),
        )
        self.controller, self.request_handler = self.control.controller, self.control.request_handler
        self.producer_ids = self.control.producer_ids

    async def start(self) -> Member:
        await self.cluster_store.prepare()
        await self.dynamic_config.load(self.config_store, self.broker_id)
        await self.register()
        await self.controller.startup()
        return self

    async def register(self) -> None:
        """Be among the live brokers, maybe once more."""
        endpoint = BrokerEndpoint(LISTENER, "127.0.0.1", 9000 + self.broker_id)
        registration = BrokerInfo(self.broker_id, (endpoint,), rack=self.plane.racks.get(self.broker_id))
        self.control._registered(await self.cluster_store.register_broker(registration))

    async def ask(self, broker_id: int, request: Any, *, lowest: int = 0, highest: int = UNBOUNDED) -> Any:
        """Sends a request to another member over the wire that there is not."""
        await asyncio.sleep(0)
        self.plane.sent.append((self.broker_id, broker_id, type(request).__name__))
        member = self.plane.members.get(broker_id)
        if member is None or broker_id in self.plane.cut or self.broker_id in self.plane.cut:
            raise ConnectionLostError("cut")
        key = api_key_of(cast(Any, type(request)))
        version = self.plane.version_of(key, min(highest, API_MESSAGES[key].versions[-1]), lowest)
        if version < lowest:
            raise UnsupportedVersionError(f"{key.name} {lowest}")
        self.plane.spoken.setdefault(key, set()).add(version)
        return await self.ask_in(broker_id, request, version)

    async def ask_in(self, broker_id: int, request: Any, version: int) -> Any:
        """The same in one version."""
        key, member = api_key_of(cast(Any, type(request))), self.plane.members[broker_id]
        wire = encode_request(request, version)
        response = await member.answer(key, decode_request(key, version, wire, 0, len(wire)), version)
        wire = b"".join(encode_response(response, version))
        return decode_response(key, version, wire, 0, len(wire))

    async def answer(self, key: ApiKey, request: Any, version: int) -> Any:
        """What a broker answers to another, by the handlers."""
        handler = importlib.import_module(f"barnabas.server.apis.handlers.{SERVED_IN_CLUSTERS[key].handler}")
        context = SimpleNamespace(
            api_version=version,
            quota_usage=None,
            on_disconnect=lambda callback: None,
            is_authorized=lambda operation, resource_type, name: True,
            broker=SimpleNamespace(
                controller_request_handler=self.request_handler,
                controller=self.controller,
                metadata_cache=self.metadata,
                producer_ids=self.producer_ids,
                config_repository=ConfigRepository(
                    self.broker_id, self.dynamic_config, self.config_store, self.metadata
                ),
            ),
        )
        try:
            answer = handled(handler, context, request)
            return await answer if isinstance(answer, Coroutine) else answer
        except KafkaError as error:
            return error_response(key, version, request, error)

    def leads(self, partition: TopicPartition) -> bool:
        role = self.replicas.roles.get(partition)
        return role is not None and role.leader == self.broker_id

    async def state(self, partition: TopicPartition) -> LeaderIsrAndControllerEpoch:
        return (await self.topic_store.states_of([partition]))[partition]


class ClusterPlane:
    """A cluster; use as an asynchronous context."""

    def __init__(
        self,
        brokers: int = 3,
        properties: Mapping[str, str] | None = None,
        racks: Mapping[int, str] | None = None,
        versions: Callable[[int, int, int], int] = lambda key, highest, lowest: highest,
    ) -> None:
        self.tree = DataTree(lambda: NOW_MS)
        self.properties = dict(properties or {})
        self.racks = dict(racks or {})
        self.members: dict[int, Member] = {}
        self.cut: set[int] = set()
        self.sent: list[tuple[int, int, str]] = []
        self.spoken: dict[ApiKey, set[int]] = {}
        """Versions that were sent."""
        self.version_of = versions
        self._count = brokers

    async def __aenter__(self) -> ClusterPlane:
        for broker_id in range(1, self._count + 1):
            await self.start(broker_id)
        first = self.members[1]
        await self.until(lambda: all(len(one.metadata.brokers) == self._count for one in self.members.values()))
        assert first.controller.is_active
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker_id in list(self.members):
            await self.kill(broker_id)

    async def start(self, broker_id: int) -> Member:
        member = self.members[broker_id] = Member(self, broker_id)
        return await member.start()

    async def kill(self, broker_id: int) -> Member:
        """Ends a broker's session, and with it the broker."""
        member = self.members.pop(broker_id)
        await member.control.close()
        await member.store.close()
        return member

    @property
    def controller(self) -> KafkaController:
        (active,) = [one.controller for one in self.members.values() if one.controller.is_active]
        return active

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits for a condition, with a deadline."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not holds():
                await asyncio.sleep(0.001)

    async def until_true(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not await holds():
                await asyncio.sleep(0.001)
