"""The observer of `__cluster_metadata`-0 of a broker (Kafka: KafkaRaftClient): fetches, stores and delivers records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.messages.fetch import FetchRequest
from ...protocol.metadata_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ...protocol.record_batch import Batch, RecordBatch
from ...storage.errors import LogDirFailedError, is_passing
from ...storage.metadata_snapshot import FileRawSnapshotWriter, OffsetAndEpoch
from ...storage.quorum_state_store import NO_LEADER, ElectionState
from ..image.metadata_batch_loader import CommittedBatch
from ..image.metadata_loader import LoadedSnapshot
from .kafka_raft_log import CorruptSnapshotError, KafkaRaftLog, control_records_of, header_of, values_of
from .observer_state import (
    AbortSnapshot,
    Append,
    AppendToSnapshot,
    BeginSnapshot,
    Effect,
    Endpoint,
    LeaderAndEpoch,
    ObserverState,
    QuorumConfig,
    Truncate,
)
from .snapshot_batches import SnapshotBatches

if TYPE_CHECKING:
    from ..runtime.ports import Work

logger = room_logger("raft")

RAFT_LANE = "#raft"
"""The lane of the replica: a sync of a log directory must not delay the metadata."""
QUORUM_RECORDS = (KRaftVersionRecord, VotersRecord)
"""The control records after the header of a snapshot, in their order."""
SINCE_DIRECTORY_IDS = 17
"""The lowest version of Fetch between an observer and a controller of Kafka 4."""
SNAPSHOT_WAIT_S = 0.01
FULL_DISK_PAUSE_S = 1.0
FLUSH_INTERVAL_S = 10.0
"""Interval of the flushes of the replica. Records that a crash loses are fetched again."""

T = TypeVar("T")


class RaftListener(Protocol):
    """A component that follows the committed metadata. The methods are called one after another, on the loop.

    A Protocol, as Kafka's RaftClient.Listener: this package replicates the log and does not depend on its contents.
    """

    async def handle_commit(self, batch: CommittedBatch) -> None:
        """Apply the next committed batch."""

    async def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Replace all earlier metadata by a snapshot, whose batches must be read to their end."""


SendToController = Callable[..., Awaitable[Any]]
"""`ControllerConnections.send_request`."""


