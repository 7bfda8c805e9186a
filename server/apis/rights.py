"""The one place where it is checked whether a client may do what it asks for, before a handler sees the request.

What is not allowed is taken out of the request, and the handler answers the rest; the refusals are added to its answer.
A request for everything, or for what a session remembers, does not name what it touches: its handler asks for each
thing that the answer would mention (`RequestContext.may`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ...protocol.acls import CLUSTER_NAME, AclResourceType
from ...protocol.apis import API_MESSAGES, ApiKey
from ...protocol.config_resources import ConfigResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.schema import fields_of
from ..runtime.turns import ITEMS as ITEMS_A_TURN
from .error_answers import ITEMS, fill, wants_answer
from .table import ALL, Right

if TYPE_CHECKING:
    from uuid import UUID

    from ..runtime.ports import Work
    from ..runtime.turns import Steps
    from ..security.authorizer import Authorizer
    from ..security.session import Session
    from .request_context import RequestContext

Handle = Callable[["RequestContext", Any], Any]
Respond = Callable[["RequestContext", Any], None]
Resource = tuple[AclResourceType, str]
T = TypeVar("T")

LANE = "requests"
"""Where the refusals of a long request are made."""
REFUSALS = {
    AclResourceType.TOPIC: KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    AclResourceType.GROUP: KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    AclResourceType.CLUSTER: KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    AclResourceType.TRANSACTIONAL_ID: KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."
    ),
}
COORDINATED = {0: AclResourceType.GROUP, 1: AclResourceType.TRANSACTIONAL_ID}
"""What FindCoordinator's types of keys are."""
CONFIGURED = {
    ConfigResourceType.TOPIC: AclResourceType.TOPIC,
    ConfigResourceType.GROUP: AclResourceType.GROUP,
    ConfigResourceType.BROKER: AclResourceType.CLUSTER,
    ConfigResourceType.BROKER_LOGGER: AclResourceType.CLUSTER,
    ConfigResourceType.CLIENT_METRICS: AclResourceType.CLUSTER,
}
"""Whose right it takes to see or change a configuration."""
ALWAYS_HANDLED = {ApiKey.METADATA}
"""Handled even if nothing of the request is allowed: the answer tells of more than topics."""
NAMING = ("name", "topic", "group_id", "resource_name")
"""Fields by which items say what they are about."""


class TopicIds(Protocol):
    """What is known of topics that are named by id."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name; None for an id that no topic has."""


class Refusal(NamedTuple):
    """What was taken out of a request, as a request of its own, and why."""

    field: str
    request: Any
    error: KafkaError


