"""The cluster's id, its live brokers, and who is controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.uuid_text import new_uuid, uuid_text
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
    Watch,
)
from .znodes import BrokerRegistration, UnreadableNodeError

logger = room_logger("metadata")


@dataclass(frozen=True, slots=True)
class ControllerTerm:
    """One broker's time as controller."""

    epoch: int
    fence: int
    """Version of `/controller_epoch` that belongs to the term; every controller write checks it."""


class ControllerSeat(NamedTuple):
    """Who holds the controller's node."""

    broker_id: int | None
    """None: nobody. -1: somebody, and nobody can tell who."""
    is_ours: bool
    """Whether the node is this session's; that of an earlier session is about to go."""


class ClusterStore:
    """The cluster's identity and membership in the metadata tree (see `znodes`)."""

    def __init__(self, store: MetadataStore, *, now_ms: Callable[[], int], token_bytes: Callable[[int], bytes]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._token_bytes = token_bytes

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
        """A broker id that was never used, above those that operators choose (`reserved.broker.max.id`)."""
        return reserved_max + (await self._store.set(znodes.BROKER_SEQUENCE, b"")).version

    async def register_broker(self, registration: BrokerRegistration, former_session: int = 0) -> BrokerRegistration:
        """Announces a live broker for as long as the session lasts; returns it with its broker epoch.

        A node from this broker's `former_session` is replaced, though the store has not ended that yet; one of this
        session is an earlier registration whose answer was lost. Raises KafkaError DUPLICATE_BROKER_REGISTRATION if the
        id is another's.
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
        """Whether a broker is registered; `watch` hears of the next change of that."""
        return await self._store.exists(znodes.broker_path(broker_id), watch) is not None

    async def brokers(self, watch: Watch | None = None) -> dict[int, BrokerRegistration]:
        """Returns all live brokers by id; `watch` hears when one comes, goes, or says something else of itself.

        One that nobody could reach, as its node cannot be read, counts as none.
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
                    logger.error("%s cannot be read, the broker counts as gone until it can: %s", path, error)
        return brokers

    async def claim_controller(self, broker_id: int) -> ControllerTerm | None:
        """Becomes controller, in one step with raising the controller epoch; None if another broker is.

        Who is controller already begins another term.
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

    async def controller(self, watch: Watch | None = None) -> ControllerSeat:
        """Who is controller; `watch` hears when that changes."""
        if await self._store.exists(znodes.CONTROLLER, watch) is None:
            return ControllerSeat(None, is_ours=False)
        try:
            data, stat = await self._store.get(znodes.CONTROLLER)
        except NoNodeError:
            return ControllerSeat(None, is_ours=False)
        try:
            broker_id = znodes.decode_controller(data)
        except UnreadableNodeError as error:
            logger.error("%s cannot be read, whoever made it is controller: %s", znodes.CONTROLLER, error)
            broker_id = znodes.NO_BROKER
        return ControllerSeat(broker_id, stat.ephemeral_owner == self._store.session_id)
