"""One seeded run of a KRaft cluster: clients and operators under faults, then a comparison of all brokers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

from soak.sim.cluster.clients import LOOK_SECONDS, ClusterClients
from soak.sim.cluster.replicas import differences
from soak.sim.cluster.work import Churn, Members, Work
from soak.sim.kraft.folders import Folder, folders_of, misplaced_folders, unassigned_directories
from soak.sim.kraft.invariants import KRaftInvariants
from soak.sim.kraft.nemesis import SCRATCH, KRaftNemesis
from soak.sim.kraft.plan import KRaftPlan
from soak.sim.outcome import Outcome, outcome_of
from soak.sim.workload import TOPIC

from barnabas.protocol import metadata_records as r
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.kraft.cluster import KRaftWorld, SimKRaftBroker
from barnabas.simulation.loop import SimLoop

READY_SECONDS = 60.0
LIVE_SECONDS = 40.0
"""Every partition acknowledges new records within this time after the last fault."""
WHOLE_SECONDS = 60.0
"""All replicas are in sync and identical within this time after the last fault."""
MAX_LAG = 3
"""The number of committed records that a broker may not yet have applied at the end: commits never pause."""
FEATURES = {"metadata.version": 25, "group.version": 1, "transaction.version": 2}


class KRaftChurn(Churn):
    """A topic that is repeatedly created and deleted by the controllers."""

    _run: KRaftRun

    async def _create(self) -> None:
        self._run.order(lambda controller: controller.create_topic("churn", 1, min(3, self._run.plan.brokers)))

    async def _delete(self) -> None:
        self._run.order(lambda controller: controller.delete_topic("churn"))

    def _present(self) -> str:
        """Return the id of the topic, or an empty string while a broker may still serve a deleted topic."""
        topic_id = self._run.world.quorum.state.topic_id("churn")
        servers = [broker.server for broker in self._run.world.running]
        held = {
            partition.topic_id
            for server in servers
            if server is not None
            for partition in server.state.replica_manager.partitions
            if partition.topic_partition.topic == "churn"
        }
        return "" if topic_id is None or held - {topic_id} else str(topic_id)

    def _is_being_deleted(self) -> bool:
        active = self._run.world.quorum.active
        return active is None or str(active.state.topic_id("churn")) != self._present()


class KRaftRun(ClusterClients):
    """The run of a plan with a KRaft cluster."""

    plan: KRaftPlan
    world: KRaftWorld

    def __init__(self, loop: SimLoop, plan: KRaftPlan) -> None:
        world = KRaftWorld(loop, plan.seed, plan.settings, brokers_count=plan.brokers, quorum_config=plan.quorum)
        super().__init__(world, plan, world.bootstrap)
        self.nemesis = KRaftNemesis(world, plan)
        self.invariants = KRaftInvariants(world, plan, self.nemesis)
        self.nemesis.on_stop = self.invariants.note_stop
        self.nemesis.is_calm = self.invariants.is_calm
        self.nemesis.set_states()
        kinds: dict[str, Any] = {"churn": KRaftChurn, "members": Members}
        self.work: list[Work] = [kinds[name](self) for name in sorted(plan.work)]
        self.random = random.Random(f"{plan.seed}/run")
        self._errors: list[str] = []

    def check(self) -> list[str]:
        found = [violation for work in self.work for violation in work.check()]
        return [*self.check_unfinished(), *self.history.check(), *self.commits.check(), *found]

    def check_unfinished(self) -> list[str]:
        return [*self.invariants.violations, *self._errors]

    @property
    def lives(self) -> int:
        return sum(broker.lives for broker in self.world.brokers.values())

    @property
    def summary(self) -> str:
        quorum = self.world.quorum
        return (
            f"{self.plan.brokers} brokers, {self.acknowledged} acknowledged, {quorum.end} metadata records, "
            f"{quorum.elections} elections"
        )

    @property
    def done(self) -> list[str]:
        return self.nemesis.done

    def trace(self) -> object:
        return super().trace(), self.commits, self.world.quorum.end

    async def go(self) -> None:
        world = self.world
        await world.start_controllers(
            [r.FeatureLevelRecord(name=name, feature_level=n) for name, n in FEATURES.items()]
        )
        await asyncio.gather(*map(self.nemesis.bring_up, world.brokers.values()))
        await self._create_topics()
        self._write()
        self.clients += [
            world.spawn(world.machine("reader"), self._read()),
            world.spawn(world.machine("committer"), self._commit()),
            *(world.spawn(world.machine(work.name), work.go()) for work in self.work),
        ]
        idle = self.loop.create_task(self._write_no_ops())
        await self.nemesis.rage()
        self._end_after_violations()
        self.nemesis.calm_down()
        await self._within(LIVE_SECONDS, "no new record is acknowledged", self._probe_all())
        self.is_over = True
        await self._within(LIVE_SECONDS, "the clients do not finish", asyncio.gather(*self.clients))
        await self._drain()
        await self._become_whole()
        await world.spawn(world.machine("judge"), self._find_commit())
        for work in self.work:
            await self._within(LIVE_SECONDS, work.name, world.spawn(world.machine("judge"), work.look()))
        idle.cancel()
        self.invariants.look()
        self._look_at_brokers()

    def _end_after_violations(self) -> None:
        """End a run after a violation. A broker that does not follow the quorum would make the rest of the run slow."""
        assert not self.invariants.violations, self.invariants.violations[0]

    def order(self, change: Any) -> None:
        """Let the current leader append a change of the metadata."""
        active = self.world.quorum.active
        if active is not None and self.world.quorum.is_able(active.node):
            change(active.controller)

    async def _create_topics(self) -> None:
        deadline = self.loop.time() + READY_SECONDS
        state = self.world.quorum
        factor = min(3, self.plan.brokers)
        while state.state.topic_id(TOPIC) is None or state.state.topic_id(SCRATCH) is None:
            self.order(lambda controller: controller.create_topic(TOPIC, self.plan.partitions, factor))
            self.order(lambda controller: controller.create_topic(SCRATCH, 2, 2, {"segment.bytes": "2000000"}))
            assert self.loop.time() < deadline, "the topics cannot be created"
            await asyncio.sleep(LOOK_SECONDS)

    async def _write_no_ops(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            active = self.world.quorum.active
            if active is not None and self.world.quorum.is_able(active.node) and not active.is_in_transaction:
                active.controller.no_op()

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _become_whole(self) -> None:
        """Wait until all replicas are in sync and identical, and all brokers have applied the metadata."""
        deadline = self.loop.time() + WHOLE_SECONDS
        while True:
            found = [*self._unfinished(), *differences(self.world, self._in_sync())]
            if not found:
                return
            self._end_after_violations()
            assert self.loop.time() < deadline, f"stuck: {found[0]} after {WHOLE_SECONDS} s"
            await asyncio.sleep(LOOK_SECONDS * 5)

    def _in_sync(self) -> dict[TopicPartition, list[int]]:
        state = self.world.quorum.state
        return {
            TopicPartition(state.topics[topic_id], index): list(one.isr)
            for (topic_id, index), one in state.partitions.items()
        }

    def _unfinished(self) -> Iterator[str]:
        """Yield the differences between the brokers and the metadata."""
        state = self.world.quorum.state
        for broker in self.world.brokers.values():
            registered = state.brokers.get(broker.broker_id)
            if broker.server is None or registered is None or not registered.is_active:
                yield f"broker {broker.broker_id} is registered as {registered}"
                continue
            member = self.invariants.member(broker)
            applied = -1 if member is None or member._publisher is None else member._publisher.applied_offset
            if applied < self.world.quorum.end - MAX_LAG:
                yield f"broker {broker.broker_id} has applied {applied} of {self.world.quorum.end} records"
            folders = self._folders(broker)
            # The delay of deletions uses the wall clock, which may have been set back.
            is_late = "clock jump" in self.plan.faults
            yield from misplaced_folders(folders, broker.broker_id, state, may_be_deleted_later=is_late)
            directories = broker.server.state.log_manager.directory_ids()
            yield from unassigned_directories(folders, broker.broker_id, state, directories)
        for (topic_id, index), one in state.partitions.items():
            if one.adding or one.removing or set(one.isr) != set(one.replicas) or one.leader < 0:
                yield f"{state.topics[topic_id]}-{index} is {one}"

    def _folders(self, broker: SimKRaftBroker) -> list[Folder]:
        return list(folders_of(broker.disk, self.plan.settings["log.dirs"].split(",")))

    def _look_at_brokers(self) -> None:
        """Check the replicas of the metadata log and the stray replicas."""
        for broker in self.world.brokers.values():
            me = f"broker {broker.broker_id} at the end"
            member = self.invariants.member(broker)
            if member is None or member._raft is None or member._raft._replica is None:
                self._errors.append(f"no metadata: {me}")
                continue
            self.invariants.check_replica(me, member._raft._replica)


def play(plan: KRaftPlan) -> Outcome[KRaftPlan]:
    """Carry out a plan and check the result."""
    command = f"python -m soak.sim.kraft --seed {plan.seed}{' --quick' if plan.is_quick else ''}"
    return outcome_of(KRaftRun, plan, command)


def play_seed(seed: int, *, quick: bool = False) -> Outcome[KRaftPlan]:
    """Carry out the plan that a seed draws."""
    return play(KRaftPlan.draw(seed, quick=quick))
