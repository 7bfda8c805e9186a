"""Errors of single partitions, while the others of the same request are handled normally. Runs on the event loop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ..protocol.apis import ApiKey
from ..protocol.errors import KafkaError
from ..server.apis.acl_checks import add_denied_items
from ..server.apis.error_responses import ITEM_PATHS, ItemPaths
from ..server.apis.request_context import DeniedItems

if TYPE_CHECKING:
    from ..server.apis.request_context import RequestContext, Respond
    from .exchange import Exchange

BY_PARTITION = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DELETE_RECORDS,
}
"""APIs whose responses have an error field per partition that clients check."""
OF_LEADERS = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH})
"""APIs for the leader of a partition only."""
ONLY_ANSWERED = {
    ApiKey.FETCH: ITEM_PATHS[ApiKey.FETCH][0],
    ApiKey.METADATA: ItemPaths(("topics",), ("topics", "partitions")),
}
"""APIs whose requests may concern a partition without naming it: with a fetch session, or for all of a topic."""
_INDEXES = ("index", "partition_index", "partition")
_NO_FIELD = ""


@dataclass(frozen=True, slots=True)
class FaultTarget:
    """A partition, or all of a topic."""

    topic: str
    partition: int | None
    topic_name: Callable[[UUID], str | None]

    def is_named(self, exchange: Exchange) -> bool:
        """Return whether a request concerns it, if that is known."""
        if exchange.api is ApiKey.METADATA and exchange.request.topics:
            return any(map(self._is_of, exchange.request.topics))
        return (
            exchange.api in ONLY_ANSWERED or self._divided(exchange.request, ITEM_PATHS[exchange.api][0])[1] is not None
        )

    def fail(self, error: KafkaError, handled: bool, exchange: Exchange) -> Any:
        """Return the error for this partition and handle the others. With `handled` all of the request is handled."""
        context, key = exchange.context, exchange.api
        if handled or key in ONLY_ANSWERED:
            row = ONLY_ANSWERED.get(key) or ITEM_PATHS[key][0]
            # An empty error list: the response is then a message, instead of the short form without errors.
            context.denied = (*context.denied, DeniedItems(_NO_FIELD, None, error))

            def spoil(respond: Respond, context: RequestContext, response: Any) -> None:
                respond(context, self._marked(response, row, error))

            return exchange.answered_through(spoil)
        row = ITEM_PATHS[key][0]
        kept, taken = self._divided(exchange.request, row)
        if kept is None:
            raise KafkaError(error.code, error.message)
        context.denied = (*context.denied, DeniedItems(row.request[0], taken, error))

        def fill(respond: Respond, context: RequestContext, response: Any) -> None:
            if response is not None and not context.has_authorizer:
                add_denied_items(context, response)  # else the ACL interceptor adds them
            respond(context, response)

        return context.handle_and_wrap_response(exchange.handler, kept, fill)

    def _is_of(self, topic: Any) -> bool:
        name = getattr(topic, "name", None) or getattr(topic, "topic", None)
        topic_id = getattr(topic, "topic_id", None)
        return (name or (self.topic_name(topic_id) if topic_id is not None else None)) == self.topic

    def _is(self, item: Any) -> bool:
        number = item if isinstance(item, int) else next(getattr(item, one) for one in _INDEXES if hasattr(item, one))
        return self.partition is None or number == self.partition

    def _divided(self, request: Any, row: ItemPaths) -> tuple[Any | None, Any | None]:
        """Return the request without this partition; None if nothing remains."""
        topics_field, partitions_field = row.request
        kept: list[Any] = []
        taken: list[Any] = []
        for topic in getattr(request, topics_field) or ():
            partitions = getattr(topic, partitions_field)
            here = [self._is_of(topic) and self._is(one) for one in partitions]
            for wanted, into in ((False, kept), (True, taken)):
                some = [one for one, is_here in zip(partitions, here, strict=True) if is_here is wanted]
                if some:
                    into.append(_with(topic, partitions_field, some))
        return (
            _with(request, topics_field, kept) if kept else None,
            _with(request, topics_field, taken) if taken else None,
        )

    def _marked(self, response: Any, row: ItemPaths, error: KafkaError) -> Any:
        """Return a copy: the broker caches parts of responses."""
        topics_field, partitions_field = row.response
        topics = []
        for topic in getattr(response, topics_field, None) or ():
            if self._is_of(topic):
                answers = [_failed(one, error) if self._is(one) else one for one in getattr(topic, partitions_field)]
                topic = _with(topic, partitions_field, answers)
            topics.append(topic)
        return _with(response, topics_field, topics) if topics else response


def _failed(answer: Any, error: KafkaError) -> Any:
    failed = _with(answer, "error_code", error.code)
    for field, nothing in (("records", None), ("leader_id", -1)):
        if hasattr(failed, field):
            setattr(failed, field, nothing)
    return failed


def _with(message: Any, field: str, value: Any) -> Any:
    changed = copy.copy(message)
    setattr(changed, field, value)
    return changed
