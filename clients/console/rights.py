"""Who may do what, how much of it, and what is half done: ACLs, quotas, transactions."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Mapping
from enum import IntEnum
from typing import Any, TypeVar

from ...protocol.acl_bindings import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
from ...protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from ...protocol.errors import KafkaError
from .cluster import WatchedCluster

T = TypeVar("T")
E = TypeVar("E", bound=IntEnum)
Facts = dict[str, Any]
QUOTA_ENTITIES = ("user", "client-id", "ip")
_OF_FILTERS = frozenset({"any", "match"})
"""Names that select rules, and are in none."""


class RightsPages:
    """Each part as it is, or the reason why it cannot be told: not every cluster has all, and not everybody may ask."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster

    async def everything(self) -> Facts:
        """As JSON takes it."""
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
        """Of one entity: values by key, None for what is no more. Raises KafkaError, ValueError."""
        entity, values = body.get("entity"), body.get("values")
        if not isinstance(entity, Mapping) or not entity or not set(entity) <= set(QUOTA_ENTITIES):
            raise ValueError("entity: user, client-id or ip with a name is expected")
        if not isinstance(values, Mapping) or not values:
            raise ValueError("values: quotas with their values are expected")
        whose = {kind: None if name is None else str(name) for kind, name in entity.items()}
        await self._cluster.admin.alter_quotas(whose, {str(key): _amount(key, value) for key, value in values.items()})
        return {"done": True}

    async def add_rule(self, body: Mapping[str, Any]) -> Facts:
        """One rule, as `everything` tells them. Raises KafkaError, ValueError."""
        await self._cluster.admin.create_acls([_rule(body)])
        return {"done": True}

    async def remove_rule(self, body: Mapping[str, Any]) -> Facts:
        """That rule alone; how many went is told, as somebody else may have been quicker."""
        (resource_type, name, pattern_type), entry = _rule(body)
        removed = await self._cluster.admin.delete_acls(AclBindingFilter(resource_type, name, pattern_type, *entry))
        return {"removed": len(removed)}


def _rule(body: Mapping[str, Any]) -> AclBinding:
    """Raises ValueError."""
    name, principal, host = (str(body.get(key) or "").strip() for key in ("name", "principal", "host"))
    if not (name and principal and host):
        raise ValueError("name, principal and host are expected")
    pattern = ResourcePattern(
        _member(AclResourceType, body, "resource"), name, _member(AclPatternType, body, "pattern")
    )
    operation, permission = _member(AclOperation, body, "operation"), _member(AclPermissionType, body, "permission")
    return AclBinding(pattern, AccessControlEntry(principal, host, operation, permission))


def _member(kind: type[E], body: Mapping[str, Any], field: str) -> E:
    by_name = {one.name.lower(): one for one in kind if one.name.lower() not in _OF_FILTERS}
    found = by_name.get(str(body.get(field)))
    if found is None:
        raise ValueError(f"{field}: one of {', '.join(by_name)} is expected")
    return found


def _amount(key: object, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{key}: a number is expected")
    try:
        amount = float(value)
    except ValueError:
        amount = math.nan
    if not math.isfinite(amount):
        raise ValueError(f"{key}: a number is expected, not {value!r}")
    return amount


async def _or_why(asked: Awaitable[T]) -> tuple[T | None, str | None]:
    try:
        return await asked, None
    except KafkaError as error:
        return None, str(error)
