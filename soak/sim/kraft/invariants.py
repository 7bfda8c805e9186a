"""Invariants of a KRaft cluster: the brokers agree with the committed metadata log and with the quorum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from soak.sim.kraft.folders import folders_of
from soak.sim.kraft.images import comparable, first_difference, outdated_cache, outdated_parts, state_of
from soak.sim.kraft.nemesis import KRaftNemesis
from soak.sim.kraft.plan import KRaftPlan
from soak.sim.replica_invariants import ReplicaInvariants

from barnabas.protocol import metadata_records as r
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest
from barnabas.protocol.record_batch import RecordBatch
from barnabas.server.image.metadata_image import EMPTY_IMAGE, MetadataImage
from barnabas.server.kraft.kraft_member import KRaftMember
from barnabas.server.raft.broker_lifecycle_manager import BrokerLifecycleState
from barnabas.server.raft.kafka_raft_log import KafkaRaftLog
from barnabas.server.replication.partition import Partition
from barnabas.simulation.broker_world import ClusterMachine
from barnabas.simulation.kraft.cluster import KRaftWorld, SimKRaftBroker
from barnabas.simulation.kraft.quorum import QuorumBatch

HEARTBEAT_SLACK = 0.4
"""The tolerance in seconds, in addition to the heartbeat interval, for the next heartbeat of a broker."""
LAG = 3.0
"""The seconds within which a broker without faults must have the committed records."""
CALM = 1.5
"""The seconds in which a broker finds the active controller again, in addition to the timeouts of requests."""


@dataclass
class Life:
    """The observations of a broker between one start and the next stop."""

    number: int
    image: MetadataImage = EMPTY_IMAGE
    loaded: MetadataImage = EMPTY_IMAGE
    checked: MetadataImage = EMPTY_IMAGE
    """The last image that was compared with the parts of the broker."""
    cached: tuple[object, MetadataImage] | None = None
    """The last compared snapshot of the metadata cache, and the image that it was compared with."""
    offset: int = -1
    high_watermark: int = -1
    epoch: int = -1
    first_offset: int = -1
    """The offset of the first image, at which the broker opened its folders."""
    has_checked_replica: bool = False
    has_checked_strays: bool = False
    heartbeat_at: float = -1.0
    goal: tuple[int, float] = (-1, 0.0)
    """A committed end offset that the broker has to reach, and the time of the commit."""


class KRaftInvariants(ReplicaInvariants):
    """A checker of all brokers that runs every `LOOK_SECONDS`, at each commit and at each request to a controller."""

    def __init__(self, world: KRaftWorld, plan: KRaftPlan, nemesis: KRaftNemesis) -> None:
        super().__init__(world)
        self._plan = plan
        self._nemesis = nemesis
        self._brokers = world.brokers
        self._quorum = world.quorum
        self._world = world
        self.least_in_sync = int(plan.settings["min.insync.replicas"])
        self._lives: dict[int, Life] = {}
        self._calm_since: dict[int, float] = {}
        self._incarnations: dict[UUID, tuple[int, int]] = {}
        self._registered: dict[int, tuple[int, int]] = {}
        """The number of the start and the broker epoch of the last registration of each broker."""
        self._stopped_cleanly: set[tuple[int, int]] = set()
        """The starts (broker, number) that ended with a clean stop."""
        self._applied: dict[int, int] = {}
        """The highest offset that each broker has applied in any of its starts."""
        self._strays: dict[int, set[str]] = {}
        self._quorum.on_request.append(self._requested)
        self._quorum.on_commit.append(self._committed)

    # -- the quorum --------------------------------------------------------------------------------------------------

    def _requested(self, request: Any) -> None:
        if isinstance(request, BrokerHeartbeatRequest):
            life = self._lives.get(request.broker_id)
            if life is not None:
                life.heartbeat_at = self.world.loop.time()
        elif isinstance(request, BrokerRegistrationRequest):
            self._check_registration(request)

    def _check_registration(self, request: BrokerRegistrationRequest) -> None:
        broker = self._brokers[request.broker_id]
        me = (broker.broker_id, broker.lives)
        if self._incarnations.setdefault(request.incarnation_id, me) != me:
            self._say(f"incarnation: {me} registers as {self._incarnations[request.incarnation_id]}")
        previous = request.previous_broker_epoch
        if previous >= 0:
            life, epoch = self._registered.get(broker.broker_id, (0, -1))
            is_clean = previous == epoch and (broker.broker_id, life) in self._stopped_cleanly
            if not is_clean and life != broker.lives:
                self._say(f"clean stop: {me} had epoch {epoch}, has not stopped cleanly, and claims {previous}")

    def _committed(self, batch: QuorumBatch) -> None:
        for offset, record in enumerate(batch.records, batch.base):
            if isinstance(record, r.RegisterBrokerRecord):
                broker = self._brokers[record.broker_id]
                self._registered[record.broker_id] = (broker.lives, record.broker_epoch)
            elif isinstance(record, r.BrokerRegistrationChangeRecord) and record.fenced > 0:
                self._check_fencing(record.broker_id, offset)

    def _check_fencing(self, broker_id: int, offset: int) -> None:
        """Check that a broker without faults keeps its session."""
        member = self.member(self._brokers[broker_id])
        lifecycle = None if member is None else member._lifecycle
        if lifecycle is not None and lifecycle.state is BrokerLifecycleState.RUNNING and self._is_calm(broker_id):
            self._say(f"fenced: broker {broker_id} at offset {offset}, without a cause")

    def note_stop(self, broker: ClusterMachine, life: int, was_calm: bool) -> None:
        """Check that a cleanly stopped broker has done a controlled shutdown, after which it leads no partition."""
        self._stopped_cleanly.add((broker.broker_id, life))
        registered = self._quorum.state.brokers.get(broker.broker_id)
        if was_calm and registered is not None and registered.is_active:
            self._say(f"shutdown: broker {broker.broker_id} has stopped without a controlled shutdown")

    # -- calm --------------------------------------------------------------------------------------------------------

    def _is_calm(self, broker_id: int) -> bool:
        timeouts = int(self._plan.settings["controller.quorum.request.timeout.ms"]) / 1000 + self._plan.session
        return self.world.loop.time() - self._calm_since.get(broker_id, 1e9) > CALM + timeouts

    def is_calm(self, broker: ClusterMachine) -> bool:
        """Return whether a broker and its links to the controllers have had no fault for some time."""
        return self._is_calm(broker.broker_id)

    def _note_disturbance(self, broker: SimKRaftBroker) -> None:
        network, loop, node = self.world.network, self.world.loop, broker.node
        nodes = [one.node for one in self._quorum.controllers.values()]
        is_cut = any(network.is_cut(node, one) or network.is_cut(one, node) for one in nodes)
        is_slow = any(node in link for link in network.slow) and any(
            one in link for one in nodes for link in network.slow
        )
        is_paused = node in loop.frozen and broker not in self._nemesis.in_turn
        faults = self._plan.faults & {"tail", "slow commits"} and not self._nemesis.is_over
        recent = max(self._quorum.disturbed_at, self._nemesis.disturbed_at)
        if is_cut or is_slow or is_paused or faults or broker.server is None:
            recent = loop.time()
        self._calm_since[broker.broker_id] = max(self._calm_since.get(broker.broker_id, 0.0), recent)

    # -- brokers -----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        super().look()
        for broker in self._brokers.values():
            self._note_disturbance(broker)
            member = self.member(broker)
            if member is not None:
                self._look_at_member(broker, member)

    @staticmethod
    def member(broker: SimKRaftBroker) -> KRaftMember | None:
        member = None if broker.building is None else broker.building._member
        return member if isinstance(member, KRaftMember) else None

    def _look_at_member(self, broker: SimKRaftBroker, member: KRaftMember) -> None:
        life = self._lives.get(broker.broker_id)
        if life is None or life.number != broker.lives:
            life = self._lives[broker.broker_id] = Life(broker.lives)
        me = f"broker {broker.broker_id} in life {broker.lives}"
        assert broker.building is not None
        if broker.building.failed.is_set():
            self._say(f"halted: {me}: {broker.building.failure}")
        if member._published.image is not life.image:
            life.image = member._published.image
            self._check_image(me, "published", life.image)
            offset = life.image.provenance.last_contained_offset
            if offset < life.offset:
                self._say(f"backwards: {me} had published {life.offset}, now {offset}")
            if life.first_offset < 0:
                life.first_offset = offset
            life.offset = offset
        if member._loader.image is not life.loaded:
            life.loaded = member._loader.image
            self._check_image(me, "loaded", life.loaded)
        self._look_at_observer(broker.broker_id, me, life, member)
        if member._lifecycle is not None and not life.has_checked_strays:
            life.has_checked_strays = True
            self._look_at_strays(broker, me, life)
        if member._publisher is not None:
            applied = self._applied.get(broker.broker_id, -1)
            self._applied[broker.broker_id] = max(member._publisher.applied_offset, applied)
        self._look_at_cache(broker, me, life, member)
        self._look_at_parts(broker, me, life, member)
        self._look_at_heartbeats(broker, me, life, member)

    def _check_image(self, me: str, kind: str, image: MetadataImage) -> None:
        if image is EMPTY_IMAGE:
            return
        offset = image.provenance.last_contained_offset
        if offset >= self._quorum.end:
            self._say(f"uncommitted: {me} has {kind} offset {offset}, {self._quorum.end} are committed")
            return
        difference = first_difference(state_of(image), comparable(self._quorum.states[offset]))
        if difference:
            self._say(f"image: {me} has {kind} at {offset} {difference}")

    def _look_at_observer(self, broker_id: int, me: str, life: Life, member: KRaftMember) -> None:
        raft = member._raft
        state, replica = (None, None) if raft is None else (raft._state, raft._replica)
        if state is None or replica is None:
            return
        epoch, leader = state.leader_and_epoch.epoch, state.leader_and_epoch.leader_id
        if epoch < life.epoch:
            self._say(f"epoch: {me} changed from {life.epoch} to {epoch}")
        life.epoch = epoch
        if leader is not None and self._quorum.leaders.get(epoch) != leader:
            self._say(f"leader: {me} follows {leader} in epoch {epoch}, led by {self._quorum.leaders.get(epoch)}")
        high_watermark = -1 if state.high_watermark is None else state.high_watermark
        if high_watermark < life.high_watermark:
            self._say(f"high watermark: {me} decreased from {life.high_watermark} to {high_watermark}")
        if high_watermark > self._quorum.end:
            self._say(f"high watermark: {me} has {high_watermark}, {self._quorum.end} are committed")
        life.high_watermark = high_watermark
        now = self.world.loop.time()
        is_slow = "slow disk" in self._plan.faults and not self._nemesis.is_over
        if high_watermark >= life.goal[0] or is_slow or not self._is_calm(broker_id):
            life.goal = (self._quorum.end, now)
        elif now - life.goal[1] > LAG:
            self._say(f"lag: {me} has {high_watermark} of {life.goal[0]} records after {LAG} s")
            life.goal = (self._quorum.end, now)
        if not life.has_checked_replica:
            life.has_checked_replica = True
            self.check_replica(me, replica)

    def check_replica(self, me: str, replica: KafkaRaftLog) -> None:
        """Check that the log and the epochs of a replica match the log of a leader of the quorum."""
        offset, epochs = replica.start_offset, list[tuple[int, int]]()
        known: QuorumBatch | None = None
        while offset < replica.end_offset:
            for batch in replica.read(offset, replica.end_offset):
                assert isinstance(batch, RecordBatch)
                epoch = batch.partition_leader_epoch
                before, known = known, self._quorum.appended.get((epoch, batch.base_offset))
                if known is None or known.last != batch.last_offset:
                    self._say(f"replica: {me} has a batch at {batch.base_offset} of epoch {epoch} that no leader had")
                    return
                if before is not None and known.previous is not before:
                    self._say(f"replica: {me} has batches at {before.base} and {known.base} of different leaders")
                    return
                if not epochs or epochs[-1][0] != epoch:
                    epochs.append((epoch, batch.base_offset))
                offset = batch.last_offset + 1
        found = [(entry.epoch, entry.start_offset) for entry in replica._log.leader_epochs.entries]
        # As in Kafka, the log start is not stored: after a restart the first segment has records without epochs again.
        wanted = [epoch for epoch, _ in epochs if not found or epoch >= found[0][0]]
        if not epochs and [offset for _, offset in found] == [replica.end_offset]:
            # As in Kafka, the last epoch is kept when all records have been deleted, because a snapshot has them.
            wanted = [found[0][0]]
        if [epoch for epoch, _ in found] != wanted:
            self._say(f"epochs: {me} has {found}, its records have {epochs}")

    def _look_at_strays(self, broker: SimKRaftBroker, me: str, life: Life) -> None:
        """Check that each replica renamed to a stray at the start was moved or deleted in the metadata."""
        known = self._strays.setdefault(broker.broker_id, set())
        for folder in folders_of(broker.disk, self._plan.settings["log.dirs"].split(",")):
            if folder.kind != "stray" or folder.path in known:
                continue
            known.add(folder.path)
            since = self._quorum.states[self._applied.get(broker.broker_id, -1) + 1 : life.first_offset + 1]
            partitions = [state.partitions.get(folder.key) for state in since]
            if all(one is not None and broker.broker_id in one.replicas for one in partitions):
                self._say(f"stray: {me} has opened its folders at {life.first_offset} and renamed {folder.path}")

    def _look_at_cache(self, broker: SimKRaftBroker, me: str, life: Life, member: KRaftMember) -> None:
        """Check that the metadata cache agrees with the published image, also during a publication."""
        publisher, server = member._publisher, broker.server
        if publisher is None or server is None or not publisher.has_published.is_set():
            return
        found = server.state.metadata.snapshot, life.image
        if life.cached is not None and life.cached[0] is found[0] and life.cached[1] is found[1]:
            return
        life.cached = found
        offset = life.image.provenance.last_contained_offset
        if offset < self._quorum.end:
            for part in outdated_cache(server, self._quorum.states[offset]):
                self._say(f"cache: {me} at {offset}: {part}")

    def _look_at_parts(self, broker: SimKRaftBroker, me: str, life: Life, member: KRaftMember) -> None:
        publisher, server = member._publisher, broker.server
        if publisher is None or server is None or server._stopping or not publisher.has_published.is_set():
            return
        if publisher._publication_lock.locked() or publisher._failed or life.checked is life.image:
            return
        life.checked = life.image
        offset = life.image.provenance.last_contained_offset
        if offset < self._quorum.end:
            for part in outdated_parts(server, broker.broker_id, self._quorum.states[offset]):
                self._say(f"parts: {me} at {offset}: {part}")

    def _look_at_heartbeats(self, broker: SimKRaftBroker, me: str, life: Life, member: KRaftMember) -> None:
        lifecycle = member._lifecycle
        if (
            lifecycle is None
            or lifecycle.state is not BrokerLifecycleState.RUNNING
            or not self._is_calm(broker.broker_id)
        ):
            return
        if broker.node in self.world.loop.frozen or self._nemesis.was_in_turn(broker, HEARTBEAT_SLACK):
            return
        late = self.world.loop.time() - life.heartbeat_at - self._plan.heartbeat
        if late > HEARTBEAT_SLACK:
            self._say(f"heartbeat: {me} is late by {late:.3f} s")
            life.heartbeat_at = self.world.loop.time()

    def _in_sync(self, partition: Partition) -> list[int]:
        key = (partition.topic_id, partition.topic_partition.partition)
        found = self._quorum.state.partitions.get(key)
        return [] if found is None else list(found.isr)
