"""Settings of topics, brokers, groups and clients in the metadata tree, and the notifications of their changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from urllib.parse import quote, unquote

from ...common.room_logger import room_logger
from ..runtime.loop_sharing import CountBudget
from . import znodes
from .change_notifications import ChangeNotifications
from .metadata_store import (
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
)
from .znodes import UnreadableNodeError

logger = room_logger("metadata")


class ConfigStore:
    """The settings that were changed at run time, in Kafka's layout (see `znodes`).

    Methods that read or change one entity's settings raise UnreadableNodeError for a node with other content: nothing
    overwrites it. Methods that read all entities of a type log it and treat it as empty, as in Kafka.
    """

    def __init__(self, store: MetadataStore, *, now_ms: Callable[[], int]) -> None:
        self._store = store
        self.notifications = ChangeNotifications(store, znodes.CONFIG_CHANGE_PREFIX, now_ms=now_ms)

    async def topic_config(self, topic: str) -> dict[str, str]:
        """Return a topic's own settings; empty if it has none."""
        return await self._config("topics", topic)

    async def topic_configs(self) -> dict[str, dict[str, str]]:
        """Return the settings of all topics that have any."""
        configs = {}
        for name in await self._names("topics"):
            if config := await self._config_or_none("topics", name):
                configs[name] = config
        return configs

    async def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        """Replace all of a topic's settings and notify the brokers."""
        await self._set_config("topics", topic, config)

    async def named_config(self, entity_type: str, name: str) -> dict[str, str]:
        """Return the own settings of one of the `groups` or `client-metrics` subscriptions; empty if it has none."""
        return await self._config(entity_type, node_name(name))

    async def named_configs(self, entity_type: str) -> dict[str, dict[str, str]]:
        """Return the settings of all `groups`, or of all `client-metrics` subscriptions."""
        configs = {}
        for name in await self._names(entity_type):
            if config := await self._config_or_none(entity_type, name):
                configs[unquote(name)] = config
        return configs

    async def names(self, entity_type: str) -> list[str]:
        """Return the nodes of a type's entities, without those below them.

        Raises NoNodeError where nothing is prepared.
        """
        return await self._store.children(znodes.configs_path(entity_type))

    async def entity_names(self, entity_type: str) -> list[str]:
        """Return the entities of a type that have a node, as paths below it; for users also the clients of each."""
        found = []
        for name in await self._names(entity_type):
            found.append(name)
            if entity_type == "users":
                found += [f"{name}/clients/{client}" for client in await self._clients_of(name)]
        return found

    async def _names(self, entity_type: str) -> list[str]:
        """Return the names of the nodes of a type's entities."""
        return await self._children(znodes.configs_path(entity_type))

    async def _clients_of(self, user: str) -> list[str]:
        """Return the names of the nodes of a user's clients."""
        return await self._children(znodes.config_path("users", f"{user}/clients"))

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._store.children(path)
        except NoNodeError:
            return []

    async def set_named_config(self, entity_type: str, name: str, config: Mapping[str, str]) -> None:
        """Replace all settings of a group or a client metrics subscription and notify the brokers.

        Without settings its node is deleted.
        """
        parent, node = znodes.configs_path(entity_type), node_name(name)
        if config:
            if await self._store.exists(parent) is None:
                await self._store.create(parent)
            await self._set_config(entity_type, node, config)
        elif await self._store.exists(path := znodes.config_path(entity_type, node)) is not None:
            await self._config(entity_type, node)
            await self._write_config(Delete(path), entity_type, node)

    async def client_config(self, entity_type: str, name: str) -> dict[str, str]:
        """Return the settings of one of the `users`, `clients` or `ips`: its quotas, and a user's credentials.

        `name` is the path of its node below the entity type.
        """
        return await self._config(entity_type, name)

    async def client_configs(self) -> AsyncIterator[tuple[str, str, dict[str, str]]]:
        """Yield the type, the path below it and the settings of all `users`, clients of users, `clients` and `ips`.

        The settings may be empty. The loop serves other requests in between. Raises StoreError.
        """
        budget = CountBudget()
        for entity_type in ("users", "clients", "ips"):
            for name in await self._names(entity_type):
                yield entity_type, name, await self._config_or_none(entity_type, name)
                await budget.step()
                if entity_type == "users":
                    for client in await self._clients_of(name):
                        path = f"{name}/clients/{client}"
                        yield "users", path, await self._config_or_none("users", path)
                        await budget.step()

    async def set_client_config(self, entity_type: str, name: str, config: Mapping[str, str]) -> None:
        """Replace all settings of one of the `users`, `clients` or `ips` and notify the brokers."""
        parent, _, rest = name.partition("/")
        while rest:
            path = znodes.config_path(entity_type, parent)
            if await self._store.exists(path) is None:
                await self._store.create(path)
            further, _, rest = rest.partition("/")
            parent = f"{parent}/{further}"
        await self._set_config(entity_type, name, config)

    async def broker_config(self, broker_id: int | None) -> dict[str, str]:
        """Return a broker's dynamic settings; None means the cluster-wide ones."""
        return await self._config("brokers", _broker_entity(broker_id))

    async def readable_broker_config(self, broker_id: int | None) -> dict[str, str]:
        """Return the same, empty if the node cannot be read."""
        return await self._config_or_none("brokers", _broker_entity(broker_id))

    async def set_broker_config(self, broker_id: int | None, config: Mapping[str, str]) -> None:
        """Replace all dynamic settings of a broker (None: the cluster-wide ones) and notify the brokers."""
        await self._set_config("brokers", _broker_entity(broker_id), config)

    async def _config(self, entity_type: str, name: str) -> dict[str, str]:
        """Return the settings of an entity by the name of its node."""
        try:
            data, _ = await self._store.get(znodes.config_path(entity_type, name))
        except NoNodeError:
            return {}
        return stored_config(znodes.config_path(entity_type, name), data)

    async def _config_or_none(self, entity_type: str, name: str) -> dict[str, str]:
        try:
            return await self._config(entity_type, name)
        except UnreadableNodeError as error:
            logger.error("settings cannot be read, using none of them: %s", error)
            return {}

    async def _set_config(self, entity_type: str, name: str, config: Mapping[str, str]) -> None:
        await self._config(entity_type, name)  # an unreadable node is not overwritten
        while True:
            try:
                await self._write_config(await config_write(self._store, entity_type, name, config), entity_type, name)
            except (NodeExistsError, NoNodeError) as error:
                if error.path != znodes.config_path(entity_type, name) or not await self._has_parent(error.path):
                    raise
            else:
                return

    async def _has_parent(self, path: str) -> bool:
        """Whether it was the node itself that another broker made or removed in between."""
        return await self._store.exists(path[: path.rindex("/")]) is not None

    async def _write_config(self, write: Operation, entity_type: str, name: str) -> None:
        notification = self.notifications.notification(znodes.encode_config_change(entity_type, name))
        await self._store.multi([write, notification])
        await self.notifications.purge()


async def config_write(store: MetadataStore, entity_type: str, name: str, config: Mapping[str, str]) -> Operation:
    """Return the operation that gives an entity these settings, to be written together with others."""
    path = znodes.config_path(entity_type, name)
    data = znodes.encode_config(config)
    return Create(path, data) if await store.exists(path) is None else SetData(path, data)


def stored_config(path: str, data: bytes) -> dict[str, str]:
    """Return the settings in a node; a node that exists only as a parent has none. Raises UnreadableNodeError."""
    try:
        return znodes.decode_config(data) if data else {}
    except UnreadableNodeError as error:
        raise UnreadableNodeError(f"{path}: {error}") from error


def node_name(name: str) -> str:
    """Return the name of the node of an entity: it must not contain slashes or consist of dots."""
    quoted = quote(name, safe="")
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


def _broker_entity(broker_id: int | None) -> str:
    return znodes.DEFAULT_ENTITY if broker_id is None else str(broker_id)
