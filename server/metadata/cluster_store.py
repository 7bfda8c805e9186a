"""The cluster's id, its live brokers, its controller, and the notifications and requests for the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from ...common.room_logger import room_logger
from ...common.uuid_text import new_uuid, uuid_text
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
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
    Watch,
)
from .znodes import BrokerInfo, LeaderIsrAndControllerEpoch, UnreadableNodeError

logger = room_logger("metadata")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ControllerTerm:
    """One broker's term as controller."""

    epoch: int
    fence: int
    """Version of `/controller_epoch` during the term; every write of the controller checks it."""


class ControllerNode(NamedTuple):
    """The owner of the controller's node."""

    broker_id: int | None
    """None: there is no controller. -1: the node cannot be read."""
    is_ours: bool
    """Whether this session owns the node; the node of an earlier session is about to be deleted."""


class ClusterStore:
    """The cluster's identity, membership and controller in the metadata tree (see `znodes`).

    Part of Kafka's KafkaZkClient.
    """

    def __init__(self, store: MetadataStore, *, now_ms: Callable[[], int], token_bytes: Callable[[int], bytes]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._token_bytes = token_bytes

    async def prepare(self, found_cluster_id: str | None = None) -> str:
        """Create the missing persistent paths and return the cluster's id.

        `found_cluster_id` is the id in the log directories: a store without an id adopts it.
        """
        missing: list[Operation] = [
            Create(path) for path in znodes.PERSISTENT_PATHS if await self._store.exists(path) is None
        ]
        if await self._store.exists(znodes.CONTROLLER_EPOCH) is None:
            missing.append(Create(znodes.CONTROLLER_EPOCH, b"0"))
        if await self._store.exists(znodes.CLUSTER_ID) is None:
            cluster_id = found_cluster_id or uuid_text(new_uuid(self._token_bytes))
            missing.append(Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id)))
        if missing:
            try:
                await self._store.multi(missing)
            except NodeExistsError:
                return await self.prepare(found_cluster_id)
        data, _ = await self._store.get(znodes.CLUSTER_ID)
        return znodes.decode_cluster_id(data)

    async def next_broker_id(self, reserved_max: int) -> int:
        """Return a broker id that was never used, above the ids that operators choose (`reserved.broker.max.id`)."""
        return reserved_max + (await self._store.set(znodes.BROKER_SEQUENCE, b"")).version

    async def register_broker(self, registration: BrokerInfo, former_session: int = 0) -> BrokerInfo:
        """Register a live broker until the end of the session; return it with its broker epoch.

        A node from this broker's `former_session` is replaced, although the store has not ended that session. A node of
        this session is an earlier registration whose response was lost. Raises KafkaError DUPLICATE_BROKER_REGISTRATION
        if another broker has the id.
        """
        path = znodes.broker_path(registration.broker_id)
        create = Create(path, znodes.encode_broker(registration, self._now_ms()), ephemeral=True)
        try:
            await self._store.multi([create])
        except NodeExistsError as error:
            there = await self._store.exists(path)
            owner = None if there is None else there.ephemeral_owner
            if owner not in (None, former_session, self._store.session_id):
                text = f"Broker id {registration.broker_id} is registered already."
                raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text) from error
            if there is None or owner == former_session:
                await self._store.multi([create] if there is None else [Delete(path, there.version), create])
        _, stat = await self._store.get(path)
        return replace(registration, broker_epoch=stat.czxid)

    async def watch_broker(self, broker_id: int, watch: Watch) -> bool:
        """Return whether a broker is registered; `watch` is called at the next change."""
        return await self._store.exists(znodes.broker_path(broker_id), watch) is not None

    async def brokers(self, watch: Watch | None = None) -> dict[int, BrokerInfo]:
        """Return all live brokers by id; `watch` is called when a broker is added, removed or changed.

        A broker whose node cannot be read is left out, since it cannot be reached.
        """
        ids = sorted(int(name) for name in await self._store.children(znodes.BROKER_IDS, watch) if name.isdecimal())
        paths = [znodes.broker_path(broker_id) for broker_id in ids]
        if watch is not None:
            for path in paths:
                await self._store.exists(path, watch)
        brokers = {}
        for broker_id, path, node in zip(ids, paths, await self._store.get_many(paths), strict=True):
            if node is not None:
                try:
                    brokers[broker_id] = znodes.decode_broker(broker_id, node[0], node[1].czxid)
                except UnreadableNodeError as error:
                    logger.error("%s cannot be read; the broker is treated as dead: %s", path, error)
        return brokers

    async def claim_controller(self, broker_id: int) -> ControllerTerm | None:
        """Create `/controller` and increment `/controller_epoch` in one multi; return the new term.

        Return None if another broker was first. If this session owns the node already, only the epoch is incremented:
        the present controller begins another term.
        """
        data, stat = await self._store.get(znodes.CONTROLLER_EPOCH)
        epoch = int(data) + 1
        raised = SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), stat.version)
        claim: Operation = Create(
            znodes.CONTROLLER, znodes.encode_controller(broker_id, self._now_ms()), ephemeral=True
        )
        if await self.controller() == (broker_id, True):
            claim = Check(znodes.CONTROLLER, 0)
        try:
            await self._store.multi([claim, raised])
        except (NodeExistsError, NoNodeError, BadVersionError):
            return None
        return ControllerTerm(epoch, stat.version + 1)

    async def controller(self, watch: Watch | None = None) -> ControllerNode:
        """Return the present controller; `watch` is called when it changes."""
        if await self._store.exists(znodes.CONTROLLER, watch) is None:
            return ControllerNode(None, is_ours=False)
        try:
            data, stat = await self._store.get(znodes.CONTROLLER)
        except NoNodeError:
            return ControllerNode(None, is_ours=False)
        try:
            broker_id = znodes.decode_controller(data)
        except UnreadableNodeError as error:
            logger.error("%s cannot be read; the controller is unknown: %s", znodes.CONTROLLER, error)
            broker_id = znodes.NO_BROKER
        return ControllerNode(broker_id, stat.ephemeral_owner == self._store.session_id)

    # -- notifications and requests for the controller -------------------------------------------------------------

    async def propagate_isr_change(
        self, partition: TopicPartition, state: LeaderIsrAndControllerEpoch
    ) -> LeaderIsrAndControllerEpoch:
        """Write a partition's state as its leader and notify the controller (before KIP-497).

        Raises BadVersionError if the state has another partition epoch in the store.
        """
        write = SetData(znodes.state_path(*partition), znodes.encode_state(state), state.partition_epoch)
        notification = Create(znodes.ISR_CHANGE_PREFIX, znodes.encode_isr_change([partition]), sequential=True)
        stat = (await self._store.multi([write, notification]))[0]
        assert isinstance(stat, Stat), "the result of SetData"
        return state.with_partition_epoch(stat.version)

    async def propagate_log_dir_event(self, broker_id: int) -> None:
        """Notify the controller that a log directory of the broker has failed."""
        await self._store.create(znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(broker_id), sequential=True)

    async def isr_change_notifications(self, watch: Watch) -> dict[str, list[TopicPartition]]:
        """Return the changed partitions by the notification's path; `watch` is called at the next notification."""
        return await self._notifications(
            znodes.ISR_CHANGES, watch, lambda data: list(znodes.decode_partitions(data)), list[TopicPartition]()
        )

    async def log_dir_event_notifications(self, watch: Watch) -> dict[str, int]:
        """Return the broker with a failed log directory by the notification's path."""
        return await self._notifications(znodes.LOG_DIR_EVENTS, watch, znodes.decode_log_dir_event, znodes.NO_BROKER)

    async def partition_reassignment(self, watch: Watch) -> Mapping[TopicPartition, tuple[int, ...]] | None:
        """Return the replicas that an operator has requested; None without a readable request."""
        return await self._admin_request(znodes.REASSIGN_PARTITIONS, watch)

    async def preferred_replica_election(self, watch: Watch) -> list[TopicPartition] | None:
        """Return the partitions whose preferred leaders an operator has requested; None without a readable request."""
        request = await self._admin_request(znodes.PREFERRED_ELECTION, watch)
        return None if request is None else list(request)

    async def delete_notifications(self, paths: Iterable[str], term: ControllerTerm) -> None:
        """Delete notifications and requests that have been processed. Raises KafkaError NOT_CONTROLLER."""
        deletes = [Delete(path) for path in paths]
        if not deletes:
            return
        try:
            await self._store.multi([Check(znodes.CONTROLLER_EPOCH, term.fence), *deletes])
        except BadVersionError as error:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "Another broker has become controller.") from error

    async def _notifications(
        self, parent: str, watch: Watch, decode: Callable[[bytes], T], unreadable: T
    ) -> dict[str, T]:
        """Return the children of a path, `unreadable` for a broken one, so that it is deleted with the others."""
        paths = [f"{parent}/{name}" for name in await self._store.children(parent, watch)]
        found: dict[str, T] = {}
        for path, node in zip(paths, await self._store.get_many(paths), strict=True):
            if node is not None:
                try:
                    found[path] = decode(node[0])
                except UnreadableNodeError as error:
                    logger.error("%s cannot be read and is ignored: %s", path, error)
                    found[path] = unreadable
        return found

    async def _admin_request(self, path: str, watch: Watch) -> dict[TopicPartition, tuple[int, ...]] | None:
        if await self._store.exists(path, watch) is None:
            return None
        try:
            return znodes.decode_partitions((await self._store.get(path))[0])
        except NoNodeError:
            return None
        except UnreadableNodeError as error:
            logger.error("%s cannot be read and remains unchanged: %s", path, error)
            return None
