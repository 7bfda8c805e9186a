"""Users that are stored without a broker: `kafka-storage format --add-scram` and `kafka-configs --zookeeper`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from . import znodes
from .cluster_store import ClusterStore
from .config_store import ConfigStore
from .embedded_store import EmbeddedStore
from .metadata_store import NodeExistsError
from .scram_store import ScramStore
from .zookeeper_settings import ZooKeeperSettings

if TYPE_CHECKING:
    import asyncio

    from ...protocol.sasl_server import ScramCredential
    from ..runtime.ports import Work


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


async def change_user_in_zookeeper(
    connect: str,
    user: str,
    changes: Mapping[str, ScramCredential | None],
    *,
    loop: asyncio.AbstractEventLoop,
    work: Work,
    now_ms: Callable[[], int],
) -> None:
    """Set a user's credentials by mechanism, or delete them (None). No broker has to run.

    `connect` is a value of `zookeeper.connect`. Raises StoreError.
    """
    from .zookeeper_store import ZooKeeperStore  # the other function does not need the client

    store = await ZooKeeperStore.open(ZooKeeperSettings(connect), loop=loop, work=work)
    try:
        for path in (one for one in znodes.PERSISTENT_PATHS if one.startswith("/config")):
            try:
                await store.create(path)
            except NodeExistsError:
                continue  # a broker has created it
        await ScramStore(ConfigStore(store, now_ms=now_ms)).change(user, changes)
    finally:
        await store.close()
