"""Invariants of the replicas of all brokers, checked every 20 simulated milliseconds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from barnabas.common.uuid_text import uuid_text
from barnabas.protocol.record_batch import RecordBatch, iter_batches
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.replication.partition import Partition
from barnabas.simulation.broker_world import BrokerWorld, ClusterMachine
from barnabas.storage.errors import InvariantViolationError, LogDirFailedError

LOOK_SECONDS = 0.02
MAX_BYTES = 1 << 24
LEAST_IN_SYNC = 2
"""`min.insync.replicas` of all topics that the simulations create."""

Seen = tuple[int, int]
"""The last offset of a batch and the checksum of the batch."""
Identity = tuple[str, TopicPartition]
"""The topic id and the partition: a topic that is created again has another id."""
Life = tuple[int, int, Identity]
"""A replica between a start and the next stop of its broker: broker id, number of the start, identity."""


@dataclass
class Committed:
    """The records that a replica reported as committed, which must remain."""

    batches: dict[int, Seen] = field(default_factory=dict)
    """The committed batches by base offset."""
    end: int = 0
    gaps: list[range] = field(default_factory=list)
    """Offsets below the log start of the first replica that was read, for example after DeleteRecords."""

    def is_unread(self, offset: int) -> bool:
        """Return whether no replica has been read at this offset yet."""
        return offset not in self.batches and any(offset in gap for gap in self.gaps)


class ReplicaInvariants(ABC):
    """A checker of all replicas that runs every `LOOK_SECONDS` of simulated time."""

    def __init__(self, world: BrokerWorld) -> None:
        self.world = world
        self.violations: list[str] = []
        self.least_in_sync = LEAST_IN_SYNC
        self.committed: dict[Identity, Committed] = {}
        self._leaders: dict[tuple[Identity, int], tuple[int, int]] = {}
        """The leader of each epoch: a broker and the number of its start."""
        self._watermarks: dict[Life, tuple[int, int, int]] = {}
        """The leader epoch, partition epoch and high watermark at the last check."""
        self._compared: dict[Life, int] = {}
        self._look_later()

    def _look_later(self) -> None:
        self.world.loop.call_later(LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self.look()
        self._look_later()

    def _say(self, violation: str) -> None:
        self.violations.append(f"{self.world.loop.time():.3f} {violation}")

    @abstractmethod
    def _in_sync(self, partition: Partition) -> list[int]:
        """Return the ISR from the metadata, if the topic still has the topic id of this replica."""

    def _topic_id(self, partition: Partition) -> str:
        """Return the id of the topic of a replica."""
        return uuid_text(partition.topic_id)

    def look(self) -> None:
        """Check all online replicas of all running brokers."""
        for broker in self.world.running:
            assert broker.server is not None
            manager = broker.server.state.replica_manager
            for partition in manager.partitions:
                if not partition.is_offline:
                    self._look_at(broker, partition)
            try:
                manager.check_invariants()
            except (AssertionError, InvariantViolationError) as error:
                self._say(f"invariant: {(broker.broker_id, broker.lives)}: {error}")

    def _look_at(self, broker: ClusterMachine, partition: Partition) -> None:
        name, log = (self._topic_id(partition), partition.topic_partition), partition.log
        me = (broker.broker_id, broker.lives, name)
        watermark, end = log.high_watermark, log.log_end_offset
        if watermark > end:
            self._say(f"watermark: {me} has high watermark {watermark} and log end offset {end}")
        if partition.is_leader:
            first = self._leaders.setdefault((name, partition.leader_epoch), me[:2])
            if first != me[:2]:
                self._say(f"two leaders: {name} in epoch {partition.leader_epoch}: {first}, {me[:2]} (broker, start)")
        epoch, version, last = self._watermarks.get(me, (-2, 0, 0))
        if partition.leader_epoch == epoch and watermark < last:
            self._say(f"watermark: {me} decreased from {last} to {watermark} in epoch {epoch}")
        same_isr = (partition.leader_epoch, partition.partition_epoch) == (epoch, version)
        if (
            partition.is_leader
            and same_isr
            and watermark > last
            and len(partition.in_sync_replicas) < self.least_in_sync
        ):
            self._say(f"min isr: {me} advanced to {watermark} with the ISR {partition.in_sync_replicas}")
        self._watermarks[me] = (partition.leader_epoch, partition.partition_epoch, watermark)
        committed = self.committed.setdefault(name, Committed())
        if watermark > self._compared.get(me, 0):
            self._maybe_truncate(me, partition, committed, watermark)
        isr = self._in_sync(partition)
        if broker.broker_id in isr and end < committed.end:
            self._say(f"in sync: {me} ends at {end} before the committed {committed.end}, and is in the ISR {isr}")

    def _maybe_truncate(self, me: Life, partition: Partition, committed: Committed, watermark: int) -> None:
        """Check that newly committed batches are identical on all replicas."""
        start = max(self._compared.get(me, 0), partition.log.log_start_offset)
        while start < watermark:
            try:
                data = partition.log.read(start, MAX_BYTES, max_offset=watermark, min_one_message=True)
            except LogDirFailedError:
                return
            for batch in iter_batches(data.data):
                assert isinstance(batch, RecordBatch)
                header = batch.header
                base, found = header.base_offset, (header.last_offset, header.crc)
                if base >= committed.end:
                    if base > committed.end:
                        committed.gaps.append(range(committed.end, base))
                    committed.batches[base] = found
                    committed.end = header.last_offset + 1
                elif committed.is_unread(base):
                    committed.batches[base] = found
                elif committed.batches.get(base) != found:
                    self._say(f"content: {me} has {found} at {base}, {committed.batches.get(base)} was committed")
                    self._compared[me] = watermark
                    return
                self._compared[me] = start = header.last_offset + 1
