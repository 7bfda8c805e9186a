"""CreatePartitions (key 37): the count is the new total. Records stay where they are, so keys may change partition."""

from __future__ import annotations

from collections import Counter

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ...controller.topic_rules import PartitionsCreation
from ...quotas.charge import price_of_changes
from ..ports import ActiveController
from ..request_context import RequestContext

STRICT_QUOTA_VERSION = 3
"""From here on, clients over their quota of changes are refused; before, the answer says to wait (KIP-599)."""


async def handle(
    ctx: RequestContext, request: CreatePartitionsRequest, *, controller: ActiveController
) -> CreatePartitionsResponse:
    """Extends each topic on its own terms; one named twice is not extended."""
    named = Counter(topic.name for topic in request.topics)
    wishes = [_wish(topic) for topic in request.topics if named[topic.name] == 1]
    outcomes: dict[str, KafkaError | None]
    try:
        pay = price_of_changes(ctx.charge, strict=ctx.api_version >= STRICT_QUOTA_VERSION)
        outcomes = await controller.create_partitions(wishes, validate_only=request.validate_only, pay=pay)
    except KafkaError as failure:
        outcomes = dict.fromkeys((wish.name for wish in wishes), failure.as_result())
    duplicate = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
    results = []
    for name, count in named.items():
        error = duplicate if count > 1 else outcomes[name]
        if error is None and request.timeout_ms <= 0 and not request.validate_only:
            text = "The partitions were created, but there was no time to wait for them."
            error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
        results.append(_result(name, error))
    return CreatePartitionsResponse(results=results)


def _wish(topic: CreatePartitionsTopic) -> PartitionsCreation:
    given = topic.assignments
    assignments = None if given is None else [tuple(assignment.broker_ids) for assignment in given]
    return PartitionsCreation(topic.name, topic.count, assignments)


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
