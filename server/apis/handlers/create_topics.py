"""CreateTopics (key 19).

v1 can validate only. v4 takes -1 for the broker's defaults (KIP-464; taken from older versions, too, as Kafka does).
v5 answers with the resulting configuration (KIP-525), v7 with the topic id. From v6 on, who is over the quota of
changes is refused with THROTTLING_QUOTA_EXCEEDED; before, the answer only says to wait (KIP-599). A timeout of 0 or
less asks not to wait: the topic is made and the answer says REQUEST_TIMED_OUT. Kafka answers when the controller
itself knows who leads; here the other brokers have heard of it, too.
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
from ...config.config_description import ConfigDescriber
from ...controller.topic_maker import CreatedTopic
from ...controller.topic_rules import TopicCreation
from ...metadata.topic_names import CLUSTER_METADATA_TOPIC
from ...quotas.charge import price_of_changes
from ...runtime.turns import WISHES, Pace
from ..ports import ActiveController, Configs
from ..request_context import RequestContext

CONFIGS_VERSION = 5
STRICT_QUOTA_VERSION = 6
MOST_SETTINGS = 50_000
"""In one answer: those of a thousand topics. The others' cannot be told of."""
HEARD_SECONDS = 1.0
"""For so long a client waits until other brokers have heard of its topics, so that it may go to any of them next."""


async def handle(
    ctx: RequestContext, request: CreateTopicsRequest, *, configs: Configs, controller: ActiveController
) -> CreateTopicsResponse:
    """Creates each topic on its own terms; one named twice is not created."""
    named = Counter(topic.name for topic in request.topics)
    refused: dict[str, KafkaError] = {}
    wishes: list[TopicCreation] = []
    pace = Pace()
    for topic in request.topics:
        await pace.step()
        if named[topic.name] > 1:
            text = "Create topics request from client contains multiple entries for the following topics: "
            refused[topic.name] = KafkaError(ErrorCode.INVALID_REQUEST, f"{text}{topic.name}")
        elif topic.name == CLUSTER_METADATA_TOPIC:
            text = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
            refused[topic.name] = KafkaError(ErrorCode.INVALID_REQUEST, text)
        else:
            wishes.append(_wish(topic))
    results: Mapping[str, CreatedTopic | KafkaError]
    try:
        pay = price_of_changes(ctx.charge, strict=ctx.api_version >= STRICT_QUOTA_VERSION)
        results = await controller.create_topics(wishes, validate_only=request.validate_only, pay=pay)
        if not request.validate_only and any(isinstance(one, CreatedTopic) for one in results.values()):
            await controller.heard(min(request.timeout_ms / 1000, HEARD_SECONDS))
    except KafkaError as error:
        results = dict.fromkeys((wish.name for wish in wishes), error.as_result())
    describer = configs.describer(with_synonyms=False, with_documentation=False)
    response = CreateTopicsResponse(topics=[])
    pace, left = Pace(WISHES), MOST_SETTINGS
    for name in named:
        result = _result(ctx, request, name, refused.get(name) or results[name], describer if left > 0 else None)
        left -= len(result.configs or ())
        response.topics.append(result)
        await pace.step()
    return response


def _wish(topic: CreatableTopic) -> TopicCreation:
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
    describer: ConfigDescriber | None,
) -> CreatableTopicResult:
    if isinstance(outcome, KafkaError):
        return CreatableTopicResult(name=name, error_code=outcome.code, error_message=outcome.message, configs=[])
    if request.timeout_ms <= 0 and not request.validate_only:
        text = "The topic was created, but there was no time to wait for it."
        return CreatableTopicResult(name=name, error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=text, configs=[])
    topic_id = ZERO_UUID if request.validate_only else outcome.topic_id
    if not ctx.may(AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, name):
        # Not even what was asked for itself, as Kafka has it: the rest is the broker's defaults.
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


def _configs(describer: ConfigDescriber, topic: CreatedTopic) -> list[CreatableTopicConfigs]:
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
