"""Users in the metadata store of a broker that was never started: `kafka-storage format --add-scram`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from .cluster_store import ClusterStore
from .config_store import ConfigStore
from .embedded_store import EmbeddedStore
from .scram_store import ScramStore

if TYPE_CHECKING:
    from ...protocol.sasl_server import ScramCredential


async def store_initial_users(
    path: str,
    cluster_id: str | None,
    users: Iterable[tuple[str, str, ScramCredential]],
    *,
    now_ms: Callable[[], int],
    token_bytes: Callable[[int], bytes],
) -> str:
    """Create the store, or open a store that an interrupted format has left, and set credentials, durably.

    `users` are names, mechanisms and credentials. Returns the cluster id of the store: `cluster_id`, or with None a
    stored or random one. Raises StoreError, and ValueError for a store of another cluster.
    """
    store = EmbeddedStore.open(path, now_ms=now_ms)
    try:
        stored_id = await ClusterStore(store, now_ms=now_ms, token_bytes=token_bytes).prepare(cluster_id)
        if cluster_id not in (None, stored_id):
            raise ValueError(f"{path}: belongs to cluster {stored_id}. Use this id or an empty directory")
        scram_store = ScramStore(ConfigStore(store, now_ms=now_ms))
        for name, mechanism, credential in users:
            await scram_store.change(name, {mechanism: credential})
        return stored_id
    finally:
        await store.close()
