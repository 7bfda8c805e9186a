"""A request of every API in every version that names something in each place where something may be named."""

from __future__ import annotations

from typing import Any, cast

from barnabas.protocol.acl_bindings import AccessControlEntry, AclBinding, ResourcePattern
from barnabas.protocol.acls import AclPermissionType, AclResourceType
from barnabas.protocol.apis import API_MESSAGES, ApiKey
from barnabas.protocol.schema import Message, fields_of
from barnabas.server.apis.table import SERVED

NAME = "x"
"""Of everything there is."""
NAMES = ("name", "topic", "group_id", "resource_name", "transactional_id", "topic_name")
RESOURCES = (AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER, AclResourceType.TRANSACTIONAL_ID)


def filled(kind: type, version: int, *, depth: int = 0) -> Any:
    """A message that names something in each place of the version, a topic where it says of what type that is."""
    message: Any = kind()
    for field in fields_of(kind):
        if version not in field.versions:
            continue
        is_message = isinstance(field.element, type) and issubclass(field.element, Message)
        if field.is_array and is_message:
            setattr(message, field.name, [filled(cast(type, field.element), version, depth=depth + 1)])
        elif field.is_array and "partition" in field.name:
            setattr(message, field.name, [0])
        elif field.name == "resource_type":
            message.resource_type = 2
        elif depth and field.name in NAMES:
            setattr(message, field.name, NAME)
    return message


def request_of(key: ApiKey, version: int) -> Any:
    """One that touches something of each kind that the version knows."""
    kind = API_MESSAGES[key].request
    request = filled(kind, version)
    fields = {field.name: field for field in fields_of(kind) if version in field.versions}
    for right in SERVED[key].acl_checks:
        field = fields.get(right.field)
        if field is None:
            continue
        if not field.is_array:
            setattr(request, right.field, NAME)
        elif not getattr(request, right.field):
            setattr(request, right.field, [NAME])
    return request


def enough(key: ApiKey) -> set[AclBinding]:
    """Rules that let a user named for the API do what its rights ask for, and nothing else."""
    found = set()
    for right in SERVED[key].acl_checks:
        for kind in RESOURCES if right.resource_type is None else (right.resource_type,):
            name = "kafka-cluster" if kind is AclResourceType.CLUSTER else "*"
            entry = AccessControlEntry(f"User:{key.name}", "*", right.operation, AclPermissionType.ALLOW)
            found.add(AclBinding(ResourcePattern(kind, name), entry))
    return found
