"""Brokers of a KRaft cluster with a modelled quorum, each on its own machine, assembled as in the product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...server.broker import BrokerServer
from ...server.config.broker_config import BrokerConfig
from ...server.runtime.ports import Ports
from ..broker_world import BrokerWorld, ClusterMachine
from ..chance import chance
from .controller_server import serve
from .quorum import ModelledController, Quorum, QuorumBehavior


@dataclass
class KRaftWorld(BrokerWorld):
    """The brokers 1, 2, 3 … and the controllers; none is running yet."""

    quorum_config: QuorumBehavior = field(default_factory=QuorumBehavior)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.quorum = Quorum(self.loop, chance(f"{self.seed}/quorum"), self.network, self.now_ms, self.quorum_config)
        self.brokers: dict[int, SimKRaftBroker] = {
            number: SimKRaftBroker(self, number) for number in range(1, self.brokers_count + 1)
        }

    @property
    def running(self) -> list[SimKRaftBroker]:
        """Return the running brokers."""
        return [broker for broker in self.brokers.values() if broker.server is not None]

    async def start_controllers(self, records: Sequence[Any]) -> None:
        """Start the controllers, and append the first records of the cluster."""
        for controller in self.quorum.controllers.values():
            await self.listen(controller)
        self.quorum.start(records)

    async def listen(self, controller: ModelledController) -> None:
        """Have a controller accept connections."""
        await self.spawn(controller.node, serve(self.quorum, controller))

    async def restart_controller(self, controller: ModelledController) -> None:
        """Start a controller that was killed."""
        self.quorum.restart(controller)
        await self.listen(controller)


class SimKRaftBroker(ClusterMachine):
    """One broker of the cluster."""

    world: KRaftWorld

    def __init__(self, world: KRaftWorld, broker_id: int) -> None:
        super().__init__(world, f"192.0.2.{broker_id}", f"broker {broker_id}")
        self.broker_id = broker_id
        self.building: BrokerServer | None = None
        """The server of this life, also while it starts."""

    def _life_ended(self) -> None:
        self.world.loop.keep(self.building)
        self.building = None

    def _properties(self) -> dict[str, str]:
        return {
            **super()._properties(),
            "process.roles": "broker",
            "node.id": str(self.broker_id),
            "broker.rack": f"rack {self.broker_id}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self.world.quorum.bootstrap,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }

    def _build(self, config: BrokerConfig, ports: Ports) -> BrokerServer:
        self.building = BrokerServer(config, ports, self.world.loop)
        return self.building
