"""ACLs."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from enum import IntEnum
from typing import Any, TypeVar

from ...protocol.acl_bindings import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    ResourcePattern,
)
from ...protocol.acls import (
    AclOperation,
    AclPatternType,
    AclPermissionType,
    AclResourceType,
)
from ...protocol.errors import KafkaError
from .cluster import WatchedCluster

T = TypeVar("T")
E = TypeVar("E", bound=IntEnum)
Facts = dict[str, Any]
_OF_FILTERS = frozenset({"any", "match"})
"""Values for filters, which no ACL has."""


class AclPages:
    """Responses as JSON. All methods raise KafkaError; methods with a body raise ValueError, too."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster

    async def listing(self) -> Facts:
        """Return all ACLs, or in `missing` the reason why there are none."""
        acls, missing = await value_or_reason(self._cluster.admin.describe_acls())
        return {
            "acls": [
                {
                    "resource": one.pattern.resource_type.name.lower(),
                    "name": one.pattern.name,
                    "pattern": one.pattern.pattern_type.name.lower(),
                    "principal": one.entry.principal,
                    "host": one.entry.host,
                    "operation": one.entry.operation.name.lower(),
                    "permission": one.entry.permission.name.lower(),
                }
                for one in acls or ()
            ],
            "missing": missing,
        }

    async def add(self, body: Mapping[str, Any]) -> Facts:
        """Create one ACL, in the format of `listing`."""
        await self._cluster.admin.create_acls([_binding(body)])
        return {"done": True}

    async def remove(self, body: Mapping[str, Any]) -> Facts:
        """Delete exactly this ACL; return the number of deleted ACLs, since another client may have deleted it
        before.
        """
        (resource_type, name, pattern_type), entry = _binding(body)
        removed = await self._cluster.admin.delete_acls(AclBindingFilter(resource_type, name, pattern_type, *entry))
        return {"removed": len(removed)}


def _binding(body: Mapping[str, Any]) -> AclBinding:
    """Parse one ACL. Raises ValueError."""
    # Spaces are kept: an ACL that another client has created for such a name must be deletable.
    name, principal, host = (str(body.get(key) or "") for key in ("name", "principal", "host"))
    if not (name.strip() and principal.strip() and host.strip()):
        raise ValueError("name, principal and host are required")
    pattern = ResourcePattern(
        _member(AclResourceType, body, "resource"), name, _member(AclPatternType, body, "pattern")
    )
    operation, permission = _member(AclOperation, body, "operation"), _member(AclPermissionType, body, "permission")
    return AclBinding(pattern, AccessControlEntry(principal, host, operation, permission))


def _member(kind: type[E], body: Mapping[str, Any], field: str) -> E:
    by_name = {one.name.lower(): one for one in kind if one.name.lower() not in _OF_FILTERS}
    found = by_name.get(str(body.get(field)))
    if found is None:
        raise ValueError(f"{field}: expected one of {', '.join(by_name)}")
    return found


async def value_or_reason(asked: Awaitable[T]) -> tuple[T | None, str | None]:
    """Return the result, or the error: not every cluster supports a part, and not every user has permission."""
    try:
        return await asked, None
    except KafkaError as error:
        return None, str(error)
