"""Background fetches of a consumer: valid positions for all partitions and, unless paused, one fetch ahead of the
application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Protocol

from ..common.room_logger import room_logger
from ..protocol.apis import ApiKey
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.fetch_session import FetchSessionHandler, FetchTarget
from ..protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from ..protocol.negotiation import LAST_VERSIONS_BY_NAME, last_version
from ..protocol.schema import ZERO_UUID
from ..protocol.topic_partition import TopicPartition
from .assignment import Assignment, TopicPartitionState
from .background_tasks import BackgroundTasks
from .client import Client
from .cluster import BrokerNode
from .connection import BrokerConnection
from .errors import LogTruncatedError, NoOffsetError, code_of
from .fetched_records import FetchedRecords
from .offsets import LeaderEpochEnd, OffsetLookup
from .wakeup import Wakeup

logger = room_logger("clients")

_FIRST_VERSION_WITH_SESSIONS = 7
_FIRST_VERSION_WITH_ISOLATION = 4


class CommittedPosition(Protocol):
    """A committed offset."""

    @property
    def offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...


Committed = Callable[[list[TopicPartition]], Awaitable[Mapping[TopicPartition, CommittedPosition | None]]]


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Settings of the fetches."""

    min_bytes: int
    max_bytes: int
    max_partition_bytes: int
    max_wait_ms: int
    isolation_level: int
    check_crcs: bool
    rack_id: str
    request_timeout_ms: int
    reset_to: int | None
    """Reset strategy for a position outside of the log; None: raise an error."""


