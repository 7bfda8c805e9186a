"""Faults of a KRaft cluster: of brokers, of controllers and between them, and changes of the metadata meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from soak.sim.kraft.plan import KRaftPlan
from soak.sim.workload import TOPIC

from barnabas.protocol import metadata_records as r
from barnabas.simulation.broker_world import ClusterMachine
from barnabas.simulation.kraft.active_controller import ActiveController
from barnabas.simulation.kraft.cluster import KRaftWorld
from barnabas.simulation.kraft.metadata_state import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.simulation.kraft.quorum import ModelledController
from barnabas.simulation.nemesis import STOP_SECONDS, BrokerNemesis
from barnabas.simulation.node import SimNode

SCRATCH = "scratch"
"""A topic without clients, for changes of its metadata."""
MAX_GROWTH = 3
TURN_MARGIN = 0.3
"""The share of the session that a long turn leaves for heartbeats."""


class KRaftNemesis(BrokerNemesis):
    """Injects the faults of the plan until its time is over."""

    world: KRaftWorld

    def __init__(self, world: KRaftWorld, plan: KRaftPlan) -> None:
        super().__init__(world, plan.harm)
        self._plan = plan
        self._quorum = world.quorum
        self._growth = 0
        self.is_over = False
        self.disturbed_at = 0.0
        """When connections were broken last."""
        self.in_turn: set[ClusterMachine] = set()
        """The brokers with a long turn of their loops."""
        self._turn_ended_at: dict[ClusterMachine, float] = {}
        self.on_stop: Callable[[ClusterMachine, int, bool], None] = lambda broker, life, was_calm: None
        self.is_calm: Callable[[ClusterMachine], bool] = lambda broker: False
        self._acts |= {
            "long turn": self._long_turn,
            "stop all": self._stop_all,
            "kill controller": self._kill_controller,
            "pause controller": self._pause_controller,
            "isolate leader": self._isolate_leader,
            "elect": self._elect,
            "cut from controllers": self._cut_from_controllers,
            "cut from leader": self._cut_from_leader,
            "lose responses": self._lose_responses,
            "snapshot": self._snapshot,
            "reassign": self._reassign,
            "grow": self._grow,
            "replace topic": self._replace_topic,
            "alter topic": self._alter_topic,
            "alter brokers": self._alter_brokers,
            "transaction": self._transaction,
            "prefer": self._prefer,
        }

    def set_states(self) -> None:
        super().set_states()
        self.world.delays.slow = self._plan.slow_job

    def calm_down(self) -> None:
        super().calm_down()
        self.is_over = True
        self._quorum.config.slow_commit_chance = 0.0
        self._quorum.isolated.clear()

    def _metadata_nodes(self) -> list[SimNode]:
        return [one.node for one in self._quorum.controllers.values()]

    # -- brokers -----------------------------------------------------------------------------------------------------

    async def _long_turn(self) -> None:
        """One turn of a broker's loop takes long, but ends before its session."""
        broker = self._victim()
        if broker is not None:
            self._suffering.add(broker)
            longest = self._plan.session * (1 - TURN_MARGIN) - self._plan.heartbeat
            self.in_turn.add(broker)
            self.world.loop.frozen.add(broker.node)
            await asyncio.sleep(self.random.random() * longest)
            self.world.loop.frozen.discard(broker.node)
            self.in_turn.discard(broker)
            self._turn_ended_at[broker] = self.world.loop.time()
            # The next turn is later than the next heartbeats.
            await asyncio.sleep(self._plan.session)
            self._suffering.discard(broker)

    def was_in_turn(self, broker: ClusterMachine, seconds: float) -> bool:
        """Return whether a long turn has ended in this time."""
        return self.world.loop.time() - self._turn_ended_at.get(broker, -1e9) <= seconds

    async def _end(self, broker: ClusterMachine) -> None:
        """Stop a broker cleanly, or kill it if that takes too long."""
        life, was_calm, acts = broker.lives, self.is_calm(broker), len(self.done)
        task = self.world.loop.create_task(broker.stop())
        await asyncio.wait([task], timeout=STOP_SECONDS)
        if not task.done() or task.exception() is not None:
            broker.crash("kill")
            await asyncio.wait([task])
            task.exception()
        else:
            self.on_stop(broker, life, was_calm and len(self.done) == acts)

    async def _stop_all(self) -> None:
        others = [broker for broker in self.world.running if broker not in self._suffering]
        self._suffering.update(others)
        await asyncio.gather(*map(self._stop_one, others))

    async def _stop_one(self, broker: ClusterMachine) -> None:
        await asyncio.sleep(self.random.random() * self.random.choice((0.01, 1.0)))
        await self._end(broker)
        await self._return(broker)

    # -- controllers -------------------------------------------------------------------------------------------------

    def _controller(self) -> ModelledController | None:
        """A controller whose loss leaves a majority; the active one more often than others."""
        able = [one for one in self._quorum.controllers.values() if self._quorum.is_able(one)]
        if len(able) < len(self._quorum.controllers):
            return None
        active = self._quorum.active
        if active is not None and self.random.random() < 0.6:
            return active.node
        return self.random.choice(able)

    async def _kill_controller(self) -> None:
        controller = self._controller()
        if controller is not None:
            self._quorum.crash(controller)
            await self._last()
            await self.world.restart_controller(controller)

    async def _pause_controller(self) -> None:
        controller = self._controller()
        if controller is not None:
            self.world.loop.frozen.add(controller.node)
            await self._last()
            self.world.loop.frozen.discard(controller.node)

    async def _isolate_leader(self) -> None:
        """The leader does not reach the other controllers, but brokers reach it."""
        active = self._quorum.active
        if active is not None and self._controller() is not None:
            self._quorum.isolated.add(active.node)
            await self._last()
            self._quorum.isolated.discard(active.node)

    async def _elect(self) -> None:
        if self._controller() is not None:
            self._quorum.elect_another()

    async def _cut_from_controllers(self) -> None:
        lonely = self._one()
        controllers = [one.node for one in self._quorum.controllers.values()]
        both_ways = self.random.random() < 0.6
        for other in controllers:
            self.world.network.cut(lonely, other, both_ways=both_ways)
        await self._last()
        for other in controllers:
            self.world.network.mend(lonely, other)

    async def _cut_from_leader(self) -> None:
        active = self._quorum.active
        if active is not None:
            await self._between(self._one(), active.node.node, both_ways=self.random.random() < 0.6)

    async def _reset(self) -> None:
        self.disturbed_at = self.world.loop.time()
        await super()._reset()

    async def _lose_responses(self) -> None:
        """Requests arrive, and their responses are lost with the connections."""
        self.disturbed_at = self.world.loop.time()
        controllers = {one.node for one in self._quorum.controllers.values()}
        for stream in list(self.world.network.connections):
            if stream.node not in controllers and stream.peer.node in controllers and self.random.random() < 0.5:
                stream.turn_deaf()

    async def _snapshot(self) -> None:
        committed = self._quorum.committed
        if committed and committed[-1].before_transaction is None:
            for controller in self._quorum.controllers.values():
                if self.random.random() < 0.8:
                    self._quorum.take_snapshot(controller, committed[-1])

    # -- changes -----------------------------------------------------------------------------------------------------

    def _order(self, change: Callable[[ActiveController], object]) -> None:
        """Have the present leader change the metadata. Whether the change is committed, its successors decide."""
        active = self._quorum.active
        if active is not None and self._quorum.is_able(active.node):
            change(active.controller)

    def _topic(self) -> str:
        return self.random.choice((TOPIC, TOPIC, SCRATCH))

    async def _reassign(self) -> None:
        name, brokers = self._topic(), list(self.world.brokers)
        state = self._quorum.state
        topic_id = state.topic_id(name)
        partitions = [(index, one) for (known, index), one in state.partitions.items() if known == topic_id]
        if partitions:
            index, one = self.random.choice(partitions)
            count = len(one.replicas) - len(one.adding)
            if name == SCRATCH:
                count = self.random.randint(1, len(brokers))
            target = self.random.sample(brokers, min(count, len(brokers)))
            self._order(lambda controller: controller.reassign(name, index, target))
            await self._last()

    async def _grow(self) -> None:
        if self._growth < MAX_GROWTH:
            self._growth += 1
            self._order(lambda controller: controller.grow(SCRATCH))

    async def _replace_topic(self) -> None:
        """The scratch topic becomes another one, in one batch or in two."""
        if self.random.random() < 0.5:
            count = self.random.randint(1, 3)
            factor = self.random.randint(1, len(self.world.brokers))
            self._order(lambda controller: controller.replace_topic(SCRATCH, count, factor))
        else:
            self._order(lambda controller: controller.delete_topic(SCRATCH))
            await asyncio.sleep(self.random.choice((0.0, 0.01, 0.3)))
            self._order(lambda controller: controller.create_topic(SCRATCH, 2, 2, {"segment.bytes": "2000000"}))

    async def _alter_topic(self) -> None:
        name, value = self._topic(), self.random.choice((None, *range(1_100_000, 1_900_000, 100_000)))
        text = None if value is None else str(value)
        self._order(lambda controller: controller.set_config(TOPIC_RESOURCE, name, "segment.bytes", text))

    async def _alter_brokers(self) -> None:
        broker = self.random.choice(("", *map(str, self.world.brokers)))
        value = self.random.choice((None, "2", "3"))
        self._order(lambda controller: controller.set_config(BROKER_RESOURCE, broker, "num.replica.fetchers", value))

    async def _transaction(self) -> None:
        """Records of a metadata transaction in several batches, of which the first begins before the transaction."""
        number = self.random.randrange(10**6)

        def setting(value: int) -> Any:
            return r.ConfigRecord(
                resource_type=TOPIC_RESOURCE, resource_name=TOPIC, name="segment.bytes", value=str(2_000_000 + value)
            )

        before = [setting(number)] if self.random.random() < 0.5 else []
        active = self._quorum.active
        if active is None or not self._quorum.is_able(active.node) or active.state.topic_id(TOPIC) is None:
            return
        topic = active.controller.topic_records(f"txn-{number}", 1, 1, {})
        inside = [setting(number + 1)] if not isinstance(topic, list) else [setting(number + 1), *topic]
        if not active.controller.begin_transaction(before, inside):
            return
        await asyncio.sleep(self.random.choice((0.0, 0.02, 0.2)))
        active.controller.end_transaction([setting(number + 2)], abort=self.random.random() < 0.5)
        await asyncio.sleep(0.05)
        self._order(lambda controller: controller.delete_topic(f"txn-{number}"))

    async def _prefer(self) -> None:
        self._order(lambda controller: controller.elect_preferred())
