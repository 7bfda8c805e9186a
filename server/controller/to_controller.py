"""What a broker asks of the controller when that is another broker (Kafka's NodeToControllerChannelManager)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, KafkaError, code_of
from ...protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ...protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ...protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ...protocol.room_logger import room_logger
from ...protocol.schema import UNBOUNDED
from ..config.broker_config import BrokerConfig
from ..metadata.metadata_cache import MetadataCache
from ..metadata.metadata_store import StoreError, StoreUnavailableError
from ..metadata.notice_store import NoticeStore
from ..replication.inter_broker_versions import highest_version
from ..runtime.ports import Ask
from .controller import Controller
from .topic_rules import TopicCreation

logger = room_logger("controller")

BROKER_DEFAULTS_VERSION = 4
"""Of CreateTopics: the first that takes -1 for the controller's own defaults."""
CREATION_TIMEOUT_MS = 30_000
RETRY_SECONDS = 1.0
"""After which it is tried again to leave word in the store."""


class ToController:
    """The controller as seen from here. Loop-thread only."""

    def __init__(self, metadata: MetadataCache, notices: NoticeStore, ask: Ask) -> None:
        self._metadata = metadata
        self._notices = notices
        self._ask = ask

    async def ask(self, request: Any, *, lowest: int = 0, highest: int = UNBOUNDED) -> Any:
        """The controller's response. Raises KafkaError if there is none, or if it is an error as a whole."""
        controller_id = self._metadata.controller_id
        if controller_id < 0:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "It is not known who is controller.")
        response = await self._ask(controller_id, request, lowest=lowest, highest=highest)
        error = code_of(getattr(response, "error_code", ErrorCode.NONE))
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        return response

    async def create_topics(self, wishes: Sequence[TopicCreation]) -> dict[str, KafkaError | None]:
        """Has topics made that somebody has asked for here; None where that went well. Raises KafkaError."""
        topics = [
            CreatableTopic(
                name=wish.name,
                num_partitions=wish.num_partitions,
                replication_factor=wish.replication_factor,
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in wish.config.items()],
            )
            for wish in wishes
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=CREATION_TIMEOUT_MS)
        response = await self.ask(request, lowest=BROKER_DEFAULTS_VERSION)
        return {
            one.name: KafkaError(code_of(one.error_code), one.error_message or "") if one.error_code else None
            for one in response.topics
        }

    async def producer_id_block(self, broker_id: int, broker_epoch: int) -> range:
        """Producer ids that nobody has (KIP-730). Raises KafkaError."""
        response = await self.ask(AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch))
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    async def tell_of_failed_log_dir(self, broker_id: int) -> None:
        """Leaves word that a log directory of this broker has failed, or may have room by now: once it can be written.

        The controller asks for each replica. It does so without a word of this broker's next session.
        """
        told = ""
        while True:
            try:
                await self._notices.tell_of_failed_log_dir(broker_id)
            except StoreUnavailableError as error:
                # Sessions outlast the absence of the store, and until others lead the partitions nobody is served.
                if told != str(error):
                    logger.error("nobody can be told of a log directory, %s: trying again", error)
                told = str(error)
            except StoreError as error:
                logger.error("nobody is told of a log directory: %r", error)
                return
            else:
                return
            await asyncio.sleep(RETRY_SECONDS)


async def leave_cluster(
    broker_id: int, broker_epoch: int, controller: Controller, elsewhere: ToController, config: BrokerConfig
) -> bool:
    """Has others lead what this broker leads, before it stops (`controlled.shutdown.*`); whether all of it is."""
    if not config.controlled_shutdown_enable:
        return False
    for attempt in range(config.controlled_shutdown_max_retries):
        if attempt:
            await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
        try:
            if controller.is_active:
                remaining: Sequence[object] = await controller.controlled_shutdown(broker_id, broker_epoch)
            else:
                request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
                highest = highest_version(ApiKey.CONTROLLED_SHUTDOWN, config.inter_broker_protocol_version)
                remaining = (await elsewhere.ask(request, highest=highest)).remaining_partitions
        except (KafkaError, StoreError) as error:
            logger.info("the controller does not let this broker go, %s: asking again", error)
            continue
        if not remaining:
            return True
        logger.info("%d partitions are led by nobody else yet", len(remaining))
    logger.warning("stopping although partitions are led here that have other replicas")
    return False
