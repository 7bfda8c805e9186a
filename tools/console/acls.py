"""ACLs, quotas and open transactions."""

from __future__ import annotations

import math
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
QUOTA_ENTITIES = ("user", "client-id", "ip")
_OF_FILTERS = frozenset({"any", "match"})
"""Values for filters, which no ACL has."""


class AclPages:
    """Return each part, or the error if it is not available: not every cluster supports all parts, and not every user
    has permission.
    """

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster

    async def everything(self) -> Facts:
        """Convert to JSON."""
        admin = self._cluster.admin
        quotas, no_quotas = await _or_why(admin.describe_quotas())
        acls, no_acls = await _or_why(admin.describe_acls())
        transactions, no_transactions = await _or_why(admin.list_transactions())
        return {
            "quotas": [{"entity": one.entity, "values": one.values} for one in quotas or ()],
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
            "transactions": [one._asdict() for one in transactions or ()],
            "missing": {"quotas": no_quotas, "acls": no_acls, "transactions": no_transactions},
        }

    async def set_quotas(self, body: Mapping[str, Any]) -> Facts:
        """Set quotas of one entity: values by key, None removes a quota. Raises KafkaError, ValueError."""
        entity, values = body.get("entity"), body.get("values")
        if not isinstance(entity, Mapping) or not entity or not set(entity) <= set(QUOTA_ENTITIES):
            raise ValueError("entity: expected user, client-id or ip with a name")
        if not isinstance(values, Mapping) or not values:
            raise ValueError("values: expected quotas with their values")
        whose = {kind: None if name is None else str(name) for kind, name in entity.items()}
        await self._cluster.admin.alter_quotas(whose, {str(key): _amount(key, value) for key, value in values.items()})
        return {"done": True}

    async def add_rule(self, body: Mapping[str, Any]) -> Facts:
        """Create one ACL, in the format of `everything`. Raises KafkaError, ValueError."""
        await self._cluster.admin.create_acls([_rule(body)])
        return {"done": True}

    async def remove_rule(self, body: Mapping[str, Any]) -> Facts:
        """Delete exactly this ACL; return the number of deleted ACLs, since another client may have deleted it
        before.
        """
        (resource_type, name, pattern_type), entry = _rule(body)
        removed = await self._cluster.admin.delete_acls(AclBindingFilter(resource_type, name, pattern_type, *entry))
        return {"removed": len(removed)}


def _rule(body: Mapping[str, Any]) -> AclBinding:
    """Parse one ACL. Raises ValueError."""
    name, principal, host = (str(body.get(key) or "").strip() for key in ("name", "principal", "host"))
    if not (name and principal and host):
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


def _amount(key: object, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{key}: expected a number")
    try:
        amount = float(value)
    except ValueError:
        amount = math.nan
    if not math.isfinite(amount):
        raise ValueError(f"{key}: expected a number, not {value!r}")
    return amount


async def _or_why(asked: Awaitable[T]) -> tuple[T | None, str | None]:
    try:
        return await asked, None
    except KafkaError as error:
        return None, str(error)
