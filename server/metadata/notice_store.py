"""What others write into the metadata tree for the controller: notices of what has happened, and operators' wishes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from . import znodes
from .cluster_store import ControllerTerm
from .metadata_store import BadVersionError, Check, Create, Delete, MetadataStore, NoNodeError, SetData, Stat, Watch
from .znodes import PartitionState, UnreadableNodeError

logger = room_logger("metadata")

T = TypeVar("T")
NOBODY = -1
"""In the place of a broker: a notice of nothing."""


class NoticeStore:
    """Notices are read and then removed by the controller; each watch hears of the next that comes."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    # Brokers

    async def write_isr(self, partition: TopicPartition, state: PartitionState) -> PartitionState:
        """A leader replaces its partition's state and writes a notice (as before KIP-497).

        Raises BadVersionError if the state was changed meanwhile.
        """
        write = SetData(znodes.state_path(*partition), znodes.encode_state(state), state.partition_epoch)
        notice = Create(znodes.ISR_CHANGE_PREFIX, znodes.encode_isr_change([partition]), sequential=True)
        stat = (await self._store.multi([write, notice]))[0]
        assert isinstance(stat, Stat), "what setting data gives"
        return state.with_partition_epoch(stat.version)

    async def tell_of_failed_log_dir(self, broker_id: int) -> None:
        """A log directory of the broker has failed."""
        await self._store.create(znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(broker_id), sequential=True)

    # The controller

    async def isr_changes(self, watch: Watch) -> dict[str, list[TopicPartition]]:
        """The partitions that each notice speaks of, by the notice's path."""
        nothing: list[TopicPartition] = []
        return await self._notices(
            znodes.ISR_CHANGES, watch, lambda data: list(znodes.decode_partitions(data)), nothing
        )

    async def log_dir_events(self, watch: Watch) -> dict[str, int]:
        """The broker that each notice speaks of, by the notice's path."""
        return await self._notices(znodes.LOG_DIR_EVENTS, watch, znodes.decode_log_dir_event, NOBODY)

    async def reassignment_wishes(self, watch: Watch) -> Mapping[TopicPartition, tuple[int, ...]] | None:
        """The replicas that an operator has asked for; None if there is no such wish that can be read."""
        return await self._wish(znodes.REASSIGN_PARTITIONS, watch)

    async def election_wishes(self, watch: Watch) -> list[TopicPartition] | None:
        """The partitions that are to have their preferred leaders; None if there is no such wish that can be read."""
        wish = await self._wish(znodes.PREFERRED_ELECTION, watch)
        return None if wish is None else list(wish)

    async def remove(self, paths: Iterable[str], term: ControllerTerm) -> None:
        """Removes notices and wishes that were dealt with. Raises KafkaError NOT_CONTROLLER."""
        deletes = [Delete(path) for path in paths]
        if not deletes:
            return
        try:
            await self._store.multi([Check(znodes.CONTROLLER_EPOCH, term.fence), *deletes])
        except BadVersionError as error:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "Another broker has become controller.") from error

    async def _notices(self, parent: str, watch: Watch, decode: Callable[[bytes], T], nothing: T) -> dict[str, T]:
        """What is below a path; one that cannot be read tells `nothing`, so that it goes and keeps no others back."""
        paths = [f"{parent}/{name}" for name in await self._store.children(parent, watch)]
        told: dict[str, T] = {}
        for path, node in zip(paths, await self._store.get_many(paths), strict=True):
            if node is not None:
                try:
                    told[path] = decode(node[0])
                except UnreadableNodeError as error:
                    logger.error("%s says nothing: %s", path, error)
                    told[path] = nothing
        return told

    async def _wish(self, path: str, watch: Watch) -> dict[TopicPartition, tuple[int, ...]] | None:
        if await self._store.exists(path, watch) is None:
            return None
        try:
            return znodes.decode_partitions((await self._store.get(path))[0])
        except NoNodeError:
            return None
        except UnreadableNodeError as error:
            logger.error("%s cannot be read and stays as it is: %s", path, error)
            return None
