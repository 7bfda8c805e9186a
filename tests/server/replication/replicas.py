"""Replicas of one partition on brokers of their own, fed from each other by hand: no loop, no sockets, every order and
every answer delivered, delayed, lost or given twice as the test says.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from tests.server.data_plane import batch

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchPartition, PartitionData
from barnabas.protocol.messages.fetch import FetchResponse as FetchAnswer
from barnabas.protocol.record_batch import iter_batches
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.metadata.metadata_cache import MetadataCache
from barnabas.server.replication.append_request import AppendRequest
from barnabas.server.replication.delayed_fetch import FetchParams
from barnabas.server.replication.leader_and_isr import IsrChange, LeaderAndIsr, LeaderAndIsrState
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.remote_leader_endpoint import FetchLimits
from barnabas.server.replication.replica import LeaderContext
from barnabas.server.replication.replica_fetcher import ReplicaFetcher
from barnabas.server.replication.replica_manager import ReplicaManager
from barnabas.server.runtime.write_queue import WriteQueue
from barnabas.simulation.disk import Mode, SimDisk
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_validator import CLIENT_RULES
from barnabas.storage.log_values import FetchIsolation

NAME = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)
LAG_SECONDS = 10.0
FOLDER = "/data/t-0"
NEWEST_FETCH = 17


def drive(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never really waits."""
    try:
        while True:
            work.send(None)
    except StopIteration as end:
        return end.value


@asynccontextmanager
async def not_paused(_: TopicPartition) -> AsyncIterator[None]:
    yield


def bare_replica_manager(loop: Any, log_manager: Any = None, sliced_work: Any = None) -> ReplicaManager:
    """A ReplicaManager without disks and other brokers."""
    return ReplicaManager(
        log_manager=log_manager or cast(Any, SimpleNamespace(held=SimpleNamespace())),
        metadata=MetadataCache("cluster"),
        topic_log_config=cast(Any, None),
        ports=cast(Any, SimpleNamespace(work=None, log_files=None, stopwatch=lambda: 0.0)),
        sliced_work=sliced_work,
        write_queue=WriteQueue(loop),
        loop=loop,
        acks_all_on_disk=False,
        is_verification_needed=lambda: False,
        on_partitions_lost=lambda _: None,
        on_all_failed=lambda: None,
    )


