"""The brokers of a cluster, with any source of metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .machines import PORT, Machine, Machines


class ClusterMachine(Machine):
    """The machine of one broker of a cluster."""

    broker_id: int


@dataclass
class BrokerWorld(Machines):
    """The brokers 1, 2, 3 … of one cluster."""

    brokers_count: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        self.brokers: Mapping[int, ClusterMachine] = {}

    @property
    def bootstrap(self) -> str:
        """Return all brokers, running or not."""
        return ",".join(f"{broker.host}:{PORT}" for broker in self.brokers.values())

    @property
    def running(self) -> Sequence[ClusterMachine]:
        """Return the running brokers."""
        return [broker for broker in self.brokers.values() if broker.server is not None]
