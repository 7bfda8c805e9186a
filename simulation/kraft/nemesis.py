"""Faults of the controllers of a modelled quorum, in addition to faults of brokers."""

from __future__ import annotations

import asyncio

from ..nemesis import BrokerNemesis, Harm
from ..node import SimNode
from .cluster import KRaftWorld
from .quorum import ModelledController

ELECTION_SECONDS = 0.5
"""The longest time for which an election waits for records that are not committed."""
ELECTION_DELAY = 0.02
LOOK_SECONDS = 0.001


class QuorumNemesis(BrokerNemesis):
    """A nemesis of a KRaft cluster. At each moment a majority of the controllers is able to elect a leader."""

    world: KRaftWorld

    def __init__(self, world: KRaftWorld, plan: Harm) -> None:
        super().__init__(world, plan)
        self._quorum = world.quorum
        self.is_over = False
        self.disturbed_at = 0.0
        """When connections were broken last."""
        self._acts |= {
            "kill controller": self._kill_controller,
            "pause controller": self._pause_controller,
            "isolate leader": self._isolate_leader,
            "elect": self._elect,
            "cut from controllers": self._cut_from_controllers,
            "cut from leader": self._cut_from_leader,
            "lose responses": self._lose_responses,
            "snapshot": self._snapshot,
        }

    def calm_down(self) -> None:
        super().calm_down()
        self.is_over = True
        self._quorum.config.slow_commit_chance = 0.0
        self._quorum.isolated.clear()

    def _metadata_nodes(self) -> list[SimNode]:
        return [one.node for one in self._quorum.controllers.values()]

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
        """Elect another leader, mostly when brokers have records that are not committed."""
        ends_at = self.world.loop.time() + ELECTION_SECONDS
        while self.world.loop.time() < ends_at:
            active = self._quorum.active
            if active is not None and active.end > max(active.high_watermark, self._quorum.end):
                break
            await asyncio.sleep(LOOK_SECONDS)
        await asyncio.sleep(self.random.random() * ELECTION_DELAY)
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
