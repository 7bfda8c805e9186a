"""One seeded run of a cluster: clients under faults, then a time without faults, then a comparison of all replicas."""

from __future__ import annotations

import asyncio
import random

from soak.sim.cluster.clients import LOOK_SECONDS, ClusterClients
from soak.sim.cluster.harm import ClusterNemesis
from soak.sim.cluster.invariants import Invariants
from soak.sim.cluster.operator import Operator
from soak.sim.cluster.plan import ClusterPlan
from soak.sim.cluster.replicas import differences
from soak.sim.cluster.work import WORK, Work
from soak.sim.history import WriterKind
from soak.sim.outcome import Outcome, outcome_of
from soak.sim.workload import TOPIC

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.controller.admin_manager import TopicCreation
from barnabas.simulation.cluster import ClusterWorld, SimClusterBroker
from barnabas.simulation.loop import SimLoop

READY_SECONDS = 30.0
LIVE_SECONDS = 30.0
"""Every partition acknowledges new records within this time after the last fault."""
WHOLE_SECONDS = 60.0
"""All replicas are in sync and identical within this time after the last broker has started."""


class ClusterRun(ClusterClients):
    """The run of a seed with a cluster."""

    plan: ClusterPlan
    world: ClusterWorld

    def __init__(self, loop: SimLoop, plan: ClusterPlan) -> None:
        world = ClusterWorld(loop, plan.seed, plan.settings, brokers_count=plan.brokers)
        super().__init__(world, plan, world.bootstrap)
        self.invariants = Invariants(world)
        self.operator = Operator(world)
        self.nemesis = ClusterNemesis(
            world, plan.harm, in_sync=self.invariants.in_sync, partitions=self._partitions, on_growth=self._write
        )
        self.nemesis.set_states()
        self.work: list[Work] = [WORK[name](self) for name in sorted(plan.work)]
        self.random = random.Random(f"{plan.seed}/run")

    @property
    def _kinds(self) -> tuple[WriterKind, ...]:
        return self.plan.kinds

    def check(self) -> list[str]:
        found = [violation for work in self.work for violation in work.check()]
        return [*self.invariants.violations, *self.history.check(), *self.commits.check(), *found]

    def check_unfinished(self) -> list[str]:
        return self.invariants.violations

    @property
    def lives(self) -> int:
        return sum(broker.lives for broker in self.world.brokers.values())

    @property
    def summary(self) -> str:
        return f"{self.plan.brokers} brokers, {self.acknowledged} acknowledged"

    @property
    def done(self) -> list[str]:
        return self.nemesis.done

    def trace(self) -> object:
        return super().trace(), self.commits

    async def go(self) -> None:
        world, plan = self.world, self.plan
        await asyncio.gather(*map(self.nemesis.bring_up, world.brokers.values()))
        await self._create_topic()
        self._write()
        self.clients += [
            world.spawn(world.machine("reader"), self._read()),
            world.spawn(world.machine("committer"), self._commit()),
            *(world.spawn(world.machine(work.name), work.go()) for work in self.work),
        ]
        await self.nemesis.rage()
        self.nemesis.calm_down()
        absent = self._absent() if plan.core_only else None
        if absent is not None:
            self._take_away(absent)
        await self._within(LIVE_SECONDS, "no new record is acknowledged", self._probe_all())
        world.network.heal()
        if absent is not None and absent.server is None:
            await self.nemesis.bring_up(absent)
        self.is_over = True
        await self._within(LIVE_SECONDS, "the clients do not finish", asyncio.gather(*self.clients))
        await self._drain()
        await self._become_whole()
        await world.spawn(world.machine("judge"), self._find_commit())
        for work in self.work:
            await self._within(LIVE_SECONDS, work.name, world.spawn(world.machine("judge"), work.look()))
        self.invariants.look()

    def _absent(self) -> SimClusterBroker | None:
        """Choose a broker without which the other brokers must acknowledge records; None if it is needed."""
        broker = self.random.choice(list(self.world.brokers.values()))
        return None if self.is_needed(broker) else broker

    def is_needed(self, broker: SimClusterBroker) -> bool:
        """Return whether a broker is, or may soon be, the only live broker in the ISR of a partition.

        A leader may die before its request to change the ISR is executed: the request may be in transit, or held back
        by a cut link. The check therefore includes requested ISRs in addition to the ISRs in ZooKeeper.
        """
        others = set(filter(self.counts_for_alive, self.world.brokers.keys() - {broker.broker_id}))
        partitions = () if broker.server is None else broker.server.state.replica_manager.partitions
        led = [one.followers for one in partitions if one.followers is not None]
        asked_for = [followers.pending.isr for followers in led if followers.pending is not None]
        return any(others.isdisjoint(isr) for isr in (*self.invariants.in_sync().values(), *asked_for))

    def counts_for_alive(self, broker_id: int) -> bool:
        """Return whether a broker is registered in ZooKeeper, and the controller has received this registration.

        A controller that has an earlier registration of the broker, or none, first removes the broker from ISRs. The
        brokers that remain in an ISR may include a dead broker whose session has not expired.
        """
        registration = self.world.ensemble.tree.look(f"/kafka/brokers/ids/{broker_id}")
        states = [one.server.state for one in self.world.running if one.server is not None]
        controllers = [state.controller for state in states if state.controller.is_active]
        return registration is not None and all(
            one.broker_epoch(broker_id) == registration.czxid for one in controllers
        )

    def _take_away(self, broker: SimClusterBroker) -> None:
        """Kill a broker, or cut its link to a leader that it follows."""
        world = self.world
        states = {one: one.server.state for one in world.running if one.server is not None}
        leaders = [one for one, state in states.items() if any(p.is_leader for p in state.replica_manager.partitions)]
        controllers = [one for one, state in states.items() if state.controller.is_active]
        # Do not cut the link to the controller: a broker without a controller gives clients outdated metadata.
        left = [one for one in leaders if one not in controllers]
        if not controllers or broker in (*controllers, *leaders) or not left or self.random.random() < 0.5:
            broker.crash("kill")
        else:
            world.network.cut(broker.node, self.random.choice(left).node)

    # -- topics ----------------------------------------------------------------------------------------------------

    async def _create_topic(self) -> None:
        wish = TopicCreation(TOPIC, num_partitions=self.plan.partitions, replication_factor=3)
        deadline = self.loop.time() + READY_SECONDS
        while not self._partitions():
            await self.operator.ask(lambda controller: controller.create_topics([wish]))
            assert self.loop.time() < deadline, "the topic cannot be created"
            await asyncio.sleep(LOOK_SECONDS)

    def _partitions(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, index) for index in range(self.invariants.partition_count(TOPIC))]

    # -- the end ---------------------------------------------------------------------------------------------------

    async def _become_whole(self) -> None:
        """Wait until all replicas are in sync and identical byte for byte."""
        deadline = self.loop.time() + WHOLE_SECONDS
        while found := differences(self.world, self.invariants.in_sync()):
            assert self.loop.time() < deadline, f"stuck: {found[0]} after {WHOLE_SECONDS} s"
            await asyncio.sleep(LOOK_SECONDS * 5)


def play(plan: ClusterPlan) -> Outcome[ClusterPlan]:
    """Carry out a plan and check the result."""
    command = f"python -m soak.sim.cluster --seed {plan.seed}{' --quick' if plan.is_quick else ''}"
    return outcome_of(ClusterRun, plan, command)


def play_seed(seed: int, *, quick: bool = False) -> Outcome[ClusterPlan]:
    """Carry out the plan that a seed draws."""
    return play(ClusterPlan.draw(seed, quick=quick))
