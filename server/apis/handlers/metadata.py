"""Metadata (key 3): brokers, topics, and who leads which partition.

v0 has no way to ask for no topics: an empty list means all. v4 lets the client forbid auto-creation (KIP-361); before
it was implied. v12 asks by topic id (KIP-516). A topic that is created because it was asked for is ready when the
answer leaves, but the answer itself is an error, so that clients ask again: in a cluster the next broker asked may not
have heard of it yet. It is LEADER_NOT_AVAILABLE, as of Kafka's brokers around ZooKeeper; that of Kafka 4,
UNKNOWN_TOPIC_OR_PARTITION, is final to kafkajs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator
from uuid import UUID

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ....protocol.schema import ZERO_UUID
from ...config.settings import Settings
from ...metadata.topic_names import is_internal, is_legal
from ...quotas.charge import price_of_changes
from ...runtime.turns import Pace, Steps
from ..authorized_operations import NOT_REQUESTED, authorized_operations, cluster_operations
from ..ports import ActiveController, ClusterMetadata
from ..request_context import RequestContext

NULL_MEANS_ALL_VERSION = 1
MAY_BE_THERE = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Why a topic could not be created that this broker does not know: it has started and was not told of topics yet, or
cannot reach the controller. A client that heard there is no such topic would give up what it has for it, librdkafka an
idempotent producer's sequence. Source: AutoTopicCreationManager of Kafka 3.9 with ZooKeeper.
"""
TOPIC_ID_VERSION = 12


def handle(
    ctx: RequestContext,
    request: MetadataRequest,
    *,
    config: Settings,
    controller: ActiveController,
    metadata: ClusterMetadata,
) -> Steps[MetadataResponse | Awaitable[MetadataResponse]]:
    """Answers from the cache, each topic once, unless one is to be created first."""
    wanted = request.topics
    if wanted is None or (not wanted and ctx.api_version < NULL_MEANS_ALL_VERSION and not ctx.refusals):
        return _all(ctx, request, metadata=metadata)
    if ctx.api_version < TOPIC_ID_VERSION and any(topic.name is None or topic.topic_id.int for topic in wanted):
        # Versions 10 and 11 have the fields, but brokers of that time could not look up by id.
        return _each(ctx, request, map(_refused, wanted), metadata=metadata)
    if any(topic.topic_id.int for topic in wanted):
        ids = dict.fromkeys(topic.topic_id for topic in wanted)
        return _each(ctx, request, (_by_id(ctx, topic_id, metadata=metadata) for topic_id in ids), metadata=metadata)
    names = dict.fromkeys(topic.name or "" for topic in wanted)
    may_create = config.auto_create_topics_enable and request.allow_auto_topic_creation
    return _named(ctx, request, names, may_create, controller=controller, metadata=metadata)


def _may_create(ctx: RequestContext, name: str) -> bool:
    create = AclOperation.CREATE
    return ctx.may(create, AclResourceType.TOPIC, name) or ctx.may(create, AclResourceType.CLUSTER, CLUSTER_NAME)


def _all(ctx: RequestContext, request: MetadataRequest, *, metadata: ClusterMetadata) -> Steps[MetadataResponse]:
    """Topics that the client may see. Of those that come or go in between some are told of, and none as unknown."""
    topics = []
    for name in list(metadata.topic_names):
        if ctx.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, name):
            topic = metadata.response_topic(name, ctx.listener.name, ctx.api_version)
            if topic is not None:
                topics.append(_told(ctx, request, topic))
        yield
    return _response(ctx, request, topics, metadata=metadata)


def _named(
    ctx: RequestContext,
    request: MetadataRequest,
    names: Iterable[str],
    may_create: bool,
    *,
    controller: ActiveController,
    metadata: ClusterMetadata,
) -> Steps[MetadataResponse | Awaitable[MetadataResponse]]:
    """What is known of topics, then those that are not, or may not be made; first some are made, if they may be."""
    topics: list[MetadataResponseTopic] = []
    failed: list[MetadataResponseTopic] = []
    creatable: list[str] = []
    for name in names:
        topic = metadata.response_topic(name, ctx.listener.name, ctx.api_version)
        if topic is not None:
            topics.append(_told(ctx, request, topic))
        elif not may_create or not is_legal(name):
            failed.append(_unknown(name))
        elif _may_create(ctx, name):
            creatable.append(name)
        else:
            failed.append(_failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        yield
    topics += failed
    if creatable:
        return _create_and_respond(ctx, request, topics, creatable, controller=controller, metadata=metadata)
    return _response(ctx, request, topics, metadata=metadata)


def _each(
    ctx: RequestContext, request: MetadataRequest, topics: Iterator[MetadataResponseTopic], *, metadata: ClusterMetadata
) -> Steps[MetadataResponse]:
    described = []
    for topic in topics:
        described.append(_told(ctx, request, topic))
        yield
    return _response(ctx, request, described, metadata=metadata)


def _by_id(ctx: RequestContext, topic_id: UUID, *, metadata: ClusterMetadata) -> MetadataResponseTopic:
    name = metadata.topic_name(topic_id)
    topic = metadata.response_topic(name, ctx.listener.name, ctx.api_version) if name else None
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return topic


async def _create_and_respond(
    ctx: RequestContext,
    request: MetadataRequest,
    topics: list[MetadataResponseTopic],
    creatable: list[str],
    *,
    controller: ActiveController,
    metadata: ClusterMetadata,
) -> MetadataResponse:
    try:
        results = await controller.auto_create(creatable, pay=price_of_changes(ctx.charge))
    except KafkaError as error:
        results = dict.fromkeys(creatable, error)
    pace = Pace()
    for name in creatable:
        await pace.step()
        error_or_none = results.get(name)
        if name not in results:
            topics.append(_unknown(name))
        elif error_or_none is None or error_or_none.code in MAY_BE_THERE:
            topics.append(_failed(name, ErrorCode.LEADER_NOT_AVAILABLE))
        else:
            topics.append(_failed(name, error_or_none.code))
    return _response(ctx, request, topics, metadata=metadata)


def _unknown(name: str) -> MetadataResponseTopic:
    legal = is_legal(name)
    return _failed(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION)


def _failed(name: str, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID, is_internal=is_internal(name))


def _refused(topic: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id)


def _told(ctx: RequestContext, request: MetadataRequest, topic: MetadataResponseTopic) -> MetadataResponseTopic:
    """The topic, or a copy with what the client may do to it, if asked for: it is shared with other answers."""
    if topic.error_code or not request.include_topic_authorized_operations:
        return topic
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=topic.partitions,
        topic_authorized_operations=authorized_operations(ctx, AclResourceType.TOPIC, topic.name or ""),
    )


def _response(
    ctx: RequestContext, request: MetadataRequest, topics: list[MetadataResponseTopic], *, metadata: ClusterMetadata
) -> MetadataResponse:
    operations = cluster_operations(ctx) if request.include_cluster_authorized_operations else NOT_REQUESTED
    return MetadataResponse(
        brokers=metadata.response_brokers(ctx.listener.name),
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id,
        topics=topics,
        cluster_authorized_operations=operations,
    )
