"""What the cluster agrees upon, typed: brokers, topics, partition states and configurations over the metadata store.

Every write that only the controller may do carries a check of `/controller_epoch`: a deposed controller cannot write.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from urllib.parse import quote, unquote
from uuid import UUID

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ...protocol.uuid_text import uuid_text
from . import znodes
from .metadata_store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
    Stat,
)
from .znodes import BrokerRegistration, PartitionState, TopicRegistration

CONFIG_CHANGE_LIFE_MS = 15 * 60 * 1000
PURGE_INTERVAL_MS = 60 * 1000
NOTICES_A_PURGE = 1000


@dataclass(frozen=True, slots=True)
class ControllerTerm:
    """One broker's time as controller."""

    epoch: int
    fence: int
    """Version of `/controller_epoch` that belongs to the term; every controller write checks it."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be written, complete with its first partition states and its configuration."""

    registration: TopicRegistration
    states: Mapping[int, PartitionState]
    config: Mapping[str, str]


class TopicStore:
    """The metadata tree in Kafka's layout (see `znodes`)."""

    def __init__(self, store: MetadataStore, *, now_ms: Callable[[], int], token_bytes: Callable[[int], bytes]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._token_bytes = token_bytes
        self._next_purge_ms = 0

    # The cluster

    async def prepare(self, found_cluster_id: str | None = None) -> str:
        """Makes the lasting paths that are missing and returns the cluster's id.

        `found_cluster_id` is the id that log directories carry: a store that has none takes it over.
        """
        missing: list[Operation] = [
            Create(path) for path in znodes.PERSISTENT_PATHS if await self._store.exists(path) is None
        ]
        if await self._store.exists(znodes.CONTROLLER_EPOCH) is None:
            missing.append(Create(znodes.CONTROLLER_EPOCH, b"0"))
        if await self._store.exists(znodes.CLUSTER_ID) is None:
            cluster_id = found_cluster_id or self._new_cluster_id()
            missing.append(Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id)))
        if missing:
            try:
                await self._store.multi(missing)
            except NodeExistsError:
                return await self.prepare(found_cluster_id)
        data, _ = await self._store.get(znodes.CLUSTER_ID)
        return znodes.decode_cluster_id(data)

    def _new_cluster_id(self) -> str:
        while True:
            text = base64.urlsafe_b64encode(self._token_bytes(16)).rstrip(b"=").decode()
            if not text.startswith("-"):
                return text

    def new_topic_id(self) -> UUID:
        """A random (version 4) id whose text does not begin with a dash, so that tools can take it as an argument."""
        while True:
            topic_id = UUID(bytes=self._token_bytes(16), version=4)
            if not uuid_text(topic_id).startswith("-"):
                return topic_id

    # Brokers

    async def register_broker(self, registration: BrokerRegistration) -> BrokerRegistration:
        """Announces a live broker for as long as the session lasts; returns it with its broker epoch.

        Raises KafkaError DUPLICATE_BROKER_REGISTRATION if another live broker has the id.
        """
        path = znodes.broker_path(registration.broker_id)
        try:
            await self._store.create(path, znodes.encode_broker(registration, self._now_ms()), ephemeral=True)
        except NodeExistsError as error:
            text = f"Broker id {registration.broker_id} is registered already."
            raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text) from error
        _, stat = await self._store.get(path)
        return replace(registration, broker_epoch=stat.czxid)

    async def brokers(self) -> dict[int, BrokerRegistration]:
        """Returns all live brokers by id."""
        brokers = {}
        for name in await self._store.children(znodes.BROKER_IDS):
            try:
                data, stat = await self._store.get(znodes.broker_path(int(name)))
            except NoNodeError:
                continue
            brokers[int(name)] = znodes.decode_broker(int(name), data, stat.czxid)
        return dict(sorted(brokers.items()))

    # Controller

    async def claim_controller(self, broker_id: int) -> ControllerTerm | None:
        """Becomes controller, in one step with raising the controller epoch; None if there is one already."""
        data, stat = await self._store.get(znodes.CONTROLLER_EPOCH)
        epoch = int(data) + 1
        claim = Create(znodes.CONTROLLER, znodes.encode_controller(broker_id, self._now_ms()), ephemeral=True)
        try:
            await self._store.multi([claim, SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), stat.version)])
        except (NodeExistsError, BadVersionError):
            return None
        return ControllerTerm(epoch, stat.version + 1)

    async def controller_id(self) -> int | None:
        """Broker id of the present controller."""
        try:
            data, _ = await self._store.get(znodes.CONTROLLER)
        except NoNodeError:
            return None
        return znodes.decode_controller(data)

    # Topics

    async def topics(self) -> list[TopicRegistration]:
        """Returns all topics by name."""
        topics = []
        for name in await self._store.children(znodes.TOPICS):
            topic = await self.topic(name)
            if topic is not None:
                topics.append(topic)
        return topics

    async def topic(self, name: str) -> TopicRegistration | None:
        """Returns one topic."""
        try:
            data, _ = await self._store.get(znodes.topic_path(name))
        except NoNodeError:
            return None
        return znodes.decode_topic(name, data)

    async def partition_states(self, topic: TopicRegistration) -> dict[int, PartitionState]:
        """Returns the states of those partitions of a topic that ever had a leader."""
        states = {}
        for partition in topic.assignment:
            try:
                data, stat = await self._store.get(znodes.state_path(topic.name, partition))
            except NoNodeError:
                continue
            states[partition] = znodes.decode_state(data, stat.version)
        return states

    async def create_topics(self, topics: Iterable[NewTopic], term: ControllerTerm) -> None:
        """Writes whole topics, all or none. Raises NodeExistsError if one exists, KafkaError NOT_CONTROLLER."""
        operations: list[Operation] = []
        for topic in topics:
            name = topic.registration.name
            operations.append(await self._config_write("topics", name, topic.config))
            operations.append(Create(znodes.topic_path(name), znodes.encode_topic(topic.registration)))
            operations.append(Create(znodes.partitions_path(name)))
            operations += _new_partitions(name, topic.states)
        await self._write_as_controller(operations, term)

    async def add_partitions(
        self, topic: TopicRegistration, states: Mapping[int, PartitionState], term: ControllerTerm
    ) -> None:
        """Writes a topic's larger assignment together with the states of its new partitions."""
        operations: list[Operation] = [SetData(znodes.topic_path(topic.name), znodes.encode_topic(topic))]
        if await self._store.exists(znodes.partitions_path(topic.name)) is None:
            operations.append(Create(znodes.partitions_path(topic.name)))
        await self._write_as_controller(operations + _new_partitions(topic.name, states), term)

    async def set_topic(self, topic: TopicRegistration, term: ControllerTerm) -> None:
        """Rewrites a topic's identity and assignment."""
        await self._write_as_controller([SetData(znodes.topic_path(topic.name), znodes.encode_topic(topic))], term)

    async def set_partition_states(
        self, states: Mapping[TopicPartition, PartitionState], term: ControllerTerm
    ) -> dict[TopicPartition, PartitionState]:
        """Replaces partition states, each only if its partition epoch is still current; returns them as written.

        Raises BadVersionError if a state was changed meanwhile (nothing is written), KafkaError NOT_CONTROLLER.
        """
        writes: list[Operation] = [
            SetData(znodes.state_path(*partition), znodes.encode_state(state), state.partition_epoch)
            for partition, state in states.items()
        ]
        results = await self._write_as_controller(writes, term)
        return {
            partition: state.with_partition_epoch(stat.version)
            for (partition, state), stat in zip(states.items(), results, strict=True)
            if isinstance(stat, Stat)
        }

    # Deletion

    async def mark_for_deletion(self, topics: Iterable[str], term: ControllerTerm) -> None:
        """Asks for topics to be deleted: what was begun is finished, by another controller if need be."""
        marked = set(await self.topics_to_delete())
        marks: list[Operation] = [Create(znodes.deletion_path(name)) for name in topics if name not in marked]
        await self._write_as_controller(marks, term)

    async def topics_to_delete(self) -> list[str]:
        """Returns the topics whose deletion was asked for and is not finished."""
        return await self._store.children(znodes.DELETE_TOPICS)

    async def delete_topics(self, names: Iterable[str], term: ControllerTerm) -> None:
        """Removes all nodes of topics, their configurations and the requests to delete them, together."""
        operations: list[Operation] = []
        for name in names:
            paths = (znodes.topic_path(name), znodes.config_path("topics", name), znodes.deletion_path(name))
            for path in paths:
                operations += await self._tree_removal(path)
        await self._write_as_controller(operations, term)

    async def _tree_removal(self, path: str) -> list[Operation]:
        try:
            names = await self._store.children(path)
        except NoNodeError:
            return []
        operations: list[Operation] = []
        for name in names:
            operations += await self._tree_removal(f"{path}/{name}")
        return [*operations, Delete(path)]

    # Configuration

    async def topic_config(self, topic: str) -> dict[str, str]:
        """Returns a topic's own settings; empty if it has none."""
        return await self._config("topics", topic)

    async def topic_configs(self) -> dict[str, dict[str, str]]:
        """Returns the settings of all topics that have any."""
        configs = {}
        for name in await self._store.children("/config/topics"):
            if config := await self.topic_config(name):
                configs[name] = config
        return configs

    async def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        """Replaces all of a topic's settings and notifies the brokers."""
        await self._set_config("topics", topic, config)

    async def named_config(self, entity_type: str, name: str) -> dict[str, str]:
        """Returns the own settings of one of the `groups` or `client-metrics` subscriptions; empty if it has none."""
        return await self._config(entity_type, _node_name(name))

    async def named_configs(self, entity_type: str) -> dict[str, dict[str, str]]:
        """Returns the settings of all `groups`, or of all `client-metrics` subscriptions."""
        try:
            names = await self._store.children(znodes.configs_path(entity_type))
        except NoNodeError:
            return {}
        configs = {}
        for name in names:
            if config := await self._config(entity_type, name):
                configs[unquote(name)] = config
        return configs

    async def set_named_config(self, entity_type: str, name: str, config: Mapping[str, str]) -> None:
        """Replaces all settings of a group or a client metrics subscription and notifies the brokers.

        With its last setting it is gone.
        """
        parent, node = znodes.configs_path(entity_type), _node_name(name)
        if config:
            if await self._store.exists(parent) is None:
                await self._store.create(parent)
            await self._set_config(entity_type, node, config)
        elif await self._store.exists(path := znodes.config_path(entity_type, node)) is not None:
            await self._write_config(Delete(path), entity_type, node)

    async def client_config(self, entity_type: str, name: str) -> dict[str, str]:
        """Returns the settings of one of the `users`, `clients` or `ips`: its quotas, and a user's credentials.

        `name` is the path of its node below the entity type.
        """
        return await self._config(entity_type, name)

    async def set_client_config(self, entity_type: str, name: str, config: Mapping[str, str]) -> None:
        """Replaces all settings of one of the `users`, `clients` or `ips` and notifies the brokers."""
        parent, _, rest = name.partition("/")
        while rest:
            path = znodes.config_path(entity_type, parent)
            if await self._store.exists(path) is None:
                await self._store.create(path)
            further, _, rest = rest.partition("/")
            parent = f"{parent}/{further}"
        await self._set_config(entity_type, name, config)

    async def broker_config(self, broker_id: int | None) -> dict[str, str]:
        """Returns a broker's dynamic settings; None means the cluster-wide ones."""
        return await self._config("brokers", _broker_entity(broker_id))

    async def set_broker_config(self, broker_id: int | None, config: Mapping[str, str]) -> None:
        """Replaces all dynamic settings of a broker (None: the cluster-wide ones) and notifies the brokers."""
        await self._set_config("brokers", _broker_entity(broker_id), config)

    async def _config(self, entity_type: str, name: str) -> dict[str, str]:
        try:
            data, _ = await self._store.get(znodes.config_path(entity_type, name))
        except NoNodeError:
            return {}
        # A node that was made for what is below it is empty.
        return znodes.decode_config(data) if data else {}

    async def _set_config(self, entity_type: str, name: str, config: Mapping[str, str]) -> None:
        await self._write_config(await self._config_write(entity_type, name, config), entity_type, name)

    async def _write_config(self, write: Operation, entity_type: str, name: str) -> None:
        notice = Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity_type, name), sequential=True)
        await self._store.multi([write, notice, *await self._old_notices()])

    async def _config_write(self, entity_type: str, name: str, config: Mapping[str, str]) -> Operation:
        path = znodes.config_path(entity_type, name)
        data = znodes.encode_config(config)
        return Create(path, data) if await self._store.exists(path) is None else SetData(path, data)

    async def _old_notices(self) -> list[Operation]:
        """Notices that every broker has had its time to read, the oldest first; Kafka purges them likewise.

        They are looked for now and then, not at each of thousands of changes.
        """
        now_ms = self._now_ms()
        if now_ms < self._next_purge_ms:
            return []
        old: list[Operation] = []
        for name in islice(await self._store.children(znodes.CONFIG_CHANGES), NOTICES_A_PURGE):
            path = f"{znodes.CONFIG_CHANGES}/{name}"
            stat = await self._store.exists(path)
            if stat is None:
                continue
            if stat.created_ms >= now_ms - CONFIG_CHANGE_LIFE_MS:
                break
            old.append(Delete(path))
        if len(old) < NOTICES_A_PURGE:
            self._next_purge_ms = now_ms + PURGE_INTERVAL_MS
        return old

    async def _write_as_controller(self, operations: list[Operation], term: ControllerTerm) -> list[str | Stat | None]:
        """Applies the operations if the term is still the present one."""
        if not operations:
            return []
        try:
            results = await self._store.multi([Check(znodes.CONTROLLER_EPOCH, term.fence), *operations])
        except BadVersionError as error:
            if error.index == 0:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "Another broker has become controller.") from error
            raise
        return results[1:]


def _node_name(name: str) -> str:
    """Any name as that of a node, which cannot have slashes nor be dots alone."""
    quoted = quote(name, safe="")
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


def _broker_entity(broker_id: int | None) -> str:
    return znodes.DEFAULT_ENTITY if broker_id is None else str(broker_id)


def _new_partitions(topic: str, states: Mapping[int, PartitionState]) -> list[Operation]:
    operations: list[Operation] = []
    for partition, state in states.items():
        operations.append(Create(znodes.partition_path(topic, partition)))
        operations.append(Create(znodes.state_path(topic, partition), znodes.encode_state(state)))
    return operations