class Node:
    """A broker with its replica: the ReplicaManager of the partition and of its fetcher."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.id = node_id
        self.acks_all_on_disk = cluster.on_disk
        self.group_commit = SimpleNamespace(request=self.request_flush)
        self.write_queue = WriteQueue(cast(Any, None))
        self.disk = SimDisk(keep_log=False)
        self.disk.make_dirs(FOLDER)
        self.disk.make_everything_durable()
        self.high_watermark_checkpoint = 0
        self.broker_epoch = 1
        self.is_alive = True
        self.partition_states: list[LeaderAndIsrState] = []
        self.proposals: list[IsrChange] = []
        self.wants_flush = False
        self._open(clean=True)

    def _open(self, *, clean: bool) -> None:
        self.log = Log.open(
            FOLDER,
            config=self.cluster.config,
            fs=self.disk,
            now_ms=lambda: 1_800_000_000_000,
            rng=random.Random(1),
            recovery_point=0,
            log_start_offset=0,
            clean_shutdown=clean,
        )
        self.log.restore_high_watermark(self.high_watermark_checkpoint)
        peers = LeaderContext(
            self.id,
            lambda: self.cluster.now,
            lambda: LAG_SECONDS,
            lambda broker_id, epoch: self.cluster.is_eligible(broker_id, epoch),
            lambda broker_id: self.cluster.nodes[broker_id].is_alive,
        )
        self.partition = Partition(NAME, TOPIC_ID, self.log, cast(Any, self), peers)
        self.reader = bare_replica_manager(SimpleNamespace(time=lambda: self.cluster.now))
        self.reader._add_partition(self.partition)
        self.fetcher = ReplicaFetcher(
            cast(Any, FakeLeader(self)),
            cast(Any, self),
            limits=lambda: FetchLimits(500, 1, self.cluster.max_bytes, 10 << 20, 1000),
            throttle=cast(Any, SimpleNamespace(holds_back=lambda _: False, record_fetched=lambda *_: None)),
            paused=not_paused,
            stopwatch=lambda: 0.0,
            loop=cast(asyncio.AbstractEventLoop, SimpleNamespace(time=lambda: self.cluster.now, create_task=_no_task)),
        )

    # -- its life --------------------------------------------------------------------------------------------------

    def crash(self, mode: Mode, seed: int, checkpoint: float) -> None:
        """It dies; its high watermark was written down some time before."""
        self.high_watermark_checkpoint = int(self.log.high_watermark * checkpoint)
        self.is_alive = False
        self.disk.crash()
        self.disk = self.disk.survivor(seed, mode)
        self.partition_states.clear()
        self.proposals.clear()

    def restart(self) -> None:
        self.is_alive = True
        self.wants_flush = False
        self.broker_epoch += 1
        self._open(clean=False)

    def obey(self, order: LeaderAndIsrState) -> None:
        partition = self.partition
        if order.leader_epoch <= partition.leader_epoch:
            return
        if order.leader == self.id:
            self.fetcher.remove_partition(NAME)
            partition.become_leader(order)
        elif partition.become_follower(order):
            self.fetcher.add_partition(partition)
        self.cluster.look(self)

    # -- ReplicaManager --------------------------------------------------------------------------------------------

    def request_flush(self, partition: Partition, *, may_linger: bool = False) -> None:
        self.wants_flush = True

    def flush(self) -> None:
        self.wants_flush = False
        task = self.log.begin_flush()
        task.run()
        self.partition.on_flushed(self.log.complete_flush(task))

    def try_complete_delayed_requests(self, partition: Partition) -> None:
        self.cluster.look(self)

    def complete_fetches_later(self, partition: Partition) -> None:
        return

    def try_complete_delayed_deletes(self, partition: Partition) -> None:
        return

    def submit_isr_change(self, partition: Partition, change: IsrChange) -> None:
        self.proposals.append(change)

    def truncate(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.log.truncate_to(offsets[NAME])
        self.cluster.truncations += 1

    def truncate_fully_and_start_at(self, topic_partition: TopicPartition, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset)

    def on_follower_flushed(self, partition: Partition) -> None:
        return

    async def wait_until_flushed(self, partitions: Iterable[Partition]) -> None:
        if self.acks_all_on_disk:
            self.flush()

    # -- what followers ask ----------------------------------------------------------------------------------------

    def answer(self, wanted: FetchPartition, follower: int, follower_epoch: int) -> PartitionData:
        params = FetchParams([("t", wanted)], 0, 1, 1 << 20, FetchIsolation.LOG_END, follower=follower)
        params.follower_epoch = follower_epoch
        (result,), _ = self.reader._read(params, params.partitions)
        if isinstance(result, KafkaError):
            return PartitionData(partition_index=0, error_code=result.code, high_watermark=-1, records=b"")
        data = PartitionData(
            partition_index=0,
            high_watermark=result.high_watermark,
            log_start_offset=result.log_start_offset,
            records=bytes(cast(bytes, result.records)),
        )
        if result.diverging_epoch is not None:
            data.diverging_epoch = EpochEndOffset(
                epoch=result.diverging_epoch.epoch, end_offset=result.diverging_epoch.end_offset
            )
        return data


def _no_task(work: Coroutine[Any, Any, Any]) -> object:
    work.close()
    return object()


class FakeLeader:
    """What the fetcher asks its leader beside records."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.broker_id = -1
        self.sessions_forgotten = 0

    def forget_session(self) -> None:
        self.sessions_forgotten += 1

    @property
    def _leader(self) -> Node:
        leader = self._node.cluster.nodes[self._node.partition.leader]
        if not leader.is_alive:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "dead")
        return leader

    async def fetch_offset(self, _: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        partition = self._leader.partition
        partition.check_leader_epoch(leader_epoch)
        return partition.log.log_end_offset if timestamp == -1 else partition.log.log_start_offset

    async def fetch_epoch_end_offsets(
        self, wanted: Iterable[tuple[TopicPartition, int, int]]
    ) -> dict[TopicPartition, Any]:
        partition = self._leader.partition
        ((name, leader_epoch, epoch),) = wanted
        try:
            partition.check_leader_epoch(leader_epoch)
        except KafkaError as error:
            return {name: error.code}
        return {name: partition.end_offset_for_epoch(epoch)}


@dataclass
class Answer:
    """An answer that is on its way."""

    response: FetchAnswer
    targets: dict[TopicPartition, Any]
    broker_epoch: int


@dataclass
class Cluster:
    """The nodes, who decides, and what was promised to whom."""

    size: int = 3
    min_isr: int = 2
    on_disk: bool = False
    max_bytes: int = 200
    fetch_version: int = NEWEST_FETCH
    now: float = 0.0
    truncations: int = 0
    acked: dict[int, bytes] = field(default_factory=dict)
    """Values by offset."""
    seen: dict[int, bytes] = field(default_factory=dict)
    """What was below a high watermark somewhere."""

    def __post_init__(self) -> None:
        self.config = LogConfig(min_insync_replicas=self.min_isr, segment_bytes=1000)
        self.nodes: dict[int, Node] = {}
        self._waiting: list[tuple[int, int, int, bytes]] = []
        self._answers: dict[int, list[Answer]] = {number: [] for number in range(1, self.size + 1)}
        self._number = 0
        for number in range(1, self.size + 1):
            self.nodes[number] = Node(self, number)
        self.state = LeaderAndIsrState(NAME, TOPIC_ID, 1, 1, 0, tuple(self.nodes), tuple(self.nodes))
        for node in self.nodes.values():
            node.obey(self.state)

    def is_eligible(self, broker_id: int, epoch: int) -> bool:
        node = self.nodes[broker_id]
        return node.is_alive and epoch == node.broker_epoch

    # -- clients ---------------------------------------------------------------------------------------------------

    def append(self, node_id: int, acks: int = -1) -> None:
        node = self.nodes[node_id]
        partition = node.partition
        if not node.is_alive or not partition.is_leader:
            return
        self._number += 1
        value = b"%d" % self._number
        try:
            info = partition.append_records_to_leader(
                memoryview(bytearray(batch(value))), AppendRequest(acks, 0, print, CLIENT_RULES)
            )
        except KafkaError as error:
            assert error.code is ErrorCode.NOT_ENOUGH_REPLICAS
            return
        if acks == -1:
            self._waiting.append((node_id, partition.leader_epoch, info.last_offset + 1, value))
        self.look(node)

    def look(self, node: Node) -> None:
        """Answer producers, as consumers read."""
        partition = node.partition
        partition.check_invariants()
        for entry in list(self._waiting):
            node_id, epoch, required, value = entry
            if node_id == node.id:
                is_done, error = partition.check_enough_replicas_reach_offset(required)
                if partition.leader_epoch != epoch and not partition.is_leader:
                    is_done, error = True, ErrorCode.NOT_LEADER_OR_FOLLOWER
                if is_done:
                    self._waiting.remove(entry)
                    if error is ErrorCode.NONE:
                        self.acked[required - 1] = value
        for offset, value in values(node.log, node.log.high_watermark).items():
            assert self.seen.setdefault(offset, value) == value, f"{offset} changed under readers"

    # -- replication -----------------------------------------------------------------------------------------------

    def fetch(self, node_id: int) -> None:
        """A follower asks; the answer is on its way."""
        node = self.nodes[node_id]
        partition = node.partition
        followed = node.fetcher._followed.get(NAME)
        if not node.is_alive or followed is None or not followed.is_valid:
            return
        leader = self.nodes.get(partition.leader)
        if leader is None or not leader.is_alive:
            return
        try:
            drive(node.fetcher._maybe_truncate({NAME: followed}, truncates_on_fetch=self.fetch_version >= 12))
        except KafkaError:
            return
        if not followed.is_truncated:
            return
        target = node.fetcher._target(followed, self.max_bytes, self.fetch_version)
        wanted = FetchPartition(
            partition=0,
            current_leader_epoch=target.leader_epoch,
            fetch_offset=target.offset,
            last_fetched_epoch=target.last_fetched_epoch,
            log_start_offset=target.log_start_offset,
            partition_max_bytes=self.max_bytes,
        )
        data = leader.answer(wanted, node_id, node.broker_epoch)
        response = FetchAnswer(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
        self._answers[node_id].append(Answer(response, {NAME: target}, node.broker_epoch))

    def deliver_answer(self, node_id: int, *, lost: bool = False) -> None:
        node, answers = self.nodes[node_id], self._answers[node_id]
        if not answers:
            return
        answer = answers.pop(0)
        if lost or not node.is_alive or answer.broker_epoch != node.broker_epoch:
            return
        followed = node.fetcher._followed.get(NAME)
        if followed is not None:
            followed.not_before = 0.0
        try:
            drive(node.fetcher._process_fetch_response(answer.response, answer.targets))
        except KafkaError:
            return
        self.look(node)

    # -- who decides -----------------------------------------------------------------------------------------------

    def decide(self, node_id: int, *, answer_lost: bool = False) -> None:
        """AlterPartition: one proposal of a leader."""
        node = self.nodes[node_id]
        if not node.is_alive or not node.proposals:
            return
        change = node.proposals[0]
        try:
            now = self._alter(change)
        except KafkaError as error:
            if answer_lost and error.code is ErrorCode.INVALID_UPDATE_VERSION:
                return
            node.proposals.pop(0)
            node.partition.fail_isr_change(change, error.code)
            return
        if not answer_lost:
            node.proposals.pop(0)
            node.partition.complete_isr_change(change, now)
            self.look(node)

    def _alter(self, change: IsrChange) -> LeaderAndIsr:
        state = self.state
        if change.leader_epoch != state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "old")
        if change.partition_epoch != state.partition_epoch:
            if change.partition_epoch + 1 == state.partition_epoch and change.isr == state.isr:
                return LeaderAndIsr(state.leader, state.leader_epoch, state.partition_epoch, state.isr)
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "old")
        for broker_id, epoch in zip(change.isr, change.broker_epochs, strict=True):
            if broker_id != state.leader and not self.is_eligible(broker_id, epoch):
                raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, "dead or another life")
        self.state = replace(state, partition_epoch=state.partition_epoch + 1, isr=change.isr)
        state = self.state
        return LeaderAndIsr(state.leader, state.leader_epoch, state.partition_epoch, state.isr)

    def elect(self, preferred: int = 0) -> None:
        """A leader out of the live ones in sync; dead ones leave the set, unless nobody would be left."""
        state = self.state
        live = tuple(broker_id for broker_id in state.isr if self.nodes[broker_id].is_alive)
        self._announce(live[preferred % len(live)] if live else -1, live or state.isr)

    def _announce(self, leader: int, isr: tuple[int, ...]) -> None:
        """A next term begins."""
        state = self.state
        order = self.state = replace(
            state,
            leader=leader,
            leader_epoch=state.leader_epoch + 1,
            partition_epoch=state.partition_epoch + 1,
            isr=isr,
        )
        for node in self.nodes.values():
            if node.is_alive:
                node.partition_states.append(order)

    def deliver_order(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if node.is_alive and node.partition_states:
            node.obey(node.partition_states.pop(0))

    def crash(self, node_id: int, mode: Mode, seed: int, checkpoint: float = 0.5) -> None:
        node = self.nodes[node_id]
        if node.is_alive:
            self._waiting = [one for one in self._waiting if one[0] != node_id]
            self._answers[node_id].clear()
            node.crash(mode, seed, checkpoint)

    def restart(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if not node.is_alive:
            node.restart()
            # Its broker epoch is another one: the controller takes it for dead first, and elects.
            if node_id in self.state.isr and len(self.state.isr) > 1 and self.state.leader != node_id:
                rest = tuple(one for one in self.state.isr if one != node_id)
                self._announce(self.state.leader, rest)
            elif self.state.leader in (-1, node_id):
                self.elect()
            node.partition_states[:] = [self.state]

    # -- the end ---------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Everything works again, until all replicas are in sync and have the same."""
        for node_id in self.nodes:
            self.restart(node_id)
        if self.state.leader == -1 or self.state.leader not in self.state.isr:
            self.elect()
        for answers in self._answers.values():
            answers.clear()
        for _ in range(400):
            for node_id, node in self.nodes.items():
                while node.partition_states:
                    self.deliver_order(node_id)
                if node.wants_flush:
                    node.flush()
                self.fetch(node_id)
                self.deliver_answer(node_id)
                self.decide(node_id)
            ends = {node.log.log_end_offset for node in self.nodes.values()}
            marks = {node.log.high_watermark for node in self.nodes.values()}
            if ends == marks and len(ends) == 1 and len(self.state.isr) == self.size:
                return
        raise AssertionError(
            [(n.id, n.log.log_end_offset, n.log.high_watermark, n.partition.leader_epoch) for n in self.nodes.values()]
            + [self.state]
        )

    def check(self) -> None:
        contents = [values(node.log, node.log.log_end_offset) for node in self.nodes.values()]
        for offset, value in self.acked.items():
            assert contents[0].get(offset) == value, f"acknowledged {value!r} at {offset} is lost"
        for offset, value in self.seen.items():
            assert contents[0].get(offset) == value, f"{value!r} at {offset} was read and is lost"
        images = [image(node.log) for node in self.nodes.values()]
        assert all(one == images[0] for one in images), "replicas differ"


def image(log: Log) -> bytes:
    """The bytes of all batches."""
    read, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        piece = bytes(log.read(offset, 1 << 20, min_one_message=True).data)
        read += piece
        offset = max(one.last_offset for one in iter_batches(piece)) + 1
    return read


def values(log: Log, bound: int) -> dict[int, bytes]:
    """Values by offset, below a bound."""
    return {
        record.offset: bytes(record.value or b"")
        for one in iter_batches(image(log))
        for record in one.records()
        if record.offset < bound
    }
