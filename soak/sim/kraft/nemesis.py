"""Faults of brokers, controllers and links of a KRaft cluster, and concurrent changes of the metadata."""

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
from barnabas.simulation.kraft.nemesis import QuorumNemesis
from barnabas.simulation.nemesis import STOP_SECONDS

SCRATCH = "scratch"
"""A topic without clients, for changes of its metadata."""
MAX_GROWTH = 3
TURN_MARGIN = 0.3
"""The share of the session that remains for heartbeats after a long turn."""


class KRaftNemesis(QuorumNemesis):
    """An injector of the faults of a plan, until the time of the plan is over."""

    def __init__(self, world: KRaftWorld, plan: KRaftPlan) -> None:
        super().__init__(world, plan.harm)
        self._plan = plan
        self._growth = 0
        self.in_turn: set[ClusterMachine] = set()
        """The brokers whose event loops are in a long turn."""
        self._turn_ended_at: dict[ClusterMachine, float] = {}
        self.on_stop: Callable[[ClusterMachine, int, bool], None] = lambda broker, life, was_calm: None
        self.is_calm: Callable[[ClusterMachine], bool] = lambda broker: False
        self._acts |= {
            "long turn": self._long_turn,
            "stop all": self._stop_all,
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

    # -- brokers -----------------------------------------------------------------------------------------------------

    async def _long_turn(self) -> None:
        """Make a turn of a broker's event loop take long, but end before the session of the broker."""
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
            # Leave a session without faults to the broker, so that its heartbeats arrive before its next fault.
            await asyncio.sleep(self._plan.session)
            self._suffering.discard(broker)

    def was_in_turn(self, broker: ClusterMachine, seconds: float) -> bool:
        """Return whether a long turn of the broker has ended within the last `seconds`."""
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

    # -- changes -----------------------------------------------------------------------------------------------------

    def _order(self, change: Callable[[ActiveController], object]) -> None:
        """Let the current leader append a change of the metadata. A new leader may discard the change."""
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
        """Delete the scratch topic and create it again, in one batch or in two."""
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
        """Append a metadata transaction in several batches. The first batch begins before the transaction."""
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
