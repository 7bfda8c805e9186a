"""Descriptions and alterations of SCRAM credentials (KIP-554)."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ..metadata.metadata_store import STORE_FAILED, StoreError
from ..metadata.znodes import UnreadableNodeError
from ..runtime.loop_sharing import CountBudget

if TYPE_CHECKING:
    from ...protocol.sasl_server import ScramCredential
    from ..metadata.scram_store import ScramStore


class ScramCredentials:
    """The credentials of all users, without their secrets. Used on the loop's thread only."""

    def __init__(self, store: ScramStore, changing: asyncio.Lock) -> None:
        """`changing` is the lock of all changes of settings, which share the users' nodes."""
        self._store = store
        self._changing = changing

    async def described(self, wanted: Container[str]) -> dict[str, dict[str, int]]:
        """Return the iterations by mechanism of the wanted users with credentials, or of all users if none are wanted.

        Raises StoreError.
        """
        found, budget = {}, CountBudget()
        for user, node in (await self._store.users()).items():
            await budget.step()
            if wanted and user not in wanted:
                continue
            try:
                iterations = await self._store.iterations(node)
            except UnreadableNodeError:  # logged when quotas were read
                continue
            if iterations:
                found[user] = iterations
        return found

    async def alter(self, user: str, changes: Mapping[str, ScramCredential | None]) -> None:
        """Set the credentials of a user by mechanism, all of them or none; None deletes a credential.

        Raises KafkaError RESOURCE_NOT_FOUND for the deletion of a missing credential, KAFKA_STORAGE_ERROR.
        """
        async with self._changing:
            try:
                present = await self._store.mechanisms(user)
                if any(credential is None and name not in present for name, credential in changes.items()):
                    text = "Attempt to delete a user credential that does not exist"
                    raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, text)
                await self._store.change(user, changes)
            except StoreError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, STORE_FAILED) from error
            except UnreadableNodeError as error:
                raise error.as_answer() from error
