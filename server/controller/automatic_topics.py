"""The topics that a broker creates without a request: internal topics, and topics that clients name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...protocol.errors import KafkaError, code_of
from ...protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ..metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from .admin_manager import BROKER_DEFAULT, TopicCreation

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig

CREATION_TIMEOUT_MS = 30_000


def auto_creation(config: BrokerConfig, name: str) -> TopicCreation:
    """Return the creation of a topic that a client has named (Kafka: AutoTopicCreationManager.creatableTopic)."""
    partitions, replicas = BROKER_DEFAULT, BROKER_DEFAULT
    if name == GROUP_METADATA_TOPIC:
        partitions = _integer(config, "offsets.topic.num.partitions")
        replicas = _integer(config, "offsets.topic.replication.factor")
    elif name == TRANSACTION_STATE_TOPIC:
        partitions = _integer(config, "transaction.state.log.num.partitions")
        replicas = _integer(config, "transaction.state.log.replication.factor")
    elif name == SHARE_GROUP_STATE_TOPIC:
        partitions = _integer(config, "share.coordinator.state.topic.num.partitions")
        replicas = _integer(config, "share.coordinator.state.topic.replication.factor")
    return TopicCreation(name, partitions, replicas, config=internal_topic_config(config, name))


def internal_topic_config(config: BrokerConfig, name: str) -> dict[str, str]:
    """Return the settings that one of Kafka's internal topics requires; empty for other topics."""
    if name == GROUP_METADATA_TOPIC:
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(_integer(config, "offsets.topic.segment.bytes")),
        }
    if name == TRANSACTION_STATE_TOPIC:
        return {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(_integer(config, "transaction.state.log.min.isr")),
            "segment.bytes": str(_integer(config, "transaction.state.log.segment.bytes")),
            "unclean.leader.election.enable": "false",
        }
    if name == SHARE_GROUP_STATE_TOPIC:
        # The share coordinator deletes redundant records. Kafka leaves out retention.bytes: a limit in the broker's
        # settings would delete records that are still required.
        return {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(_integer(config, "share.coordinator.state.topic.min.isr")),
            "retention.bytes": "-1",
            "retention.ms": "-1",
            "segment.bytes": str(_integer(config, "share.coordinator.state.topic.segment.bytes")),
        }
    return {}


def _integer(config: BrokerConfig, key: str) -> int:
    value = config.get(key)
    assert isinstance(value, int)
    return value


def create_topics_request(creations: Sequence[TopicCreation]) -> CreateTopicsRequest:
    """Return the request to the controller for these topics. It requires version 4 for defaults of the controller."""
    topics = [
        CreatableTopic(
            name=creation.name,
            num_partitions=creation.num_partitions,
            replication_factor=creation.replication_factor,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in creation.config.items()],
        )
        for creation in creations
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=CREATION_TIMEOUT_MS)


def creation_results(response: CreateTopicsResponse) -> dict[str, KafkaError | None]:
    """Return the error of each topic of a response, None for each success."""
    return {
        one.name: KafkaError(code_of(one.error_code), one.error_message or "") if one.error_code else None
        for one in response.topics
    }
