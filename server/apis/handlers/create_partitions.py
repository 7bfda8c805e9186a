"""CreatePartitions (key 37): the count is the new total. Existing records are not moved: keys may change partition."""

from __future__ import annotations

from collections import Counter

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ...controller.admin_manager import PartitionsCreation
from ...controller.kafka_controller import KafkaController
from ...quotas.request_quota_usage import new_controller_mutation_quota
from ..request_context import RequestContext

STRICT_QUOTA_VERSION = 3
"""The first version that rejects a client over its controller mutation quota instead of throttling it (KIP-599)."""


async def handle(
    ctx: RequestContext, request: CreatePartitionsRequest, *, controller: KafkaController
) -> CreatePartitionsResponse:
    """Extend each topic independently; a topic that the request repeats is not extended."""
    named = Counter(topic.name for topic in request.topics)
    creations = [_partitions_creation(topic) for topic in request.topics if named[topic.name] == 1]
    outcomes: dict[str, KafkaError | None]
    try:
        mutation_quota = new_controller_mutation_quota(ctx.quota_usage, strict=ctx.api_version >= STRICT_QUOTA_VERSION)
        outcomes = await controller.create_partitions(
            creations, validate_only=request.validate_only, timeout_ms=request.timeout_ms, mutation_quota=mutation_quota
        )
    except KafkaError as failure:
        outcomes = dict.fromkeys((creation.name for creation in creations), failure.as_result())
    duplicate = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
    results = []
    for name, count in named.items():
        results.append(_result(name, duplicate if count > 1 else outcomes[name]))
    return CreatePartitionsResponse(results=results)


def _partitions_creation(topic: CreatePartitionsTopic) -> PartitionsCreation:
    given = topic.assignments
    assignments = None if given is None else [tuple(assignment.broker_ids) for assignment in given]
    return PartitionsCreation(topic.name, topic.count, assignments)


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
