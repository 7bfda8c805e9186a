"""What clients may learn of SCRAM credentials and change about them (KIP-554)."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ..metadata.metadata_store import STORE_FAILED, StoreError
from ..metadata.znodes import UnreadableNodeError
from ..runtime.turns import Pace

if TYPE_CHECKING:
    from ...protocol.sasl_server import ScramCredential
    from ..metadata.scram_store import ScramStore


class ScramCredentials:
    """The credentials of all users; nobody is told a secret. Loop-thread only."""

    def __init__(self, store: ScramStore, changing: asyncio.Lock) -> None:
        """`changing` is held by whoever changes settings, among which the credentials are."""
        self._store = store
        self._changing = changing

    async def described(self, wanted: Container[str]) -> dict[str, dict[str, int]]:
        """The iterations by mechanism of those of these users, or of all if none are named, that have credentials.

        Raises StoreError.
        """
        found, pace = {}, Pace()
        for user, node in (await self._store.users()).items():
            await pace.step()
            if wanted and user not in wanted:
                continue
            try:
                iterations = await self._store.iterations(node)
            except UnreadableNodeError:  # told of when quotas were read
                continue
            if iterations:
                found[user] = iterations
        return found

    async def alter(self, user: str, changes: Mapping[str, ScramCredential | None]) -> None:
        """Set a user's credentials by mechanism, all or none; None removes one.

        Raises KafkaError RESOURCE_NOT_FOUND where there is none to remove, and KAFKA_STORAGE_ERROR.
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
