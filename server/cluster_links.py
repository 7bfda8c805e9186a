"""What ties a broker's own parts to the other brokers: connections, its part in the control of all, replication.

Built with the broker's parts and before the broker is known to anybody; nothing here speaks before the broker is
registered. A broker alone has none of it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .controller.cluster_control import ClusterControl, HostedReplicas
from .coordinator.transaction.transactions import OtherBrokers
from .network.broker_connections import BrokerConnections
from .replication.replication import Replication

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ..storage.log_manager import LogManager
    from .cleaning.log_cleaner import LogCleaner
    from .config.broker_config import BrokerConfig
    from .config.dynamic_config import DynamicConfig
    from .config.listeners import ListenerConfig
    from .controller.cluster_control import ClusterStores
    from .metadata.metadata_cache import MetadataCache
    from .network.broker_connections import Endpoint
    from .replication.replica_manager import ReplicaManager
    from .runtime.ports import Ports
    from .security.outgoing import OutgoingSecurity


class ClusterLinks:
    """Loop-thread only. `close` once, after the last order."""

    def __init__(
        self,
        broker_id: int,
        stores: ClusterStores,
        *,
        config: BrokerConfig,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        dynamic_config: DynamicConfig,
        metadata: MetadataCache,
        log_manager: LogManager,
        replica_manager: ReplicaManager,
        cleaner: LogCleaner,
        outgoing: Callable[[ListenerConfig], OutgoingSecurity],
    ) -> None:
        """`outgoing` knows how other brokers are reached at a listener. Raises ConfigError if none is for brokers."""
        self._broker_id = broker_id
        self._ports = ports
        self._metadata = metadata
        self._between_brokers = outgoing(config.inter_broker_listener)
        control = config.control_plane_listener
        to_control = self._between_brokers if control is None else outgoing(control)
        # Orders do not wait behind questions, which may take their time.
        self._for_orders = self._connect(config.controller_socket_timeout_ms, to_control)
        self._for_questions = self._connect(config.controller_socket_timeout_ms, to_control)
        self._for_markers = self._connect(config.request_timeout_ms)
        self._for_transactions = self._connect(config.request_timeout_ms)
        self.transactions = OtherBrokers(broker_id, self._for_markers.ask, self._for_transactions.ask)
        self.control = ClusterControl(
            broker_id,
            stores,
            HostedReplicas(replica_manager, log_manager.held.offline, cleaner.deleting),
            metadata=metadata,
            config=config,
            dynamic_config=dynamic_config,
            order=self._for_orders.ask,
            ask=self._for_questions.ask,
            inter_broker_listener=self._between_brokers.listener,
            chance=ports.random,
        )
        self.replication = Replication(
            replica_manager,
            broker_id=broker_id,
            broker_epoch=lambda: self.control.orders.broker_epoch,
            config=config,
            metadata=metadata,
            isr_changes=self.control.isr_changes,
            connect=self._connect,
            paused=cleaner.paused,
            stopwatch=ports.stopwatch,
            loop=loop,
        )
        dynamic_config.on_broker_change(self.replication.fetchers.settings_changed)

    async def close(self) -> None:
        """Nothing is fetched, ordered or asked any more."""
        await self.control.close()
        await self.replication.close()
        for connections in (self._for_orders, self._for_questions, self._for_markers, self._for_transactions):
            connections.close()

    def _connect(self, timeout_ms: int, outgoing: OutgoingSecurity | None = None) -> BrokerConnections:
        outgoing = outgoing or self._between_brokers
        endpoint = partial(self._endpoint, outgoing.listener)
        return BrokerConnections(
            self._broker_id, endpoint, self._ports.random, timeout_ms=timeout_ms, outgoing=outgoing
        )

    def _endpoint(self, listener: str, broker_id: int) -> Endpoint | None:
        """Where brokers reach one that is alive."""
        found = self._metadata.endpoint(broker_id, listener)
        return None if found is None else (found.host, found.port)
