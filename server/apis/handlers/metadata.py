"""Metadata (key 3): brokers, topics, and the leaders of partitions.

v0 cannot request an empty list of topics: an empty list means all. v4 lets the client forbid auto-creation (KIP-361),
which older versions imply. v12 takes topic ids (KIP-516). A topic that the request creates exists when the response is
sent, but the response has an error, so that clients repeat the request: the next broker may not have its metadata yet.
The error is UNKNOWN_TOPIC_OR_PARTITION, as in Kafka 4.4, which has it for a creation that fails too. In versions that
kafkajs uses, it is LEADER_NOT_AVAILABLE for a topic that was created (see `KAFKAJS_VERSION`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias
from uuid import UUID

from ....common.room_logger import room_logger
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
from ...controller.controller_client import ControllerClient
from ...metadata.metadata_cache import MetadataCache, MetadataSnapshot
from ...metadata.topic_names import is_internal, is_legal
from ...quotas.request_quota_usage import new_controller_mutation_quota
from ...runtime.loop_sharing import CountBudget, SlicedWork, Steps, next_turn
from ..authorized_operations import NOT_REQUESTED, authorized_operations, cluster_operations
from ..request_context import RequestContext

logger = room_logger("apis")
NULL_MEANS_ALL_VERSION = 1
MAY_BE_THERE = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors of a creation after which the topic may exist: this broker has just started and has no metadata yet, or does
not reach the controller. After UNKNOWN_TOPIC_OR_PARTITION a client drops its state of the topic, librdkafka the
sequence of an idempotent producer. Source: AutoTopicCreationManager of Kafka 3.9 with ZooKeeper.
"""
KAFKAJS_VERSION = 6
"""The newest version that kafkajs 2.2.4 requests. Its `consumer.subscribe` reports UNKNOWN_TOPIC_OR_PARTITION to the
application, also with Kafka 4.4.0, and repeats the request only after LEADER_NOT_AVAILABLE, the error of Kafka 3.9 with
ZooKeeper.
"""
TOPIC_ID_VERSION = 12
Topics: TypeAlias = list[MetadataResponseTopic]
AUTO_CREATION_MS = 5_000
"""Timeout of the creation of topics. Kafka does not wait: the client repeats the request in either case."""


async def handle(
    ctx: RequestContext,
    request: MetadataRequest,
    *,
    config: Settings,
    controller: ControllerClient,
    metadata_cache: MetadataCache,
    sliced_work: SlicedWork,
) -> MetadataResponse:
    """Respond from one snapshot of the metadata cache, with each topic once. Create missing topics if that is allowed.

    Kafka reads the topics and the brokers one after the other, so that a new image may be published in between.
    """
    wanted, snapshot = request.topics, metadata_cache.snapshot
    if wanted is None or (not wanted and ctx.api_version < NULL_MEANS_ALL_VERSION and not ctx.denied):
        steps = _all(ctx, request, snapshot)
    elif ctx.api_version < TOPIC_ID_VERSION and any(topic.name is None or topic.topic_id.int for topic in wanted):
        # Versions 10 and 11 have the fields, but brokers of that time did not look up topics by id.
        steps = _each(ctx, request, map(_refused, wanted))
    elif any(topic.topic_id.int for topic in wanted):
        ids = dict.fromkeys(topic.topic_id for topic in wanted)
        steps = _each(ctx, request, (_by_id(ctx, topic_id, snapshot) for topic_id in ids))
    else:
        names = dict.fromkeys(topic.name or "" for topic in wanted)
        may_create = config.auto_create_topics_enable and request.allow_auto_topic_creation
        topics, creatable = await sliced_work.complete(_named(ctx, request, names, may_create, snapshot))
        if creatable:
            # The creation uses timeouts, which need a task: see `EAGER` in `kafka_apis.py`.
            await next_turn()
            # From here on the request is completed even if the client disconnects.
            ctx.on_disconnect(_complete_anyway)
            topics += await _create(ctx, creatable, controller)
        return _response(ctx, request, topics, metadata_cache, snapshot)
    return _response(ctx, request, await sliced_work.complete(steps), metadata_cache, snapshot)


def _complete_anyway() -> None:
    """Replace the cancellation of the request."""


