"""A modelled metadata quorum: the visible behaviour of Raft, without its messages.

One object has the log of each leader and the committed prefix, which never changes. A new leader has the committed
records and a part of the uncommitted ones of its predecessor; the rest vanishes. A deposed leader that was not
informed of its successor continues in its epoch: it serves its log, appends, and commits nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ...protocol import metadata_records as r
from ...protocol.record_batch_builder import RecordBatchBuilder
from ...storage.metadata_snapshot import OffsetAndEpoch, age_of
from ..loop import SimLoop
from ..network import SimNetwork
from ..node import SimNode
from .active_controller import ActiveController, NotLeaderError
from .metadata_state import MetadataState, encoded

CLUSTER_ID = "modelledcluster0000000"
CONTROLLER_PORT = 9093
LOOK_SECONDS = 0.05
NO_LEADER = -1
IDLE_SECONDS = 0.5
"""`metadata.max.idle.interval.ms`: the interval of NoOpRecords."""


@dataclass(frozen=True, slots=True, eq=False)
class QuorumBatch:
    """A batch with the metadata after it."""

    epoch: int
    base: int
    data: bytes
    records: tuple[Any, ...]
    """None of a control batch."""
    last: int
    previous: QuorumBatch | None
    state: MetadataState
    """The state of the active controller after the batch: with the records of an open transaction."""
    before_transaction: MetadataState | None
    """The state at the beginning of the transaction that is open after the batch."""
    visible: tuple[MetadataState, ...]
    """The metadata that a broker has applied after each record: without the records of an open transaction."""


@dataclass(slots=True)
class QuorumBehavior:
    """The behaviour of the quorum. Times are seconds."""

    commit: float = 0.003
    """Usual time until a record is committed."""
    slow_commit_chance: float = 0.0
    slow_commit: float = 1.0
    election: float = 0.5
    """Minimum time without a leader before an election."""
    stale: float = 1.0
    """Maximum time for which a deposed leader continues."""
    snapshot_records: int = 1_000_000
    """Records between snapshots."""
    deletes_before_snapshots: bool = True
    fetch_bytes: int = 1 << 20
    """The limit of a controller for the response to a fetch."""
    highest_fetch: int = 18
    session: float = 2.0
    """`broker.session.timeout.ms`"""


class Term:
    """A leader in an epoch, with its log."""

    def __init__(self, quorum: Quorum, node: ModelledController, epoch: int, log: list[QuorumBatch]) -> None:
        self.quorum = quorum
        self.node = node
        self.epoch = epoch
        self.log = log
        self.high_watermark = -1
        """-1 until a record of this epoch is committed."""
        self.is_deposed = self.has_resigned = False
        self._commits_at = 0.0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.changed = asyncio.Event()
        self.controller = ActiveController(quorum.config.session, quorum.random, quorum.loop.time, self)

    def begin(self) -> None:
        """Append the first record of the epoch."""
        self._append(control=[r.LeaderChangeMessage(version=0, leader_id=self.node.node_id)])

    @property
    def end(self) -> int:
        """Return the end offset of the log."""
        return self.log[-1].last + 1 if self.log else 0

    @property
    def state(self) -> MetadataState:
        """Return the metadata with all records of the log."""
        return self.log[-1].state

    @property
    def is_in_transaction(self) -> bool:
        """Return whether a metadata transaction has begun and not ended."""
        return self.log[-1].before_transaction is not None

    @property
    def can_commit(self) -> bool:
        """Return whether a majority follows this leader."""
        return not self.is_deposed and self.quorum.active is self

    def append(self, records: Sequence[Any]) -> int:
        """Append one batch; return the offset after it."""
        return self._append(records)

    def _append(self, records: Sequence[Any] = (), *, control: Sequence[Any] = ()) -> int:
        quorum, base = self.quorum, self.end
        previous = self.log[-1] if self.log else None
        state = previous.state if previous else MetadataState()
        before = previous.before_transaction if previous else None
        if records:
            state = state.copy()
        visible = []
        for offset, record in enumerate(records, base):
            match record:
                case r.BeginTransactionRecord():
                    assert before is None, "the model begins a transaction in another one"
                    before = state.copy()
                case r.EndTransactionRecord():
                    before = None
                case r.AbortTransactionRecord():
                    assert before is not None, "the model aborts no transaction"
                    state, before = before.copy(), None
                case _:
                    state.replay(record, offset)
            visible.append(state.copy() if before is None else before)
        pairs: list[tuple[bytes | None, bytes]] = [(None, encoded(one)) for one in records]
        pairs += [r.encode_control_record(one) for one in control]
        data = batch_of(base, self.epoch, pairs, quorum.now_ms(), is_control=bool(control))
        seen = state if before is None else before
        batch = QuorumBatch(
            self.epoch,
            base,
            data,
            tuple(records),
            base + len(pairs) - 1,
            previous,
            state,
            before,
            tuple(visible) or (seen,) * len(pairs),
        )
        self.log.append(batch)
        quorum.appended[self.epoch, base] = batch
        self._commit_later(batch.last + 1)
        self.notify()
        return batch.last + 1

    def _commit_later(self, end: int) -> None:
        quorum, rng = self.quorum, self.quorum.random
        is_slow = rng.random() < quorum.config.slow_commit_chance
        delay = rng.random() * (quorum.config.slow_commit if is_slow else quorum.config.commit)
        # A record is committed after the records before it.
        self._commits_at = max(self._commits_at, quorum.loop.time() + delay)
        quorum.loop.call_in(self.node.node, self._commits_at - quorum.loop.time(), self._commit, end)

    def _commit(self, end: int) -> None:
        if not self.can_commit or end <= self.high_watermark:
            return
        self.high_watermark = end
        self.quorum.committed_up_to(self, end)
        ready = [future for wanted, future in self._waiting if wanted <= end]
        self._waiting = [(wanted, future) for wanted, future in self._waiting if wanted > end]
        for future in ready:
            if not future.done():
                future.set_result(None)
        self.notify()

    def notify(self) -> None:
        """Wake the fetches that wait for a change."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    async def committed(self, end: int) -> None:
        """Wait until all records below an offset are committed. Raises NotLeaderError."""
        if self.has_resigned:
            raise NotLeaderError
        if self.high_watermark < end:
            future: asyncio.Future[None] = self.quorum.loop.create_future()
            self._waiting.append((end, future))
            await future

    async def outside_transaction(self) -> None:
        """Wait for the end of the open metadata transaction. Raises NotLeaderError."""
        while self.is_in_transaction:
            if self.has_resigned:
                raise NotLeaderError
            await self.changed.wait()

    def resign(self) -> None:
        """Learn of a successor, or that there is no majority."""
        self.has_resigned = self.is_deposed = True
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(NotLeaderError())
        self._waiting.clear()
        self.notify()

    # -- reading -----------------------------------------------------------------------------------------------------

    def end_offset_for_epoch(self, epoch: int, start: OffsetAndEpoch | None) -> OffsetAndEpoch:
        """Return the largest epoch up to `epoch` and its end offset (Kafka: KafkaRaftLog.endOffsetForEpoch)."""
        found = OffsetAndEpoch(0, 0) if start is None else start
        for batch in self.log:
            if batch.epoch <= epoch and (start is None or batch.last >= start.offset):
                found = OffsetAndEpoch(batch.last + 1, batch.epoch)
        return found

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return batches from an offset on, at least one if there is any."""
        parts: list[bytes] = []
        size = 0
        for batch in self.log:
            if batch.last < offset:
                continue
            if parts and size + len(batch.data) > max_bytes:
                break
            parts.append(batch.data)
            size += len(batch.data)
        return b"".join(parts)


@dataclass(eq=False)
class ModelledController:
    """A controller: its machine, the leader in its state, and its snapshots. Its disk loses nothing."""

    node_id: int
    host: str
    node: SimNode
    known: tuple[int, int] = (NO_LEADER, 0)
    """The leader and the epoch in the state of this controller."""
    term: Term | None = None
    """Its term while it is the leader by its own state."""
    snapshots: dict[OffsetAndEpoch, bytes] = field(default_factory=dict)
    log_start: int = 0
    is_down: bool = False

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        """Return the id of the newest snapshot."""
        return max(self.snapshots, key=age_of, default=None)

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        """Return the id of the oldest snapshot."""
        return min(self.snapshots, key=age_of, default=None)


class Quorum:
    """The controllers 101, 102 and 103, their elections and the committed log."""

    def __init__(
        self, loop: SimLoop, rng: Random, network: SimNetwork, now_ms: Callable[[], int], config: QuorumBehavior
    ) -> None:
        self.loop = loop
        self.random = rng
        self.network = network
        self.now_ms = now_ms
        self.config = config
        self.controllers = {
            number: ModelledController(number, f"198.51.100.{number}", SimNode(f"controller {number}"))
            for number in (101, 102, 103)
        }
        self.epoch = 0
        self.active: Term | None = None
        self.committed: list[QuorumBatch] = []
        self.appended: dict[tuple[int, int], QuorumBatch] = {}
        """Every batch that a leader has appended, by epoch and base offset."""
        self.states: list[MetadataState] = []
        """The metadata of brokers after each committed offset."""
        self.isolated: set[ModelledController] = set()
        """The controllers that do not reach the others."""
        self.elections = 0
        self._majority_log: list[QuorumBatch] = []
        """The log of the newest leader: the next leader has a part of it."""
        self.leaders: dict[int, int] = {}
        """The leader of each epoch."""
        self.disturbed_at = 0.0
        """When an election, a crash or an isolation of controllers was seen last."""
        self.on_commit: list[Callable[[QuorumBatch], None]] = []
        self.on_request: list[Callable[[Any], None]] = []
        """Called with each request of a broker to a controller that executes it."""
        self._leaderless_since = 0.0
        self._patience = 0.0

    @property
    def bootstrap(self) -> str:
        """Return `controller.quorum.bootstrap.servers`."""
        return ",".join(f"{one.host}:{CONTROLLER_PORT}" for one in self.controllers.values())

    @property
    def end(self) -> int:
        """Return the end offset of the committed log."""
        return len(self.states)

    @property
    def state(self) -> MetadataState:
        """Return the committed metadata, as brokers see it."""
        return self.states[-1] if self.states else MetadataState()

    def start(self, records: Sequence[Any]) -> None:
        """Elect the first leader, which appends the records of a new cluster."""
        self._elect()
        assert self.active is not None
        self.active.append(records)
        self._look()

    # -- elections ---------------------------------------------------------------------------------------------------

    def is_able(self, controller: ModelledController) -> bool:
        """Return whether a controller runs and reaches the others."""
        return not (controller.is_down or controller in self.isolated or controller.node in self.loop.frozen)

    def _look(self) -> None:
        now = self.loop.time()
        able = [one for one in self.controllers.values() if self.is_able(one)]
        has_majority = len(able) > len(self.controllers) // 2
        if len(able) < len(self.controllers):
            self.disturbed_at = now
        if self.active is not None and self.is_able(self.active.node) and has_majority:
            self._leaderless_since = now
            self._patience = self.config.election * (1 + self.random.random())
        elif now - self._leaderless_since > self._patience:
            if self.active is not None and self.active.node not in self.isolated and not has_majority:
                self.active.resign()
                self.active = None
            if has_majority:
                self._elect()
        self.loop.call_later(LOOK_SECONDS, self._look)

    def elect_another(self) -> None:
        """Begin an epoch with another leader, as after lost packets between controllers."""
        self._elect()

    def _elect(self) -> None:
        former, rng = self.active, self.random
        able = [one for one in self.controllers.values() if self.is_able(one)]
        others = [one for one in able if former is None or one is not former.node] or able
        leader = rng.choice(others)
        self.epoch += rng.choice((1, 1, 1, 2, 3))
        self.elections += 1
        log = list(self.committed)
        # A majority may have the batches up to any one after the committed ones.
        uncommitted = self._majority_log[len(log) :]
        log += uncommitted[: rng.choice((0, 0, len(uncommitted), rng.randint(0, len(uncommitted))))]
        self.active = term = Term(self, leader, self.epoch, log)
        term.begin()
        self._majority_log = term.log
        if leader.term is not None and leader.term is not term:
            leader.term.resign()
        leader.term = term
        leader.known = (leader.node_id, self.epoch)
        self.leaders[self.epoch] = leader.node_id
        self.disturbed_at = self.loop.time()
        for one in self.controllers.values():
            if one is not leader:
                self._tell(one, leader, self.epoch)
        term.controller.activate()
        self._fence_later(term)

    def _tell(self, controller: ModelledController, leader: ModelledController, epoch: int) -> None:
        """Have a controller learn of a leader: soon, or late if it is a former leader without connections."""
        is_late = controller.term is not None or controller in self.isolated
        delay = self.random.random() * (self.config.stale if is_late else 0.02)
        self.loop.call_in(controller.node, delay, self._learn, controller, leader, epoch)

    def _learn(self, controller: ModelledController, leader: ModelledController, epoch: int) -> None:
        if epoch <= controller.known[1]:
            return
        if controller.term is not None:
            controller.term.resign()
            controller.term = None
        controller.known = (leader.node_id, epoch)

    def _fence_later(self, term: Term) -> None:
        if self.active is term:
            term.controller.fence_expired()
            self.loop.call_in(term.node.node, LOOK_SECONDS, self._fence_later, term)

    # -- machines ----------------------------------------------------------------------------------------------------

    def crash(self, controller: ModelledController) -> None:
        """Kill a controller."""
        controller.is_down = True
        if controller.term is not None:
            controller.term.is_deposed = True
        self.loop.frozen.discard(controller.node)
        self.loop.keep_tasks()
        controller.node.kill()
        if self.active is not None and self.active.node is controller:
            self.active = None

    def restart(self, controller: ModelledController) -> None:
        """Start a controller with its log; the caller has it listen again."""
        controller.is_down = False
        controller.term = None
        controller.known = (NO_LEADER, controller.known[1])
        controller.node.start()
        if self.active is not None:
            self._tell(controller, self.active.node, self.epoch)

    # -- commits -----------------------------------------------------------------------------------------------------

    def committed_up_to(self, term: Term, end: int) -> None:
        """Add the records of a leader to the committed log."""
        for batch in term.log[len(self.committed) :]:
            if batch.last >= end:
                break
            self.committed.append(batch)
            self.states += batch.visible
            for heed in self.on_commit:
                heed(batch)
        self._maybe_snapshot()

    def _maybe_snapshot(self) -> None:
        batch = self.committed[-1]
        if batch.before_transaction is not None:
            return
        for controller in self.controllers.values():
            latest = controller.latest_snapshot
            since = batch.last + 1 - (0 if latest is None else latest.offset)
            # Each controller takes its own.
            if since >= self.config.snapshot_records * (0.5 + self.random.random()):
                self.take_snapshot(controller, batch)

    def take_snapshot(self, controller: ModelledController, batch: QuorumBatch) -> None:
        """Store a snapshot up to a committed batch, and at times delete the records before a snapshot."""
        assert batch.before_transaction is None, "a snapshot has no part of a transaction"
        if controller.is_down or controller.known[1] < batch.epoch:
            return  # it does not have the records of leaders that it does not know
        snapshot_id = OffsetAndEpoch(batch.last + 1, batch.epoch)
        controller.snapshots[snapshot_id] = snapshot_of(batch.state, snapshot_id, self.now_ms())
        if self.config.deletes_before_snapshots and self.random.random() < 0.7:
            kept = self.random.choice(sorted(controller.snapshots, key=age_of))
            for one in list(controller.snapshots):
                if age_of(one) < age_of(kept):
                    del controller.snapshots[one]
            controller.log_start = max(controller.log_start, kept.offset)

    # -- observation -------------------------------------------------------------------------------------------------

    def chain(self, batch: QuorumBatch) -> Iterator[QuorumBatch]:
        """Yield a batch and all batches before it in its log."""
        found: QuorumBatch | None = batch
        while found is not None:
            yield found
            found = found.previous


def batch_of(
    base: int, epoch: int, pairs: Sequence[tuple[bytes | None, bytes]], timestamp: int, *, is_control: bool
) -> bytes:
    """Return the bytes of a batch of the metadata log."""
    builder = RecordBatchBuilder(base_offset=base, partition_leader_epoch=epoch, is_control=is_control)
    for key, value in pairs:
        builder.append(key, value, timestamp=timestamp)
    return bytes(builder.build())


def snapshot_of(state: MetadataState, snapshot_id: OffsetAndEpoch, timestamp: int) -> bytes:
    """Return the bytes of a snapshot."""
    parts: list[tuple[list[tuple[bytes | None, bytes]], bool]] = [
        ([r.encode_control_record(r.SnapshotHeaderRecord(version=0, last_contained_log_timestamp=timestamp))], True),
        ([(None, encoded(record)) for record in state.records()], False),
        ([r.encode_control_record(r.SnapshotFooterRecord(version=0))], True),
    ]
    data, offset = b"", 0
    for pairs, is_control in parts:
        if pairs:
            data += batch_of(offset, snapshot_id.epoch, pairs, timestamp, is_control=is_control)
            offset += len(pairs)
    return data
