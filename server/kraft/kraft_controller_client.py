"""The requests of a broker itself to the controllers of a KRaft cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING

from ...common.error_description import describe_error
from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError, code_of
from ...protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ..controller.auto_topic_creation_manager import AutoTopicCreationManager
from ..controller.automatic_topics import create_topics_request, creation_results
from ..controller.controller_client import ControllerClient
from ..quotas.request_quota_usage import ControllerMutationQuota, unbounded_controller_mutation_quota

if TYPE_CHECKING:
    from ...protocol.topic_partition import TopicPartition
    from ..config.broker_config import BrokerConfig
    from ..controller.admin_manager import TopicCreation
    from ..controller.forwarding_manager import SendToController

logger = room_logger("controller")

PRODUCER_IDS_TIMEOUT_S = 5
"""The time for which producers wait for a block of producer ids. Without a block they retry."""
TIMED_OUT = "The request timed out before the controller has responded."


class KRaftControllerClient(ControllerClient):
    """Creates topics and allocates producer ids at the active controller (a `ControllerClient`).

    `KRaftMember` owns it; it runs on the loop's thread.
    """

    def __init__(
        self,
        config: BrokerConfig,
        send_request: SendToController,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        report_offline_replicas: Callable[[], None],
    ) -> None:
        """`report_offline_replicas` reports failed log directories to the controller."""
        self._config = config
        self._send_request = send_request
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._report_offline_replicas = report_offline_replicas
        self.auto_topic_creation_manager = AutoTopicCreationManager(self.create_topics_automatically)

    @property
    def is_active(self) -> bool:
        """False: the controllers of a quorum are other processes."""
        return False

    async def close(self) -> None:
        """Stop the creations in progress."""
        await self.auto_topic_creation_manager.close()

    async def create_topics_automatically(
        self,
        creations: Sequence[TopicCreation],
        *,
        timeout_ms: float | None = None,
        mutation_quota: ControllerMutationQuota = unbounded_controller_mutation_quota,
    ) -> dict[str, KafkaError | None]:
        """Create topics that the broker itself requires; None for each success. Raises KafkaError.

        The broker charges the quota of the client: the controller receives a request of the broker.
        """
        charged: list[TopicCreation] = []
        results: dict[str, KafkaError | None] = {}
        for creation in creations:
            try:
                # Kafka's brokers charge one partition if the controller chooses the number.
                mutation_quota(max(1, creation.num_partitions))
            except KafkaError as error:
                results[creation.name] = error.as_result()
            else:
                charged.append(creation)
        if not charged:
            return results
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return results | creation_results(await self._send_request(create_topics_request(charged), lowest=4))
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT) from None

    async def allocate_producer_ids(self) -> range:
        """Return a block of producer ids that no other broker has.

        Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS, which producers retry, without a block.
        """
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        try:
            async with asyncio.timeout(PRODUCER_IDS_TIMEOUT_S):
                response = await self._send_request(request)
            if response.error_code:
                raise KafkaError(code_of(response.error_code))
        except (KafkaError, TimeoutError) as error:
            logger.warning("the controller allocates no producer ids: %s", describe_error(error))
            text = "No block of producer ids could be allocated."
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text) from error
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    def on_replicas_offline(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        """Report the failed log directories of this broker: the controller moves the leaders of their replicas."""
        self._report_offline_replicas()

    async def retry_replicas(self, broker_id: int, lost: Container[TopicPartition]) -> None:
        """Do nothing: `KRaftMember.retry_replicas` creates them by the metadata of this broker."""
