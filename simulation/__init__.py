"""Your asyncio client against a simulated cluster with faults: the same seed gives the same run.

    async def orders_survive(sim: Simulation) -> None:
        await sim.cluster.create_topic("orders", partitions=3)
        sim.program("shop", shop, sim.bootstrap)
        await sim.faults.random(seconds=30)
        await sim.until(lambda: delivered == ordered)

    simulate(orders_survive, seeds=200)

Brokers are complete and real; clock, network, disks and ZooKeeper are simulated, in one thread.
"""

from __future__ import annotations

from .facts import SimCluster
from .faults import MENU, ClusterFaults
from .host import NotSimulatedError
from .play import SimulatedRun, SimulationError, simulate, simulated
from .programs import Program
from .simulation import Simulation

__all__ = [
    "MENU",
    "ClusterFaults",
    "NotSimulatedError",
    "Program",
    "SimCluster",
    "SimulatedRun",
    "Simulation",
    "SimulationError",
    "simulate",
    "simulated",
]
