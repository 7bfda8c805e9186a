"""The parts that keep transactions, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..coordinator_topic import TopicCreator
from .coordinator import TransactionCoordinator
from .coordinators import OtherCoordinators, TransactionCoordinators
from .enlistment import Enlistment
from .marker_channel import MarkerChannel
from .markers import MarkerWriter, OffsetsInTransactions

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...metadata.metadata_cache import MetadataCache
    from ...metadata.producer_ids import ProducerIds
    from ...replication.replica_manager import ReplicaManager
    from ...runtime.ports import Ask, Ports
    from ...runtime.turns import LongWork


@dataclass(frozen=True, slots=True)
class OtherBrokers:
    """The way to them: markers do not wait behind questions, which hold up producers."""

    broker_id: int
    """This broker's own."""
    write_markers: Ask
    ask: Ask


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
        version: Callable[[], int],
        others: OtherBrokers | None = None,
    ) -> None:
        """`version` is the level of the feature `transaction.version`. A broker alone has no `others`."""
        self.markers = MarkerWriter(
            replica_manager, offsets, ports.now_ms, lambda: config.request_timeout_ms, long_work
        )
        self._channel: MarkerChannel | None = None
        self._elsewhere: OtherCoordinators | None = None
        if others is not None:
            self._channel = MarkerChannel(others.broker_id, self.markers, metadata, others.write_markers, loop)
            self._elsewhere = OtherCoordinators(others.broker_id, metadata, others.ask, loop)
        self.coordinator = TransactionCoordinator(
            config=config,
            replica_manager=replica_manager,
            metadata=metadata,
            controller=controller,
            producer_ids=producer_ids,
            markers=self._channel or self.markers,
            version=version,
            ports=ports,
            loop=loop,
        )
        coordinators = TransactionCoordinators(self.coordinator, self._elsewhere)
        self.enlistment = Enlistment(coordinators, replica_manager, loop)

    async def close(self) -> None:
        """Nothing is decided here any more, nor asked elsewhere."""
        await self.coordinator.close()
        if self._channel is not None:
            await self._channel.close()
        if self._elsewhere is not None:
            await self._elsewhere.close()
