"""Users with SCRAM credentials, quotas or ACLs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...clients.admin import ScramMechanism
from ...clients.admin.users import DEFAULT_ITERATIONS
from ...clients.user_summaries import user_summaries
from .cluster import CachedResult, WatchedCluster
from .row_limit import RowLimit

Facts = dict[str, Any]
MAX_ITERATIONS = 16_384
"""The maximum of Kafka's brokers."""
MAX_PASSWORD_CHARACTERS = 4096


class UserPages:
    """Responses as JSON. All methods raise KafkaError; methods with a body raise ValueError, too."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster
        self._all = CachedResult(lambda: user_summaries(cluster.admin))

    async def listing(self, parameters: Mapping[str, str]) -> Facts:
        """Return users with their credentials, quotas and the number of their ACLs. Raises ValueError, too."""
        limit = RowLimit.parse(parameters)
        found = limit.matching(await self._all.get(), lambda one: one.name)
        return {
            "users": [
                {
                    "name": one.name,
                    "credentials": [(found.mechanism.mechanism_name, found.iterations) for found in one.credentials],
                    "quotas": one.quotas,
                    "acls": one.acls,
                }
                for one in found[: limit.rows]
            ],
            "total": len(found),
        }

    async def set_password(self, body: Mapping[str, Any]) -> Facts:
        """Add a user, or set a new password for one mechanism."""
        name, mechanism, password = _user(body), ScramMechanism.of(str(body.get("mechanism"))), body.get("password")
        if not isinstance(password, str) or not password:
            raise ValueError("password: expected a text")
        if len(password) > MAX_PASSWORD_CHARACTERS:
            raise ValueError(f"password: more than {MAX_PASSWORD_CHARACTERS} characters")
        iterations = int(body.get("iterations") or DEFAULT_ITERATIONS)
        if not DEFAULT_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise ValueError(f"iterations: expected a number from {DEFAULT_ITERATIONS} to {MAX_ITERATIONS}")
        await self._cluster.admin.upsert_user_scram_credential(name, password, mechanism, iterations=iterations)
        self._all.forget()
        return {"done": True}

    async def remove_password(self, body: Mapping[str, Any]) -> Facts:
        """Delete the credential of one mechanism. Quotas and ACLs of the user remain."""
        mechanism = ScramMechanism.of(str(body.get("mechanism")))
        await self._cluster.admin.delete_user_scram_credential(_user(body), mechanism)
        self._all.forget()
        return {"done": True}


def _user(body: Mapping[str, Any]) -> str:
    name = body.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("name: expected the name of a user, without User:")
    return name
