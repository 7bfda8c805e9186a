"""CreateTopics (key 19).

v1 can validate only. v4 takes -1 for the broker's defaults (KIP-464; accepted in older versions, too, as in Kafka). v5
returns the resulting configuration (KIP-525), v7 the topic id. From v6 on a client over its controller mutation quota
gets THROTTLING_QUOTA_EXCEEDED; in older versions its response only has a throttle time (KIP-599). After the timeout the
response is REQUEST_TIMED_OUT for every topic, and the creation continues; with a timeout of 0 or less the response is
immediate. Kafka responds when the controller has elected the leaders, Barnabas when the other brokers have the
metadata, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ....protocol.schema import ZERO_UUID
from ...config.config_helper import ConfigHelper
from ...config.config_repository import ConfigRepository
from ...controller.admin_manager import CreatedTopic, TopicCreation
from ...controller.kafka_controller import KafkaController
from ...metadata.topic_names import CLUSTER_METADATA_TOPIC
from ...quotas.request_quota_usage import new_controller_mutation_quota
from ...runtime.loop_sharing import CountBudget
from ..request_context import RequestContext

RESULTS_PER_TURN = 50
"""Created topics whose results are built, settings included."""

CONFIGS_VERSION = 5
STRICT_QUOTA_VERSION = 6
MAX_SETTINGS = 50_000
"""Settings in one response: the settings of a thousand topics. The settings of further topics are omitted."""


async def handle(
    ctx: RequestContext,
    request: CreateTopicsRequest,
    *,
    config_repository: ConfigRepository,
    controller: KafkaController,
) -> CreateTopicsResponse:
    """Create each topic independently; a topic that the request repeats is not created."""
    named = Counter(topic.name for topic in request.topics)
    refused: dict[str, KafkaError] = {}
    creations: list[TopicCreation] = []
    budget = CountBudget()
    for topic in request.topics:
        await budget.step()
        if named[topic.name] > 1:
            refused[topic.name] = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif topic.name == CLUSTER_METADATA_TOPIC:
            text = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
            refused[topic.name] = KafkaError(ErrorCode.INVALID_REQUEST, text)
        else:
            creations.append(_topic_creation(topic))
    results: Mapping[str, CreatedTopic | KafkaError]
    try:
        mutation_quota = new_controller_mutation_quota(ctx.quota_usage, strict=ctx.api_version >= STRICT_QUOTA_VERSION)
        results = await controller.create_topics(
            creations, validate_only=request.validate_only, timeout_ms=request.timeout_ms, mutation_quota=mutation_quota
        )
    except KafkaError as error:
        results = dict.fromkeys((creation.name for creation in creations), error.as_result())
    describer = ConfigHelper(config_repository, with_synonyms=False, with_documentation=False)
    response = CreateTopicsResponse(topics=[])
    budget, left = CountBudget(RESULTS_PER_TURN), MAX_SETTINGS
    for name in named:
        result = _result(ctx, request, name, refused.get(name) or results[name], describer if left > 0 else None)
        left -= len(result.configs or ())
        response.topics.append(result)
        await budget.step()
    return response


def _topic_creation(topic: CreatableTopic) -> TopicCreation:
    return TopicCreation(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, tuple(assignment.broker_ids)) for assignment in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _result(
    ctx: RequestContext,
    request: CreateTopicsRequest,
    name: str,
    outcome: CreatedTopic | KafkaError,
    describer: ConfigHelper | None,
) -> CreatableTopicResult:
    if isinstance(outcome, KafkaError):
        return CreatableTopicResult(name=name, error_code=outcome.code, error_message=outcome.message, configs=[])
    topic_id = ZERO_UUID if request.validate_only else outcome.topic_id
    if not ctx.is_authorized(AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, name):
        # Without the settings of the request, too, as in Kafka: the others are the defaults of the broker.
        hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return CreatableTopicResult(
            name=name, topic_id=topic_id, error_message=None, topic_config_error_code=hidden, configs=[]
        )
    told = CreatableTopicResult(name=name, topic_id=topic_id, error_message=None, configs=[])
    told.num_partitions, told.replication_factor = outcome.num_partitions, outcome.replication_factor
    if ctx.api_version >= CONFIGS_VERSION:
        if describer is None:
            told.topic_config_error_code = ErrorCode.POLICY_VIOLATION
        else:
            told.configs = _configs(describer, outcome)
    return told


def _configs(describer: ConfigHelper, topic: CreatedTopic) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.config_source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in describer.topic_with(topic.config)
    ]