class Fetcher:
    """The fetcher of one consumer: one task, `run`, which starts a background task for each broker with due work."""

    def __init__(self, client: Client, assignment: Assignment, lookup: OffsetLookup, settings: FetchSettings) -> None:
        self.data_ready = Wakeup()
        """Set when the application may find records, an error or a new position."""
        self.committed: Committed | None = None
        """Reads the committed offsets of the group."""
        self._client = client
        self._assignment = assignment
        self._lookup = lookup
        self._settings = settings
        self._sessions: dict[int, FetchSessionHandler] = {}
        self._wakeup = Wakeup()
        self._background_tasks = BackgroundTasks(self.wake)

    @property
    def reset_to(self) -> int | None:
        """Start of partitions without a position."""
        return self._settings.reset_to

    def wake(self) -> None:
        """Wake the fetcher after an assignment, a seek, a drained buffer or new metadata."""
        self._wakeup.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        loop = asyncio.get_running_loop()
        self._client.on_metadata(self.wake)
        while True:
            self._wakeup.clear()
            next_at = self._step(loop.time())
            await self._wakeup.wait(next_at)
            self._background_tasks.raise_failure()

    async def close(self) -> None:
        """Stop the background tasks."""
        await self._background_tasks.close()

    def _step(self, now: float) -> float:
        """Start the background tasks that are due; return the time of the next step."""
        self._client.maybe_refresh()
        cluster = self._client.cluster
        next_at = inf
        resets: dict[int, list[TopicPartitionState]] = {}
        checks: dict[int, list[TopicPartitionState]] = {}
        fetches: dict[int, list[TopicPartitionState]] = {}
        starts: list[TopicPartitionState] = []
        for state in self._assignment.states.values():
            if state.error is not None or state.buffered is not None:
                continue
            leader = cluster.leader(state.partition)
            if state.retry_at > now:
                next_at = min(next_at, state.retry_at)
            elif state.from_committed:
                starts.append(state)
            elif leader is None:
                self._client.refresh_soon()
            elif state.reset_to is not None:
                resets.setdefault(leader, []).append(state)
            elif state.position is None:
                state.fail(NoOffsetError(state.partition, f"{state.partition} has no position; seek to one"))
                self.data_ready.set()
            elif state.needs_validation(cluster.leader_epoch(state.partition)):
                checks.setdefault(leader, []).append(state)
            elif not state.is_paused:
                fetches.setdefault(self._source_of(state, leader, now), []).append(state)
        if starts:
            self._background_tasks.run("committed", partial(self._start_from_committed, starts))
        for leader, states in resets.items():
            self._background_tasks.run(("reset", leader), partial(self._reset, states))
        for leader, states in checks.items():
            self._background_tasks.run(("check", leader), partial(self._check, leader, states))
        for node, states in fetches.items():
            self._background_tasks.run(node, partial(self._fetch, node, states))
        return next_at

    def _source_of(self, state: TopicPartitionState, leader: int, now: float) -> int:
        """Return the replica to read from: the leader's preferred read replica (KIP-392), else the leader."""
        preferred = state.preferred_replica
        if preferred is not None and now < state.preferred_until and preferred in self._client.cluster.brokers:
            return preferred
        return leader

    # Positions

    async def _start_from_committed(self, states: list[TopicPartitionState]) -> None:
        """Start at the committed offset of the group, or without one by the reset strategy."""
        assert self.committed is not None
        try:
            committed = await self.committed([state.partition for state in states])
        except KafkaError as error:
            self._delay(states, error)
            return
        for state in states:
            at = committed.get(state.partition)
            if not self._is_current(state) or not state.from_committed:
                continue
            if at is not None:
                state.seek(at.offset, at.leader_epoch)
            elif self._settings.reset_to is not None:
                state.reset(self._settings.reset_to)
            else:
                state.from_committed = False
                message = f"the group has no offset of {state.partition}, and auto_offset_reset is none"
                state.fail(NoOffsetError(state.partition, message))
        self.data_ready.set()

    async def _reset(self, states: list[TopicPartitionState]) -> None:
        """Look up the start offset."""
        wanted = {state.partition: state.reset_to for state in states if state.reset_to is not None}
        try:
            found = await self._lookup.find(wanted, timeout_ms=self._settings.request_timeout_ms)
        except KafkaError as error:
            self._delay(states, error)
            return
        for state in states:
            offset = found[state.partition]
            if self._is_current(state) and state.reset_to == wanted[state.partition]:
                if offset.offset < 0:
                    state.fail(NoOffsetError(state.partition, f"{state.partition} does not have this offset"))
                else:
                    state.seek(offset.offset)
        self.data_ready.set()

    async def _check(self, leader: int, states: list[TopicPartitionState]) -> None:
        """Validate the position with a new leader (KIP-320)."""
        positions = {state.partition: state.position for state in states}
        leader_epochs = {state.partition: self._client.cluster.leader_epoch(state.partition) for state in states}
        try:
            ends = await self._lookup.end_of_epochs(leader, {s.partition: s.position_epoch for s in states})
        except KafkaError as error:
            self._delay(states, error)
            return
        for state in states:
            end = ends.get(state.partition)
            if not self._is_current(state) or state.position != positions[state.partition]:
                continue
            if isinstance(end, KafkaError):
                self._delay([state], end)
            else:
                state.validated_epoch = leader_epochs[state.partition]
                if end is not None:
                    self._maybe_truncate(state, end)

    def _maybe_truncate(self, state: TopicPartitionState, end: LeaderEpochEnd) -> None:
        """Move the position back to the end of the common log if the leader's epoch ends before it."""
        assert state.position is not None
        if end.end_offset < 0 or (end.end_offset >= state.position and end.leader_epoch >= state.position_epoch):
            return
        agreed = min(end.end_offset, state.position)
        if agreed == state.position:
            return
        error = LogTruncatedError(state.partition, state.position, agreed)
        if self._settings.reset_to is None:
            state.fail(error)
            self.data_ready.set()
        else:
            logger.warning("%s", error)
            state.seek(agreed, end.leader_epoch)
            state.validated_epoch = self._client.cluster.leader_epoch(state.partition)

    # Fetching

    async def _fetch(self, node: int, states: list[TopicPartitionState]) -> None:
        session = self._sessions.setdefault(node, FetchSessionHandler())
        wanted = {state.partition: self._target(state) for state in states if state.position is not None}
        try:
            connection = await self._client.connection(node)
            response = await self._ask(connection, session, wanted)
        except KafkaError as error:
            session.reset()
            self._delay(states, error)
            return
        code = code_of(response.error_code)
        session.answered(code, response.session_id)
        if code is not ErrorCode.NONE:
            logger.debug("broker %d: %s; next fetch is a full fetch", node, code.name)
            if not code.retriable:
                self._delay(states, KafkaError(code, f"fetch from broker {node}"))
            return
        self._client.cluster.add_brokers(BrokerNode(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints)
        for topic in response.responses:
            name = topic.topic or self._client.cluster.topic_name(topic.topic_id)
            for data in topic.partitions:
                tp = TopicPartition(name or "", data.partition_index)
                state = self._assignment.states.get(tp)
                if state is not None and tp in wanted and state.position == wanted[tp].offset:
                    self._take_in(state, data, node)

    def _target(self, state: TopicPartitionState) -> FetchTarget:
        assert state.position is not None
        cluster, tp = self._client.cluster, state.partition
        return FetchTarget(
            cluster.topic_id(tp.topic), state.position, cluster.leader_epoch(tp), self._settings.max_partition_bytes
        )

    async def _ask(
        self, connection: BrokerConnection, session: FetchSessionHandler, wanted: dict[TopicPartition, FetchTarget]
    ) -> FetchResponse:
        settings = self._settings
        by_name = any(target.topic_id == ZERO_UUID for target in wanted.values())
        version = connection.version_for(ApiKey.FETCH, highest=last_version(ApiKey.FETCH, by_name=by_name))
        request = FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=settings.isolation_level if version >= _FIRST_VERSION_WITH_ISOLATION else 0,
            rack_id=settings.rack_id,
        )
        if version < _FIRST_VERSION_WITH_SESSIONS:
            session.reset(keep_id=False)
        session.fill(request, wanted, uses_topic_ids=version > LAST_VERSIONS_BY_NAME[ApiKey.FETCH])
        if version < _FIRST_VERSION_WITH_SESSIONS:
            request.session_epoch = -1
        timeout_ms = settings.max_wait_ms + settings.request_timeout_ms
        response = await connection.send(request, version, timeout_ms=timeout_ms)
        assert isinstance(response, FetchResponse)
        return response

    def _take_in(self, state: TopicPartitionState, data: PartitionData, node: int) -> None:
        error = code_of(data.error_code)
        leader = data.current_leader
        if leader.leader_id >= 0:
            self._client.cluster.update_leader(state.partition, leader.leader_id, leader.leader_epoch)
        if error is not ErrorCode.NONE:
            self._take_in_error(state, error, node)
            return
        assert state.position is not None
        state.high_watermark = data.high_watermark
        if data.preferred_read_replica >= 0:
            state.preferred_replica = data.preferred_read_replica
            state.preferred_until = asyncio.get_running_loop().time() + self._client.metadata_max_age
            return
        if data.records:
            state.buffered = FetchedRecords(
                state.partition,
                memoryview(data.records),
                state.position,
                aborted=data.aborted_transactions if self._settings.isolation_level else None,
                check_crcs=self._settings.check_crcs,
            )
            self.data_ready.set()

    def _take_in_error(self, state: TopicPartitionState, error: ErrorCode, node: int) -> None:
        if state.preferred_replica == node:
            state.preferred_replica = None
            return
        if error is ErrorCode.UNKNOWN_SERVER_ERROR:
            # As in Java's consumer: an unexpected error of a broker may be temporary, and the log shows why reads wait.
            logger.warning("broker %d: %s in a fetch of %s; trying again", node, error.name, state.partition)
            state.retry_at = asyncio.get_running_loop().time() + self._client.retry_backoff.delay(1)
            return
        if error is not ErrorCode.OFFSET_OUT_OF_RANGE:
            reason = f"fetch of {state.partition}"
            if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                reason = self._client.describe_denial("Read", f"topic {state.partition.topic}")
            self._delay([state], KafkaError(error, reason))
            return
        assert state.position is not None
        if self._settings.reset_to is not None:
            logger.info("offset %d of %s is out of range; position is reset", state.partition, state.position)
            state.reset(self._settings.reset_to)
        else:
            message = f"offset {state.position} of {state.partition} is out of range"
            state.fail(NoOffsetError(state.partition, message))
            self.data_ready.set()

    def _delay(self, states: Iterable[TopicPartitionState], error: KafkaError) -> None:
        """Try again later with fresh metadata; errors that no retry resolves are raised to the application."""
        retry_at = asyncio.get_running_loop().time() + self._client.retry_backoff.delay(1)
        for state in states:
            if error.code.retriable and error.code is not ErrorCode.CORRUPT_MESSAGE:
                state.retry_at = retry_at
                state.preferred_replica = None
            elif self._is_current(state):
                state.fail(error)
                self.data_ready.set()
        if error.code.retriable:
            logger.debug("trying again after %s", error)
            self._client.refresh_soon()

    def _is_current(self, state: TopicPartitionState) -> bool:
        return self._assignment.states.get(state.partition) is state
