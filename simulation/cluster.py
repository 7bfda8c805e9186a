"""Several brokers with one ZooKeeper, each on its own machine, assembled as in the product."""

from __future__ import annotations

from dataclasses import dataclass

from ..server.broker import BrokerServer
from ..server.config.broker_config import BrokerConfig
from ..server.config.zookeeper import zookeeper_settings
from ..server.metadata.metadata_store import MetadataStore
from ..server.metadata.zookeeper_store import ZooKeeperStore
from ..server.runtime.ports import Ports
from ..testing.faults import RequestFaults
from .broker_world import BrokerWorld, ClusterMachine
from .chance import chance
from .ensemble import Ensemble
from .zookeeper_client import SimKazoo


@dataclass
class ClusterWorld(BrokerWorld):
    """The brokers 1, 2, 3 …; none is running yet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ensemble = Ensemble(self.loop, chance(f"{self.seed}/zookeeper"), self.network, self.now_ms)
        self.brokers: dict[int, SimClusterBroker] = {
            number: SimClusterBroker(self, number) for number in range(1, self.brokers_count + 1)
        }

    @property
    def running(self) -> list[SimClusterBroker]:
        """Return the running brokers."""
        return [broker for broker in self.brokers.values() if broker.server is not None]


class SimClusterBroker(ClusterMachine):
    """One broker of the cluster."""

    world: ClusterWorld

    def __init__(self, world: ClusterWorld, broker_id: int) -> None:
        # Unassigned addresses (RFC 5737): code that bypasses the simulation by mistake reaches nothing.
        super().__init__(world, f"192.0.2.{broker_id}", f"broker {broker_id}")
        self.broker_id = broker_id
        self.requests = RequestFaults(on_loop=lambda change: self.node.context.copy().run(change))
        """Injected faults of its requests."""

    async def _start(self) -> None:
        await super()._start()
        assert self.server is not None
        self.requests.attach(self.server.apis, self.server.state)

    def _life_ended(self) -> None:
        self.requests.detach()

    def _properties(self) -> dict[str, str]:
        return {
            "broker.id": str(self.broker_id),
            # The order of brokers in a client's set would depend on the address of None in memory, if that is the rack
            # (before Python 3.12).
            "broker.rack": f"rack {self.broker_id}",
            "zookeeper.connect": "zookeeper:2181/kafka",
            **super()._properties(),
        }

    def _build(self, config: BrokerConfig, ports: Ports) -> BrokerServer:
        settings = zookeeper_settings(config)
        assert settings is not None
        client = SimKazoo(self.world.ensemble, self.node, settings.session_timeout_ms / 1000)

        async def join() -> MetadataStore:
            return await ZooKeeperStore.open(settings, loop=self.world.loop, work=ports.work, client=client)

        return BrokerServer(config, ports, self.world.loop, join_store=join)
