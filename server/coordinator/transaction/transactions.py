"""The parts that keep transactions, put together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..coordinator_topic import TopicCreator
from .coordinator import TransactionCoordinator
from .enlistment import Enlistment
from .markers import MarkerWriter, OffsetsInTransactions
from .metadata import TRANSACTION_VERSION

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...metadata.metadata_cache import MetadataCache
    from ...metadata.producer_ids import ProducerIds
    from ...replication.replica_manager import ReplicaManager
    from ...runtime.ports import Ports
    from ...runtime.turns import LongWork


class Transactions:
    """Who decides, who writes markers, and who lets producers append."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        controller: TopicCreator,
        producer_ids: ProducerIds,
        offsets: OffsetsInTransactions,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        long_work: LongWork,
    ) -> None:
        self.markers = MarkerWriter(
            replica_manager, offsets, ports.now_ms, lambda: config.request_timeout_ms, long_work
        )
        self.coordinator = TransactionCoordinator(
            config=config,
            replica_manager=replica_manager,
            metadata=metadata,
            controller=controller,
            producer_ids=producer_ids,
            markers=self.markers,
            version=lambda: TRANSACTION_VERSION,
            ports=ports,
            loop=loop,
        )
        self.enlistment = Enlistment(self.coordinator, replica_manager, loop)
