"""DeleteTopics (key 20): deletes topics from the metadata and from the log directories before the response.

It does not wait for stopped brokers: they delete their replicas when they start. REQUEST_TIMED_OUT means that the
timeout expired before all live brokers had deleted their replicas; the deletion continues.

v3 has TOPIC_DELETION_DISABLED, v5 has messages and refuses clients over their controller mutation quota (KIP-599), v6
names topics by name or by id.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ....protocol.schema import ZERO_UUID
from ...config.settings import Settings
from ...controller.kafka_controller import KafkaController
from ...metadata.metadata_cache import MetadataCache
from ...quotas.request_quota_usage import new_controller_mutation_quota
from ...runtime.loop_sharing import CountBudget
from ..request_context import RequestContext

DELETION_DISABLED_VERSION = 3
STRICT_QUOTA_VERSION = 5
TOPIC_STATES_VERSION = 6


async def handle(
    ctx: RequestContext,
    request: DeleteTopicsRequest,
    *,
    config: Settings,
    controller: KafkaController,
    metadata_cache: MetadataCache,
) -> DeleteTopicsResponse:
    """Delete each topic independently."""
    if ctx.api_version >= TOPIC_STATES_VERSION:
        wanted = request.topics
    else:
        wanted = [DeleteTopicState(name=name) for name in dict.fromkeys(request.topic_names)]
    if not config.delete_topic_enable:
        code = ErrorCode.TOPIC_DELETION_DISABLED
        if ctx.api_version < DELETION_DISABLED_VERSION:
            code = ErrorCode.INVALID_REQUEST
        disabled = KafkaError(code, "Topic deletion is disabled.")
        return DeleteTopicsResponse(responses=[_result(topic.name, topic.topic_id, disabled) for topic in wanted])
    resolved = await _resolve(wanted, metadata_cache=metadata_cache)
    names = [name for name, _, error in resolved if error is None and name is not None]
    by_id = {topic.topic_id for topic in wanted if topic.name is None}
    topic_ids = {name: topic_id for name, topic_id, _ in resolved if name is not None and topic_id in by_id}
    outcomes: dict[str, KafkaError | None]
    try:
        mutation_quota = new_controller_mutation_quota(ctx.quota_usage, strict=ctx.api_version >= STRICT_QUOTA_VERSION)
        outcomes = await controller.delete_topics(
            names, topic_ids=topic_ids, timeout_ms=request.timeout_ms, mutation_quota=mutation_quota
        )
    except KafkaError as failure:
        outcomes = dict.fromkeys(names, failure.as_result())
    responses, budget = [], CountBudget()
    for name, topic_id, error in resolved:
        await budget.step()
        outcome = error if error is not None or name is None else outcomes[name]
        responses.append(_result(name, topic_id, outcome))
    return DeleteTopicsResponse(responses=responses)


async def _resolve(
    wanted: list[DeleteTopicState], *, metadata_cache: MetadataCache
) -> list[tuple[str | None, UUID, KafkaError | None]]:
    """Find the name and id of each topic, or the reason why it cannot be deleted."""
    named = Counter(topic.name for topic in wanted if topic.name is not None)
    # Topics addressed by id count under their name, too: one of both ways may address it.
    named.update(name for topic in wanted if topic.name is None and (name := metadata_cache.topic_name(topic.topic_id)))
    resolved: list[tuple[str | None, UUID, KafkaError | None]] = []
    budget = CountBudget()
    for topic in wanted:
        await budget.step()
        name, topic_id, error = topic.name, topic.topic_id, None
        if name is not None and topic_id.int:
            text = "Topic name and topic ID can not both be specified."
            error = KafkaError(ErrorCode.INVALID_REQUEST, text)
        elif name is not None:
            topic_id = metadata_cache.topic_id(name) or ZERO_UUID
        elif not topic_id.int:
            error = KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id was specified.")
        else:
            name = metadata_cache.topic_name(topic_id)
            if name is None:
                error = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        if error is None and name is not None and named[name] > 1:
            error = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic.")
        resolved.append((name, topic_id, error))
    return resolved


def _result(name: str | None, topic_id: UUID, error: KafkaError | None) -> DeletableTopicResult:
    if error is None:
        return DeletableTopicResult(name=name, topic_id=topic_id)
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
