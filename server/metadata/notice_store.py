"""What others write into the metadata tree for the controller: notices of what has happened, and operators' wishes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from . import znodes
from .cluster_store import ControllerTerm
from .metadata_store import BadVersionError, Check, Create, Delete, MetadataStore, NoNodeError, SetData, Stat, Watch
from .znodes import PartitionState


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
        found = await self._notices(znodes.ISR_CHANGES, watch)
        return {path: list(znodes.decode_partitions(data)) for path, data in found.items()}

    async def log_dir_events(self, watch: Watch) -> dict[str, int]:
        """The broker that each notice speaks of, by the notice's path."""
        found = await self._notices(znodes.LOG_DIR_EVENTS, watch)
        return {path: znodes.decode_log_dir_event(data) for path, data in found.items()}

    async def reassignment_wishes(self, watch: Watch) -> Mapping[TopicPartition, tuple[int, ...]] | None:
        """The replicas that an operator has asked for; None if there is no such wish."""
        data = await self._wish(znodes.REASSIGN_PARTITIONS, watch)
        return None if data is None else znodes.decode_partitions(data)

    async def election_wishes(self, watch: Watch) -> list[TopicPartition] | None:
        """The partitions that an operator wants to have their preferred leaders; None if there is no such wish."""
        data = await self._wish(znodes.PREFERRED_ELECTION, watch)
        return None if data is None else list(znodes.decode_partitions(data))

    async def remove(self, paths: Iterable[str], term: ControllerTerm) -> None:
        """Removes notices and wishes that were dealt with. Raises KafkaError NOT_CONTROLLER."""
        deletes = [Delete(path) for path in paths]
        if not deletes:
            return
        try:
            await self._store.multi([Check(znodes.CONTROLLER_EPOCH, term.fence), *deletes])
        except BadVersionError as error:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "Another broker has become controller.") from error

    async def _notices(self, parent: str, watch: Watch) -> dict[str, bytes]:
        paths = [f"{parent}/{name}" for name in await self._store.children(parent, watch)]
        found = await self._store.get_many(paths)
        return {path: node[0] for path, node in zip(paths, found, strict=True) if node is not None}

    async def _wish(self, path: str, watch: Watch) -> bytes | None:
        if await self._store.exists(path, watch) is None:
            return None
        try:
            return (await self._store.get(path))[0]
        except NoNodeError:
            return None