def _may_create(ctx: RequestContext, name: str) -> bool:
    create = AclOperation.CREATE
    return ctx.is_authorized(create, AclResourceType.TOPIC, name) or ctx.is_authorized(
        create, AclResourceType.CLUSTER, CLUSTER_NAME
    )


def _all(ctx: RequestContext, request: MetadataRequest, snapshot: MetadataSnapshot) -> Steps[Topics]:
    """Build all topics with the ACL. A topic created or deleted in between may be missing, but is never unknown."""
    topics = []
    for name in list(snapshot.topics):
        if ctx.is_authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, name):
            topic = snapshot.response_topic(name, ctx.listener.name, ctx.api_version)
            if topic is not None:
                topics.append(_with_operations(ctx, request, topic))
        yield
    return topics


def _named(
    ctx: RequestContext,
    request: MetadataRequest,
    names: Iterable[str],
    may_create: bool,
    snapshot: MetadataSnapshot,
) -> Steps[tuple[Topics, list[str]]]:
    """Build the topics of these names, and return the names of the missing topics that may be created."""
    topics: list[MetadataResponseTopic] = []
    failed: list[MetadataResponseTopic] = []
    creatable: list[str] = []
    for name in names:
        topic = snapshot.response_topic(name, ctx.listener.name, ctx.api_version)
        if topic is not None:
            topics.append(_with_operations(ctx, request, topic))
        elif not may_create or not is_legal(name):
            failed.append(_unknown(name))
        elif _may_create(ctx, name):
            creatable.append(name)
        else:
            failed.append(_failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        yield
    return topics + failed, creatable


def _each(ctx: RequestContext, request: MetadataRequest, topics: Iterator[MetadataResponseTopic]) -> Steps[Topics]:
    described = []
    for topic in topics:
        described.append(_with_operations(ctx, request, topic))
        yield
    return described


def _by_id(ctx: RequestContext, topic_id: UUID, snapshot: MetadataSnapshot) -> MetadataResponseTopic:
    name = snapshot.topic_name(topic_id)
    topic = snapshot.response_topic(name, ctx.listener.name, ctx.api_version) if name else None
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return topic


async def _create(ctx: RequestContext, creatable: list[str], controller: ControllerClient) -> Topics:
    """Create topics, and return them with the error after which the client repeats its request."""
    topics: Topics = []
    try:
        mutation_quota = new_controller_mutation_quota(ctx.quota_usage)
        results = await controller.auto_create(creatable, timeout_ms=AUTO_CREATION_MS, mutation_quota=mutation_quota)
    except KafkaError as error:
        results = dict.fromkeys(creatable, error)
    budget = CountBudget()
    for name in creatable:
        await budget.step()
        failure = results.get(name)
        if failure is not None:
            # Kafka's brokers do not wait for the controller, so that the response does not depend on the error.
            logger.debug("topic %s cannot be created automatically: %s", name, failure)
        is_created = name in results and failure is None
        may_exist = failure is not None and failure.code in MAY_BE_THERE
        if may_exist or (is_created and ctx.api_version <= KAFKAJS_VERSION):
            topics.append(_failed(name, ErrorCode.LEADER_NOT_AVAILABLE))
        else:
            topics.append(_unknown(name))
    return topics


def _unknown(name: str) -> MetadataResponseTopic:
    legal = is_legal(name)
    return _failed(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION)


def _failed(name: str, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID, is_internal=is_internal(name))


def _refused(topic: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id)


def _with_operations(
    ctx: RequestContext, request: MetadataRequest, topic: MetadataResponseTopic
) -> MetadataResponseTopic:
    """Return the topic, or a copy with the authorized operations: the topic is shared with other responses."""
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
    ctx: RequestContext,
    request: MetadataRequest,
    topics: Topics,
    metadata_cache: MetadataCache,
    snapshot: MetadataSnapshot,
) -> MetadataResponse:
    operations = cluster_operations(ctx) if request.include_cluster_authorized_operations else NOT_REQUESTED
    return MetadataResponse(
        brokers=snapshot.response_brokers(ctx.listener.name),
        cluster_id=metadata_cache.cluster_id,
        controller_id=metadata_cache.controller_id,
        topics=topics,
        cluster_authorized_operations=operations,
    )
