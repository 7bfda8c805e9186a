"""Quotas of users, client ids and addresses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .acls import value_or_reason
from .cluster import WatchedCluster

Facts = dict[str, Any]
QUOTA_ENTITIES = ("user", "client-id", "ip")


class QuotaPages:
    """Responses as JSON. All methods raise KafkaError; methods with a body raise ValueError, too."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster

    async def listing(self) -> Facts:
        """Return all quotas, or in `missing` the reason why there are none."""
        quotas, missing = await value_or_reason(self._cluster.admin.describe_quotas())
        return {
            "quotas": [{"entity": one.entity, "values": one.values} for one in quotas or ()],
            "missing": missing,
        }

    async def set(self, body: Mapping[str, Any]) -> Facts:
        """Set quotas of one entity: values by key, None removes a quota."""
        entity, values = body.get("entity"), body.get("values")
        if not isinstance(entity, Mapping) or not entity or not set(entity) <= set(QUOTA_ENTITIES):
            raise ValueError("entity: expected user, client-id or ip with a name")
        if not isinstance(values, Mapping) or not values:
            raise ValueError("values: expected quotas with their values")
        named = {kind: None if name is None else str(name) for kind, name in entity.items()}
        await self._cluster.admin.alter_quotas(named, {str(key): _amount(key, value) for key, value in values.items()})
        return {"done": True}


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