class Rights:
    """Checks requests against the rights that the table of APIs names."""

    def __init__(self, authorizer: Authorizer, topics: TopicIds, work: Work) -> None:
        self._authorizer = authorizer
        self._topics = topics
        self._work = work

    def guarding(self, handle: Handle) -> Handle:
        """The handler, which then gets to see only what its client may touch; a long request is looked at in turns."""

        def guarded(context: RequestContext, request: Any) -> Any:
            steps = self._guard(context, request, handle)
            return steps if context.is_long else _at_once(steps)

        return guarded

    def _guard(self, context: RequestContext, request: Any, handle: Handle) -> Steps[Any]:
        key = ApiKey(context.api_key)
        allowed = yield from self._allowed(context, key, request)
        if allowed is None:
            # To ask for nothing might mean to ask for everything.
            if wants_answer(key, request):
                return API_MESSAGES[key].response()
            context.close()
            return None
        return handle(context, allowed)

    def completing(self, respond: Respond) -> Respond:
        """What answers the request, the refusals included."""

        def completed(context: RequestContext, response: Any) -> None:
            if context.refusals and response is None:
                context.close()
                return
            add = partial(complete, context, response)
            if context.refusals and context.is_long:
                self._work.submit(LANE, add, partial(_respond, context, response, respond))
            else:
                add()
                respond(context, response)

        return completed

    def _allowed(self, context: RequestContext, key: ApiKey, request: Any) -> Steps[Any | None]:
        """The request without what the client may not touch; None if nothing of it is left.

        Raises KafkaError if it may not be done at all.
        """
        refusals: list[Refusal] = []
        allowed = request
        for right in _rights(key, context.api_version):
            wanted = getattr(allowed, right.field) if right.field else CLUSTER_NAME
            if isinstance(wanted, str):
                resource = _resource_type(right, request, wanted)
                if resource is not None and not self._may(context.session, right, resource, wanted):
                    raise REFUSALS[resource].as_result()
            elif wanted:
                kept, refused = yield from self._divided(context.session, right, request, wanted)
                if refused and all(row.asked[0] != right.field for row in ITEMS.get(key, ())):
                    raise next(iter(refused)).as_result()
                for error, items in refused.items():
                    refusals.append(Refusal(right.field, _with(request, right.field, items), error))
                if refused:
                    allowed = _with(allowed, right.field, kept)
        context.refusals = tuple(refusals)
        if refusals and key not in ALWAYS_HANDLED and not any(getattr(allowed, one.field) for one in refusals):
            return None
        return allowed

    def _divided(
        self, session: Session, right: Right, request: Any, items: Iterable[Any]
    ) -> Steps[tuple[list[Any], dict[KafkaError, list[Any]]]]:
        """What is allowed, and what is refused and why. A resource that is named often is asked for once."""
        kept: list[Any] = []
        refused: dict[KafkaError, list[Any]] = {}
        known: dict[Resource, bool] = {}
        for count, item in enumerate(items, 1):
            if count % ITEMS_A_TURN == 0:
                yield
            kind, name = _resource_type(right, request, item), self._name(item)
            if kind is AclResourceType.CLUSTER:
                name = CLUSTER_NAME
            if kind is None or name is None:
                # There is no such thing; the handler knows what to say to that.
                kept.append(item)
                continue
            may = known.get((kind, name))
            if may is None:
                may = known[kind, name] = self._may(session, right, kind, name)
            (kept if may else refused.setdefault(REFUSALS[kind], [])).append(item)
        return kept, refused

    def _may(self, session: Session, right: Right, kind: AclResourceType, name: str) -> bool:
        ask = self._authorizer.authorize
        if ask(session, right.operation, kind, name):
            return True
        if right.or_operation is not None and ask(session, right.or_operation, kind, name):
            return True
        anywhere = right.or_cluster
        return anywhere is not None and ask(session, anywhere, AclResourceType.CLUSTER, CLUSTER_NAME)

    def _name(self, item: Any) -> str | None:
        if isinstance(item, str):
            return item
        topic_id: UUID | None = getattr(item, "topic_id", None)
        if topic_id is not None and topic_id.int:
            # Handlers go by the id, whatever name stands beside it.
            return self._topics.topic_name(topic_id)
        return next((name for field in NAMING if (name := getattr(item, field, None))), "")


@cache
def _rights(key: ApiKey, version: int) -> tuple[Right, ...]:
    """Those of a version: of a field that it does not have there is nothing to check. A name that is empty is one."""
    fields = {field.name: field.versions for field in fields_of(API_MESSAGES[key].request)}
    return tuple(right for right in ALL[key].rights if not right.field or version in fields[right.field])


def _at_once(steps: Steps[T]) -> T:
    """What short work comes to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def complete(context: RequestContext, response: Any) -> None:
    """Add the refusals to an answer to the rest of the request."""
    key = ApiKey(context.api_key)
    for refusal in context.refusals:
        for row in ITEMS[key]:
            if row.asked[0] == refusal.field:
                fill(response, row, refusal.request, context.api_version, refusal.error)


def _respond(context: RequestContext, response: Any, respond: Respond, _: None, error: BaseException | None) -> None:
    """The refusals were added beside the loop, or could not be."""
    if error is not None:
        context.finish(None, error)
    else:
        respond(context, response)


def _with(request: Any, field: str, items: list[Any]) -> Any:
    """The request with these items in place of all."""
    changed = copy.copy(request)
    setattr(changed, field, items)
    return changed


def _resource_type(right: Right, request: Any, item: Any) -> AclResourceType | None:
    """Of what type the resource is that the item names; None for a number that means nothing."""
    if right.resource_type is not None:
        return right.resource_type
    if isinstance(item, str):
        return COORDINATED.get(request.key_type)
    return CONFIGURED.get(item.resource_type)
