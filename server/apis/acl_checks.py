"""The ACL checks of requests before their handlers (Kafka's AuthHelper).

Denied items are removed from the request, the handler handles the other items, and the denied items are added to its
response with their error. A request for all topics or for the partitions of a fetch session does not name
its resources: its handler calls `RequestContext.is_authorized` for each resource of the response.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from ...common.steps import run_to_end
from ...protocol.acls import CLUSTER_NAME, AclResourceType
from ...protocol.apis import API_MESSAGES, ApiKey
from ...protocol.config_resources import ConfigResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.schema import fields_of
from ..runtime.loop_sharing import ITEMS_PER_TURN
from .error_responses import ITEM_PATHS, add_error_items, expects_response
from .request_context import DeniedItems
from .table import AclCheck, Api

if TYPE_CHECKING:
    from uuid import UUID

    from ..metadata.metadata_cache import MetadataCache
    from ..runtime.loop_sharing import SlicedWork, Steps
    from ..runtime.ports import Work
    from ..security.authorizer import Authorizer
    from ..security.session import Session
    from .request_context import Handle, RequestContext, Respond

Resource = tuple[AclResourceType, str]

LANE = "requests"
"""The lane in which the items for denied items of a large request are built."""
DENIALS = {
    AclResourceType.TOPIC: KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    AclResourceType.GROUP: KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    AclResourceType.CLUSTER: KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    AclResourceType.TRANSACTIONAL_ID: KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."
    ),
}
COORDINATOR_KEY_TYPES = {0: AclResourceType.GROUP, 1: AclResourceType.TRANSACTIONAL_ID}
"""The types of resources of the key types of FindCoordinator."""
CONFIG_RESOURCE_TYPES = {
    ConfigResourceType.TOPIC: AclResourceType.TOPIC,
    ConfigResourceType.GROUP: AclResourceType.GROUP,
    ConfigResourceType.BROKER: AclResourceType.CLUSTER,
    ConfigResourceType.BROKER_LOGGER: AclResourceType.CLUSTER,
    ConfigResourceType.CLIENT_METRICS: AclResourceType.CLUSTER,
}
"""The types of resources whose ACLs apply to configurations."""
ALWAYS_HANDLED = {ApiKey.METADATA}
"""Handled even if all items are denied: the response contains more than topics."""
NAME_FIELDS = ("name", "topic", "topic_name", "group_id", "resource_name")
"""Fields with the name of an item's resource."""


