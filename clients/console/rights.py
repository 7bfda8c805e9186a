"""Who may do what, how much of it, and what is half done: ACLs, quotas, transactions."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

from ...protocol.errors import KafkaError
from .cluster import WatchedCluster

T = TypeVar("T")


class RightsPages:
    """Each part as it is, or the reason why it cannot be told: not every cluster has all, and not everybody may ask."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster

    async def everything(self) -> dict[str, Any]:
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


async def _or_why(asked: Awaitable[T]) -> tuple[T | None, str | None]:
    try:
        return await asked, None
    except KafkaError as error:
        return None, str(error)
