"""Faults for transactions: failures of coordinators during a state transition, and failures of copiers."""

from __future__ import annotations

import asyncio

from soak.sim.transactions.copier import Life, Slot
from soak.sim.transactions.deserter import Deserters
from soak.sim.transactions.plan import TransactionPlan

from barnabas.protocol.errors import KafkaError
from barnabas.server.coordinator.transaction.transaction_metadata import TransactionState
from barnabas.server.metadata.cluster_features import TRANSACTION_VERSION, ClusterFeatures, FeatureUpdate, UpgradeType
from barnabas.simulation.cluster import ClusterWorld, SimClusterBroker
from barnabas.simulation.disk import Mode
from barnabas.simulation.nemesis import Nemesis

STEPS = [
    (state, is_pending)
    for state in TransactionState
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
    for is_pending in (False, True)
]
"""The states of a transaction in which a fault can hit its coordinator."""
MODES: tuple[Mode, ...] = ("kill", "A", "B")
"""The ways in which a broker dies; a broker that acknowledges from the page cache may only be killed."""
LOOKS, LOOK_SECONDS = 300, 0.001
VERSIONS, VERSION_SECONDS = (0, 1, 2), 5.0


class TransactionNemesis(Nemesis):
    """An injector of the faults of a plan, until the time of the plan is over."""

    def __init__(self, world: ClusterWorld, plan: TransactionPlan, slots: list[Slot], deserters: Deserters) -> None:
        super().__init__(world, plan.harm)
        self.modes = MODES if plan.settings["acks.all.durability"] == "disk" else MODES[:1]
        self.slots = slots
        self.deserters = deserters
        self._acts |= {
            "strike a coordinator": self._strike,
            "kill a copier": self._kill_copier,
            "zombie": self._zombie,
            "twin": self._twin,
            "cut a copier": self._cut_copier,
            "desert": self._desert,
            "change the version": self._change_version,
        }

    # -- coordinators ----------------------------------------------------------------------------------------------

    async def _strike(self) -> None:
        """Kill a coordinator or expire its session while one of its transactions is in a certain state."""
        state, is_pending = self.random.choice(STEPS)
        for _ in range(LOOKS):
            for broker in self.world.running:
                if broker not in self._suffering and _is_at(broker, state, is_pending=is_pending):
                    self.done.append(f"{self.world.loop.time():.3f} at {state.name} {is_pending}")
                    await self._fell(broker)
                    return
            await asyncio.sleep(LOOK_SECONDS)

    async def _fell(self, broker: SimClusterBroker) -> None:
        ensemble = self.world.ensemble
        sessions = ensemble.sessions_of(broker.node)
        if sessions and self.random.random() < 0.4:
            ensemble.expire(sessions[0])
            return
        self._suffering.add(broker)
        broker.crash(self.random.choice(self.modes))
        await self._return(broker)

    async def _change_version(self) -> None:
        """Change the level of `transaction.version`, as an operator does with `kafka-features`."""
        await set_version(self.world, self.random.choice(VERSIONS))

    # -- copiers ---------------------------------------------------------------------------------------------------

    def _life(self) -> Life | None:
        running = [life for slot in self.slots for life in slot.running]
        return self.random.choice(running) if running else None

    async def _kill_copier(self) -> None:
        life = self._life()
        if life is not None:
            life.kill()

    async def _zombie(self) -> None:
        """Freeze a copier, which is replaced by another process, and resume the copier in the middle of its work."""
        life = self._life()
        if life is not None:
            self.world.loop.frozen.add(life.node)
            await asyncio.sleep(self.random.random() * self.plan.downtime)
            self.world.loop.frozen.discard(life.node)

    async def _twin(self) -> None:
        self.random.choice(self.slots).begin()

    async def _cut_copier(self) -> None:
        """Delay the requests of a copier, perhaps until the copier has repeated them."""
        life = self._life()
        if life is not None:
            broker = self.random.choice(list(self.world.brokers.values()))
            await self._between(life.node, broker.node, both_ways=self.random.random() < 0.5)

    async def _desert(self) -> None:
        await self.deserters.desert()


def _is_at(broker: SimClusterBroker, state: TransactionState, is_pending: bool) -> bool:
    assert broker.server is not None
    coordinator = broker.server.state.transaction_coordinator.state_manager
    return any(
        one.metadata.state is state and one.has_pending_transition is is_pending for one in coordinator.transactions
    )


async def set_version(world: ClusterWorld, level: int) -> None:
    """Set the level of `transaction.version`, if there is a controller that accepts the level."""
    for broker in world.running:
        if broker.server is None:
            continue  # The broker died during the request to another broker.
        state = broker.server.state
        if state.controller.is_active:
            kind = (
                UpgradeType.UPGRADE if level > state.features.level(TRANSACTION_VERSION) else UpgradeType.SAFE_DOWNGRADE
            )
            features = state.features
            assert isinstance(features, ClusterFeatures)
            update = features.update({TRANSACTION_VERSION: FeatureUpdate(level, kind)}, validate_only=False)
            task = world.spawn(broker.node, update)
            # A controller that dies during the request never completes the task.
            await asyncio.wait([task], timeout=VERSION_SECONDS)
            if task.done() and isinstance(task.exception(), KafkaError):
                return
