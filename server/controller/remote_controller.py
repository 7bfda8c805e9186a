"""Kafka's BrokerToControllerChannelManager: sends this broker's requests to the controller on another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError, code_of
from ...protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ...protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ...protocol.schema import UNBOUNDED
from ..metadata.cluster_store import ClusterStore
from ..metadata.metadata_cache import MetadataCache
from ..metadata.metadata_store import StoreError, StoreUnavailableError
from ..runtime.ports import SendRequest
from .admin_manager import TopicCreation
from .automatic_topics import create_topics_request, creation_results

logger = room_logger("controller")

BROKER_DEFAULTS_VERSION = 4
"""The first version of CreateTopics that accepts -1 for the controller's defaults."""
RETRY_SECONDS = 1.0
"""Pause before a log-directory event is written again."""


class RemoteController:
    """The controller on another broker. It runs on the loop thread."""

    def __init__(self, metadata: MetadataCache, cluster_store: ClusterStore, send_request: SendRequest) -> None:
        """`metadata` has the controller's id."""
        self._metadata = metadata
        self._cluster = cluster_store
        self._send_request = send_request

    async def send_request(self, request: Any, *, lowest: int = 0, highest: int = UNBOUNDED) -> Any:
        """Return the controller's response. Raises KafkaError without a response or for a top-level error."""
        controller_id = self._metadata.controller_id
        if controller_id < 0:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "The controller is unknown.")
        response = await self._send_request(controller_id, request, lowest=lowest, highest=highest)
        error = code_of(getattr(response, "error_code", ErrorCode.NONE))
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        return response

    async def create_topics(self, creations: Sequence[TopicCreation]) -> dict[str, KafkaError | None]:
        """Create topics automatically; None for each success. Raises KafkaError."""
        request = create_topics_request(creations)
        return creation_results(await self.send_request(request, lowest=BROKER_DEFAULTS_VERSION))

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        """Return unused producer ids (KIP-730). Raises KafkaError."""
        response = await self.send_request(AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch))
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int, highest_version: int) -> int:
        """Request a controlled shutdown; return the number of partitions that this broker still leads."""
        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        return len((await self.send_request(request, highest=highest_version)).remaining_partitions)

    async def write_log_dir_event(self, broker_id: int) -> None:
        """Notify the controller of a log directory that has failed or has free space again, as soon as possible.

        The controller then retries each replica of this broker, as it does after this broker's next registration.
        """
        logged = ""
        while True:
            try:
                await self._cluster.propagate_log_dir_event(broker_id)
            except StoreUnavailableError as error:
                # The session may outlive the outage of the store, and until other brokers lead the partitions clients
                # cannot use them.
                if logged != str(error):
                    logger.error("the controller cannot be notified of a log directory; retrying: %s", error)
                logged = str(error)
            except StoreError as error:
                logger.error("the controller cannot be notified of a log directory: %r", error)
                return
            else:
                return
            await asyncio.sleep(RETRY_SECONDS)
