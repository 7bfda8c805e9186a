"""SCRAM credentials in the metadata tree: among the settings of users, where Kafka up to 3.9 has them (KIP-84)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from ...protocol.sasl_server import ScramCredential
from .config_store import ConfigStore
from .znodes import DEFAULT_ENTITY, user_node

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
"""The names of credentials among the settings of a user."""


class ScramStore:
    """Reads and writes credentials. Every method may raise StoreError. Loop-thread only."""

    def __init__(self, configs: ConfigStore) -> None:
        self._configs = configs

    async def credential(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return the user's present credential; None if there is none. Raises ValueError."""
        config = await self._configs.client_config("users", user_node(user))
        text = config.get(mechanism)
        return ScramCredential.of_text(text) if text else None

    async def users(self) -> dict[str, str]:
        """Return the nodes of all users with settings, credentials or others, by user name."""
        return {unquote(node): node for node in await self._configs.names("users") if node != DEFAULT_ENTITY}

    async def iterations(self, node: str) -> dict[str, int]:
        """Return the iterations of each credential in a node: `salt=…,stored_key=…,server_key=…,iterations=…`."""
        config = await self._configs.client_config("users", node)
        return {
            mechanism: int(dict(part.split("=", 1) for part in text.split(","))["iterations"])
            for mechanism in MECHANISMS
            if (text := config.get(mechanism))
        }

    async def mechanisms(self, user: str) -> set[str]:
        """Return the settings that a user has, credentials among them."""
        return set(await self._configs.client_config("users", user_node(user)))

    async def change(self, user: str, changes: Mapping[str, ScramCredential | None]) -> None:
        """Set a user's credentials by mechanism, None removes one; the user's other settings are kept."""
        present = await self._configs.client_config("users", user_node(user))
        for mechanism, credential in changes.items():
            if credential is None:
                present.pop(mechanism, None)
            else:
                present[mechanism] = credential.text()
        await self._configs.set_client_config("users", user_node(user), present)