class KafkaRaftClient:
    """Keeps a replica of the metadata log up to date and delivers its committed records to listeners.

    It belongs to a broker and is used on its loop. The replica is used on its own lane, one job after another. An
    error after which the metadata cannot be trusted (a record that cannot be read, a failed disk, a divergent log, an
    error of a listener) ends the client: `on_fatal` is called once with it, and the broker has to stop. A damaged
    response is fetched again. While the disk is full, the append is repeated.
    """

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        directory_id: UUID,
        config: QuorumConfig,
        open_log: Callable[[], KafkaRaftLog],
        send_request: SendToController,
        work: Work,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
        now_ms: Callable[[], int],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`directory_id` is that of the log directory with the replica, which `open_log` opens (on the lane)."""
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._directory_id = directory_id
        self._config = config
        self._open_log = open_log
        self._send_request = send_request
        self._work = work
        self._loop = loop
        self._random = rng
        self._now_ms = now_ms
        self._on_fatal = on_fatal
        self._replica: KafkaRaftLog | None = None
        self._state: ObserverState | None = None
        self._stored_election: ElectionState | None = None
        self._listeners: list[_ListenerContext] = []
        self._fetched: FileRawSnapshotWriter | None = None
        """The snapshot that is being fetched from the leader."""
        self._quorum_records: dict[type, Any] = {}
        """The newest KRaftVersion and Voters records, which are in no image of the metadata."""
        self._progress = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._has_failed = False

    # -- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the replica and begin to fetch. Raises OSError, StorageError."""
        replica = self._replica = await self._run(self._open_log)
        stored = await self._run(replica.read_election_state)
        last_epoch = replica.last_fetched_epoch
        if stored is None or stored.epoch < last_epoch:
            stored = ElectionState(last_epoch, NO_LEADER)
        self._state = ObserverState(
            node_id=self._node_id,
            directory_id=self._directory_id,
            cluster_id=self._cluster_id,
            config=self._config,
            election=stored,
            rng=self._random,
        )
        # The addresses of the voters are required to find a leader, also records of them that are not committed.
        for batch in await self._run(replica.control_batches):
            self._keep_quorum_records(batch)
        logger.info(
            "the metadata log has the offsets %d to %d, epoch %d",
            replica.start_offset,
            replica.end_offset,
            stored.epoch,
        )
        for work in (self._fetch, self._deliver, self._flush):
            self._tasks.append(self._loop.create_task(self._until_fatal(work, replica, self._state)))

    async def close(self) -> None:
        """Stop fetching and close the replica durably. Raises StorageError."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        replica, self._replica = self._replica, None
        if replica is not None and not self._has_failed:
            await self._abort_fetched_snapshot(replica)
            await self._run(replica.close)

    def register(self, listener: RaftListener) -> None:
        """Deliver the newest snapshot and the committed records after it to a listener, and all that follow."""
        self._listeners.append(_ListenerContext(listener))
        self._progress.set()

    # -- leader and progress ---------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int | None:
        """The end offset of the committed records of the replica; None before a leader has reported it."""
        return None if self._state is None else self._state.high_watermark

    @property
    def leader_high_watermark(self) -> int | None:
        """The end offset of the committed records of the quorum, as far as leaders have reported it.

        The replica may end before it: a response has a part of the records only.
        """
        return None if self._state is None else self._state.leader_high_watermark

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The active controller and its epoch, as far as they are known."""
        return LeaderAndEpoch(None, 0) if self._state is None else self._state.leader_and_epoch

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """The address of the active controller; None while it is not known."""
        return None if self._state is None else self._state.leader_endpoint

    # -- fetching --------------------------------------------------------------------------------------------------

    async def _fetch(self, replica: KafkaRaftLog, state: ObserverState) -> None:
        while True:
            began, before = self._loop.time(), self._position(replica, state)
            is_ready = await self._fetch_once(replica, state)
            pause = state.retry_backoff_ms / 1000
            if is_ready and self._position(replica, state) == before:
                # Usually the leader has waited for records. If it has not, the next response would be the same.
                is_ready = self._loop.time() - began >= pause
            if not is_ready:
                await asyncio.sleep(pause)

    @staticmethod
    def _position(replica: KafkaRaftLog, state: ObserverState) -> tuple[Any, ...]:
        leader = (state.leader_and_epoch, state.leader_endpoint)
        return (*leader, replica.end, state.high_watermark, state.fetched_position)

    async def _fetch_once(self, replica: KafkaRaftLog, state: ObserverState) -> bool:
        """Send a request and apply its response; return whether the next request needs no pause."""
        destination, request = state.next_request(replica.end)
        lowest = SINCE_DIRECTORY_IDS if isinstance(request, FetchRequest) else 0
        try:
            response = await self._send_request(destination, request, lowest=lowest)
        except (KafkaError, ProtocolError) as error:
            logger.debug("no response of the controller at %s:%d: %s", *destination, error)
            state.request_failed(destination)
            return False
        except Exception as error:
            # A connection is made of the clients' parts, whose plug-ins and TLS contexts raise errors of their own.
            logger.debug("cannot fetch the metadata from the controller at %s:%d", *destination, exc_info=True)
            state.response_was_unusable(destination, f"no response ({error!r})")
            return False
        is_ready, effect = state.handle_response(destination, response)
        if state.election != self._stored_election:
            # Before a request with this epoch: after a restart the epoch must not be lower.
            await self._run_with_space(partial(replica.write_election_state, state.election))
            self._stored_election = state.election
        if effect is not None:
            try:
                await self._apply(replica, state, effect)
            except (CorruptSnapshotError, KafkaError) as error:
                is_damage = not isinstance(error, KafkaError) or error.code is ErrorCode.CORRUPT_MESSAGE
                if not is_damage or not isinstance(effect, Append | AppendToSnapshot):
                    raise
                # As Kafka since 4.1 (KAFKA-18723): one damaged response must not end the broker.
                await self._abort_fetched_snapshot(replica)
                state.response_was_unusable(destination, f"a damaged response ({error})")
                return False
        if is_ready:
            state.response_was_applied(destination)
        return is_ready

    async def _apply(self, replica: KafkaRaftLog, state: ObserverState, effect: Effect) -> None:
        """Change the replica as a response requires.

        Raises CorruptSnapshotError and KafkaError CORRUPT_MESSAGE for a damaged response, which has changed nothing,
        DivergentLogError, KafkaError and LogDirFailedError.
        """
        match effect:
            case Append(records, high_watermark):
                if records:
                    epoch = state.leader_and_epoch.epoch
                    await self._run_with_space(partial(replica.append_as_follower, memoryview(records), epoch))
                if high_watermark is not None:
                    await self._update_high_watermark(replica, state, min(high_watermark, replica.end_offset))
            case Truncate(diverging):
                offset = await self._run(partial(replica.truncate_to_end_offset, diverging))
                logger.info("truncated the metadata log to offset %d, as the leader requires", offset)
            case BeginSnapshot(snapshot_id):
                await self._abort_fetched_snapshot(replica)
                begin = partial(replica.create_new_snapshot_unchecked, snapshot_id)
                self._fetched = await self._run_with_space(begin)
                if self._fetched is None:
                    logger.info("snapshot %s is stored already", snapshot_id)
                    state.snapshot_is_stored()
            case AppendToSnapshot(data, is_last):
                writer = self._fetched
                assert writer is not None, "the state machine begins a snapshot before it appends to it"
                await self._run_with_space(partial(replica.append_to_snapshot, writer, memoryview(data)))
                if is_last:
                    # Before it replaces the log: a damaged snapshot is fetched again.
                    await self._run(partial(replica.check_snapshot, writer))
                    self._fetched = None
                    await self._run(partial(replica.freeze_snapshot, writer))
                    await self._run_with_space(replica.truncate_to_latest_snapshot)
                    logger.info("fetched snapshot %s; the log continues after it", writer.snapshot_id)
                    await self._update_high_watermark(replica, state, replica.end_offset)
            case AbortSnapshot():
                await self._abort_fetched_snapshot(replica)

    async def _abort_fetched_snapshot(self, replica: KafkaRaftLog) -> None:
        writer, self._fetched = self._fetched, None
        if writer is not None:
            await self._run(partial(replica.abort_snapshot, writer))

    async def _update_high_watermark(self, replica: KafkaRaftLog, state: ObserverState, offset: int) -> None:
        if state.update_high_watermark(offset):
            await self._run(partial(replica.update_high_watermark, offset))
            self._progress.set()

    async def _flush(self, replica: KafkaRaftLog, _: ObserverState) -> None:
        while True:
            await asyncio.sleep(FLUSH_INTERVAL_S)
            await self._run_with_space(replica.flush)
            await self._run(partial(replica.maybe_clean, self._now_ms()))

    # -- delivery --------------------------------------------------------------------------------------------------

    async def _deliver(self, replica: KafkaRaftLog, state: ObserverState) -> None:
        while True:
            await self._progress.wait()
            self._progress.clear()
            for context in self._listeners:
                while state.high_watermark is not None and context.next_offset < state.high_watermark:
                    await self._deliver_next(replica, context, state.high_watermark)

    async def _deliver_next(self, replica: KafkaRaftLog, context: _ListenerContext, high_watermark: int) -> None:
        """Deliver a snapshot, or some batches of the log."""
        snapshot_id = replica.latest_snapshot_id
        is_first, is_missing = context.next_offset < 0, context.next_offset < replica.start_offset
        if (is_first or is_missing) and snapshot_id is not None:
            if snapshot_id.offset > high_watermark:
                # The replica has just fetched it, and raises the high watermark next.
                await asyncio.sleep(SNAPSHOT_WAIT_S)
                return
            await context.listener.handle_load_snapshot(await self._loaded_snapshot(replica, snapshot_id))
            context.next_offset = snapshot_id.offset
            return
        if is_first:
            context.next_offset = 0
        if context.next_offset < replica.start_offset:
            raise CorruptSnapshotError(
                f"the metadata log begins at offset {replica.start_offset}, without a snapshot of the records before"
            )
        batches = await self._run_with_space(partial(self._read, replica, context.next_offset, high_watermark))
        for batch, committed in batches:
            self._keep_quorum_records(batch)
            await context.listener.handle_commit(committed)
            context.next_offset = batch.last_offset + 1

    @staticmethod
    def _read(replica: KafkaRaftLog, offset: int, high_watermark: int) -> list[tuple[Batch, CommittedBatch]]:
        """Read and decode on the lane; nothing if the log has been replaced by a snapshot in the meantime.

        A batch of 8 MB has 100 000 records.
        """
        if not replica.start_offset <= offset < min(high_watermark, replica.end_offset):
            return []
        batches = replica.read(offset, high_watermark)
        return [(batch, _committed(batch, offset)) for batch in batches if batch.last_offset >= offset]

    async def _loaded_snapshot(self, replica: KafkaRaftLog, snapshot_id: OffsetAndEpoch) -> LoadedSnapshot:
        """Return a snapshot whose batches are read from the file while the listener applies them."""
        parts = replica.snapshot_batches(snapshot_id)
        first = await self._run(partial(_next_values, parts))
        header = header_of([batch for batch, _ in first], snapshot_id)
        return LoadedSnapshot(
            snapshot_id.offset - 1,
            snapshot_id.epoch,
            header.last_contained_log_timestamp,
            self._values(first, parts),
        )

    async def _values(
        self, first: list[tuple[RecordBatch, list[bytes]]], parts: Iterator[list[RecordBatch]]
    ) -> AsyncIterator[Sequence[bytes]]:
        batches = first
        while batches:
            for batch, values in batches:
                self._keep_quorum_records(batch)
                if not batch.is_control:
                    yield values
            batches = await self._run(partial(_next_values, parts))

    def _keep_quorum_records(self, batch: Batch) -> None:
        for record in control_records_of(batch):
            if isinstance(record, KRaftVersionRecord | VotersRecord):
                self._quorum_records[type(record)] = record
            if isinstance(record, VotersRecord) and self._state is not None:
                self._state.update_voters(record)

    # -- snapshots of this replica ---------------------------------------------------------------------------------

    async def create_snapshot(
        self, snapshot_id: OffsetAndEpoch, last_contained_log_timestamp: int, values: AsyncIterator[bytes]
    ) -> bool:
        """Store a snapshot with these values of records, and return whether it was stored.

        It is not stored if it exists, or if the log begins after it already. It must be at the end of a batch below the
        high watermark. `last_contained_log_timestamp` is in ms. Raises KafkaError, LogDirFailedError.
        """
        replica = self._replica
        if replica is None:
            return False
        header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_log_timestamp)
        first = [header, *(self._quorum_records[one] for one in QUORUM_RECORDS if one in self._quorum_records)]
        writer = await self._run(partial(replica.create_new_snapshot, snapshot_id))
        if writer is None:
            return False
        try:
            batches = SnapshotBatches(snapshot_id.epoch, last_contained_log_timestamp)
            await self._append_to_snapshot(replica, writer, batches.control_batch(first))
            async for value in values:
                if (batch := batches.append(value)) is not None:
                    await self._append_to_snapshot(replica, writer, batch)
            if (batch := batches.rest()) is not None:
                await self._append_to_snapshot(replica, writer, batch)
            await self._append_to_snapshot(replica, writer, batches.control_batch([SnapshotFooterRecord(version=0)]))
        except BaseException:
            await asyncio.shield(self._run(partial(replica.abort_snapshot, writer)))
            raise
        await self._run(partial(replica.freeze_snapshot, writer))
        return True

    async def _append_to_snapshot(self, replica: KafkaRaftLog, writer: FileRawSnapshotWriter, data: bytes) -> None:
        await self._run(partial(replica.append_to_snapshot, writer, memoryview(data)))

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _run(self, job: Callable[[], T]) -> T:
        return await self._work.run(RAFT_LANE, job)

    async def _run_with_space(self, job: Callable[[], T]) -> T:
        """Run a job that may be repeated; while it lacks space on the disk or file handles, repeat it with pauses."""
        logged = ""
        while True:
            try:
                return await self._run(job)
            except (KafkaError, LogDirFailedError) as error:
                if not is_passing(error):
                    raise
                if str(error) != logged:
                    logged = str(error)
                    logger.error("cannot read or write the metadata log, retrying until that succeeds: %s", error)
            await asyncio.sleep(FULL_DISK_PAUSE_S)

    async def _until_fatal(
        self,
        work: Callable[[KafkaRaftLog, ObserverState], Awaitable[None]],
        replica: KafkaRaftLog,
        state: ObserverState,
    ) -> None:
        try:
            await work(replica, state)
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                logger.exception("replication of the cluster metadata has failed")
                self._on_fatal(error)


class _ListenerContext:
    """A listener and the offset of the next record for it, -1 before the first one."""

    __slots__ = ("listener", "next_offset")

    def __init__(self, listener: RaftListener) -> None:
        self.listener = listener
        self.next_offset = -1


def _next_values(parts: Iterator[list[RecordBatch]]) -> list[tuple[RecordBatch, list[bytes]]]:
    """Return the next batches of a snapshot with their values, on the lane; nothing at the end of the snapshot."""
    return [(batch, values_of(batch)) for batch in next(parts, [])]


def _committed(batch: Batch, next_offset: int) -> CommittedBatch:
    """Return a batch of the log for a listener. Raises KafkaError, ProtocolError."""
    records = values_of(batch, after=next_offset)
    assert isinstance(batch, RecordBatch), "a batch of an old format has no values"
    base_offset = max(batch.base_offset, next_offset)
    epoch = batch.partition_leader_epoch
    return CommittedBatch(base_offset, batch.last_offset, epoch, batch.max_timestamp, records, batch.size)