class AclInterceptor:
    """Checks requests against the ACL checks in the table of APIs. Used on the event loop's thread only."""

    def __init__(
        self,
        authorizer: Authorizer,
        served: Mapping[ApiKey, Api],
        metadata_cache: MetadataCache,
        sliced_work: SlicedWork,
        work: Work,
    ) -> None:
        """`served` has the checks of each API."""
        self._authorizer = authorizer
        self._served = served
        self._metadata_cache = metadata_cache
        self._sliced_work = sliced_work
        self._work = work

    def __call__(self, key: ApiKey, version: int, handle: Handle, respond: Respond) -> tuple[Handle, Respond]:
        """Leave APIs without checks unchanged."""
        checks = _checks_of_version(self._served[key], key, version)
        if not checks:
            return handle, respond

        def checked(context: RequestContext, request: Any) -> Any:
            steps = self._allowed(context, key, checks, request)
            if context.is_large:
                return checked_in_slices(context, request, steps)
            return handle_allowed(context, request, run_to_end(steps))

        async def checked_in_slices(context: RequestContext, request: Any, steps: Steps[Any | None]) -> Any:
            response = handle_allowed(context, request, await self._sliced_work.complete(steps))
            return await response if isinstance(response, CoroutineType) else response

        def handle_allowed(context: RequestContext, request: Any, allowed: Any | None) -> Any:
            if allowed is not None:
                return handle(context, allowed)
            # The handler is not called: it may treat a request for no items as a request for all items.
            if expects_response(key, request):
                return API_MESSAGES[key].response()
            context.close()
            return None

        def completed(context: RequestContext, response: Any) -> None:
            if not context.denied:
                respond(context, response)
            elif response is None:
                # The only way to report an error to a producer with acks 0.
                context.close()
            else:
                add = partial(add_denied_items, context, response)
                if context.is_large:
                    self._work.submit(LANE, add, partial(_respond, context, response, respond))
                else:
                    add()
                    respond(context, response)

        return checked, completed

    def topic_check(self, key: ApiKey) -> Callable[[Session, str], bool]:
        """Return the function that checks one topic of a request of this API for the client of a session."""
        (check,) = (check for check in self._served[key].acl_checks if check.resource_type is AclResourceType.TOPIC)

        def is_authorized(session: Session, topic: str) -> bool:
            return self._authorize(session, check, AclResourceType.TOPIC, topic)

        return is_authorized

    def _allowed(
        self, context: RequestContext, key: ApiKey, checks: tuple[AclCheck, ...], request: Any
    ) -> Steps[Any | None]:
        """Return the request without the denied items, or None if no items are left.

        Raise KafkaError if the request as a whole is denied.
        """
        denied: list[DeniedItems] = []
        allowed = request
        for check in checks:
            wanted = getattr(allowed, check.field) if check.field else CLUSTER_NAME
            if isinstance(wanted, str):
                resource_type = _resource_type(check, request, wanted)
                if resource_type is not None and not self._authorize(context.session, check, resource_type, wanted):
                    raise DENIALS[resource_type].as_result()
            elif wanted:
                kept, denied_by_error = yield from self._divide(context.session, check, request, wanted)
                if denied_by_error and all(paths.request[0] != check.field for paths in ITEM_PATHS.get(key, ())):
                    raise next(iter(denied_by_error)).as_result()
                for error, items in denied_by_error.items():
                    denied.append(DeniedItems(check.field, _with_items(request, check.field, items), error))
                if denied_by_error:
                    allowed = _with_items(allowed, check.field, kept)
        context.denied = tuple(denied)
        if denied and key not in ALWAYS_HANDLED and not any(getattr(allowed, items.field) for items in denied):
            return None
        return allowed

    def _divide(
        self, session: Session, check: AclCheck, request: Any, items: Iterable[Any]
    ) -> Steps[tuple[list[Any], dict[KafkaError, list[Any]]]]:
        """Return the allowed items, and the denied items by error. Each resource is checked once."""
        kept: list[Any] = []
        denied: dict[KafkaError, list[Any]] = {}
        known: dict[Resource, bool] = {}
        for count, item in enumerate(items, 1):
            if count % ITEMS_PER_TURN == 0:
                yield
            resource_type, name = _resource_type(check, request, item), self._resource_name(item)
            if resource_type is AclResourceType.CLUSTER:
                name = CLUSTER_NAME
            if resource_type is None or name is None:
                # An unknown type or topic id: the handler has its error.
                kept.append(item)
                continue
            is_allowed = known.get((resource_type, name))
            if is_allowed is None:
                is_allowed = known[resource_type, name] = self._authorize(session, check, resource_type, name)
            (kept if is_allowed else denied.setdefault(DENIALS[resource_type], [])).append(item)
        return kept, denied

    def _authorize(self, session: Session, check: AclCheck, resource_type: AclResourceType, name: str) -> bool:
        authorize = self._authorizer.authorize
        if authorize(session, check.operation, resource_type, name):
            return True
        if check.or_operation is not None and authorize(session, check.or_operation, resource_type, name):
            return True
        or_cluster = check.or_cluster
        return or_cluster is not None and authorize(session, or_cluster, AclResourceType.CLUSTER, CLUSTER_NAME)

    def _resource_name(self, item: Any) -> str | None:
        """Return the name of the item's resource, None for a topic id without a topic."""
        if isinstance(item, str):
            return item
        topic_id: UUID | None = getattr(item, "topic_id", None)
        if topic_id is not None and topic_id.int:
            # Handlers use the id and ignore a name in the same item.
            return self._metadata_cache.topic_name(topic_id)
        return next((name for field in NAME_FIELDS if (name := getattr(item, field, None))), "")


@cache
def _checks_of_version(api: Api, key: ApiKey, version: int) -> tuple[AclCheck, ...]:
    """Return the checks of the fields that the version has. An empty name in such a field is checked like another."""
    fields = {field.name: field.versions for field in fields_of(API_MESSAGES[key].request)}
    return tuple(check for check in api.acl_checks if not check.field or version in fields[check.field])


def add_denied_items(context: RequestContext, response: Any) -> None:
    """Add the denied items to the response to the other items."""
    for denied in context.denied:
        for paths in ITEM_PATHS[ApiKey(context.api_key)]:
            if paths.request[0] == denied.field:
                add_error_items(response, paths, denied.request, context.api_version, denied.error)


def _respond(context: RequestContext, response: Any, respond: Respond, _: None, error: BaseException | None) -> None:
    """Respond after the lane has added the denied items."""
    if error is not None:
        context.finish(None, error)
    else:
        respond(context, response)


def _with_items(request: Any, field: str, items: list[Any]) -> Any:
    """Return a copy of the request with only these items in the list."""
    changed = copy.copy(request)
    setattr(changed, field, items)
    return changed


def _resource_type(check: AclCheck, request: Any, item: Any) -> AclResourceType | None:
    """Return the type of the item's resource, None for an unknown number of a type."""
    if check.resource_type is not None:
        return check.resource_type
    if isinstance(item, str):
        return COORDINATOR_KEY_TYPES.get(request.key_type)
    return CONFIG_RESOURCE_TYPES.get(item.resource_type)
