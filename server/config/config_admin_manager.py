"""Changing the configuration of a resource at a client's request (Kafka: ConfigAdminManager)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar

from ...common.room_logger import room_logger
from ...protocol.config_resources import ConfigOperation, ConfigResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.incremental_alter_configs import AlterableConfig
from ..metadata.metadata_store import StoreFailedError
from ..metadata.topic_names import check_name
from ..metadata.znodes import UnreadableNodeError
from ..runtime.loop_sharing import CountBudget
from .broker_loggers import ROOT, check_level, set_level
from .config_helper import parse_broker_id
from .keys.catalogue import BROKER_KEYS, TOPIC_KEYS
from .keys.definition import ConfigKey, ConfigType
from .named_configs import NAMED_KINDS

if TYPE_CHECKING:
    from .config_repository import ConfigRepository

logger = room_logger("config")

RESOURCES_PER_TURN = 20
"""Resources whose settings are changed, each after a read of all its settings."""


class NamedConfig(Protocol):
    """One key and its value in a request: the messages of AlterConfigs and IncrementalAlterConfigs have one each."""

    name: str
    value: str | None


class Resource(Protocol):
    """One resource in a request."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)
A = TypeVar("A")

MAX_VALUE_BYTES = 32_767
"""The limit for the value of one setting, as in Kafka's ConfigurationControlManager."""
MAX_SETTINGS = 1_000
"""The limit per broker. Brokers accept settings of any name, for plug-ins, and check all of them at each change; Kafka
has 300 keys."""

_NO_LISTS: Mapping[str, ConfigKey] = MappingProxyType({})
"""Kafka extends and cuts the lists of topics and brokers only, though the settings of client metrics are lists too."""


async def alter_each(
    resources: Sequence[R], alter: Callable[[R], Awaitable[None]], answer: Callable[..., A]
) -> list[A]:
    """Alter each resource; a failure, or a resource that is named twice, does not affect the others.

    `answer` makes the response for one resource.
    """
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    answers: list[A] = []
    budget = CountBudget(RESOURCES_PER_TURN)
    for resource in resources:
        named = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            await alter(resource)
        except (KafkaError, StoreFailedError, UnreadableNodeError) as error:
            told = error.as_result() if isinstance(error, KafkaError) else error.as_answer()
            answers.append(answer(**named, error_code=told.code, error_message=told.message))
        else:
            answers.append(answer(**named, error_code=ErrorCode.NONE, error_message=None))
        await budget.step()
    return answers


class ConfigAdminManager:
    """Checks changes against a broker's rules and carries them out; with `validate_only` it stops after the checks."""

    def __init__(self, configs: ConfigRepository, *, validate_only: bool) -> None:
        self._configs = configs
        self._validate_only = validate_only

    async def replace(self, resource: Resource, configs: Sequence[NamedConfig]) -> None:
        """Give a resource these settings and no others (AlterConfigs). Raises KafkaError."""
        _check_keys(configs, [config.name for config in configs if config.value is None])
        settings = {config.name: config.value for config in configs if config.value is not None}
        async with self._configs.dynamic_config.changing:
            match ConfigResourceType(resource.resource_type):
                case kind if kind in NAMED_KINDS:
                    await self._set_named(kind, resource.resource_name, settings)
                case ConfigResourceType.TOPIC:
                    await self._set_topic(resource.resource_name, settings)
                case ConfigResourceType.BROKER:
                    broker_id = self._broker_id(resource.resource_name)
                    stored = await self._configs.config_store.broker_config(broker_id)
                    await self._set_broker(broker_id, settings, stored, names=settings.keys() | stored.keys())
                case _:
                    raise _unknown_type(resource)

    async def edit(self, resource: Resource, operations: Sequence[AlterableConfig]) -> None:
        """Apply operations to a resource's settings (IncrementalAlterConfigs). Raises KafkaError."""
        missing = [
            operation.name
            for operation in operations
            if operation.value is None and operation.config_operation != ConfigOperation.DELETE
        ]
        _check_keys(operations, missing)
        async with self._configs.dynamic_config.changing:
            match ConfigResourceType(resource.resource_type):
                case kind if kind in NAMED_KINDS:
                    name, entity_type = resource.resource_name, NAMED_KINDS[kind].entity_type
                    present = await self._configs.config_store.named_config(entity_type, name)
                    await self._set_named(kind, name, _edited(present, operations, _NO_LISTS))
                case ConfigResourceType.TOPIC:
                    await self._edit_topic(resource.resource_name, operations)
                case ConfigResourceType.BROKER:
                    await self._edit_broker(self._broker_id(resource.resource_name), operations)
                case ConfigResourceType.BROKER_LOGGER:
                    self._edit_loggers(resource.resource_name, operations)
                case _:
                    raise _unknown_type(resource)

    async def _edit_topic(self, topic: str, operations: Sequence[AlterableConfig]) -> None:
        self._check_topic(topic)
        current = await self._configs.config_store.topic_config(topic)
        await self._set_topic(topic, _edited(current, operations, TOPIC_KEYS))

    async def _set_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        self._check_topic(topic)
        _check_size(settings)
        self._configs.dynamic_config.check_topic_config(settings)
        _warn_of_duplicates(settings, TOPIC_KEYS)
        if not self._validate_only:
            await self._configs.config_store.set_topic_config(topic, settings)
            self._configs.dynamic_config.topic_config_changed(topic, settings)

    def _check_topic(self, topic: str) -> None:
        if not topic:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_name(topic)
        if topic not in self._configs.metadata:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")

    async def _set_named(self, resource_type: ConfigResourceType, name: str, settings: Mapping[str, str]) -> None:
        kind = NAMED_KINDS[resource_type]
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, kind.alter_without_name)
        kind.check(self._configs.config, settings)
        _check_size(settings)
        _warn_of_duplicates(settings, kind.keys)
        if not self._validate_only:
            await self._configs.config_store.set_named_config(kind.entity_type, name, settings)
            self._configs.dynamic_config.named_config_changed(resource_type, name, settings)

    def _broker_id(self, name: str) -> int | None:
        if not name:
            return None
        check_broker_name(name, self._configs.broker_id)
        return self._configs.broker_id

    async def _edit_broker(self, broker_id: int | None, operations: Sequence[AlterableConfig]) -> None:
        stored = await self._configs.config_store.broker_config(broker_id)
        current = await self._configs.dynamic_config.passwords.from_persistent(stored)
        # A password that cannot be decoded, as with a wrong secret, must not be lost: its stored text is kept.
        named = {operation.name for operation in operations}
        unread = {name: text for name, text in stored.items() if name not in current and name not in named}
        await self._set_broker(broker_id, _edited(current, operations, BROKER_KEYS), stored, names=named, unread=unread)

    async def _set_broker(
        self,
        broker_id: int | None,
        settings: Mapping[str, str],
        stored: Mapping[str, str],
        *,
        names: Collection[str],
        unread: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Replace the settings `stored` of a broker; passwords in `unread` keep their stored text.

        `names` are the settings that the request is about.
        """
        _check_size(settings)
        per_broker = broker_id is not None
        dynamic_config = self._configs.dynamic_config
        dynamic_config.check_broker_config(settings, per_broker=per_broker)
        await dynamic_config.validate_reconfiguration(settings, names, per_broker=per_broker)
        _warn_of_duplicates(settings, BROKER_KEYS)
        if self._configs.config.is_kraft:
            assert self._validate_only, (
                "only the controller of a KRaft cluster stores settings, passwords in clear text"
            )
            return
        persistent = await dynamic_config.passwords.to_persistent(settings, stored)
        if not self._validate_only:
            await self._configs.config_store.set_broker_config(broker_id, {**persistent, **unread})
            dynamic_config.broker_config_changed(settings, per_broker=per_broker)

    def _edit_loggers(self, name: str, operations: Sequence[AlterableConfig]) -> None:
        check_broker_name(name, self._configs.broker_id)
        for operation in operations:
            kind = _operation(operation)
            if kind not in (ConfigOperation.SET, ConfigOperation.DELETE):
                reason = f"{kind.name} operation is not allowed for the BROKER_LOGGER resource"
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
            if kind is ConfigOperation.DELETE and operation.name == ROOT:
                reason = "Removing the log level of the root logger is not allowed"
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
            check_level(operation.name, None if kind is ConfigOperation.DELETE else operation.value)
        if not self._validate_only:
            for operation in operations:
                set_level(
                    operation.name, operation.value if operation.config_operation == ConfigOperation.SET else None
                )


def check_broker_name(name: str, broker_id: int) -> None:
    """Raise KafkaError INVALID_REQUEST unless `name` is the id of this broker: each changes only itself."""
    number = parse_broker_id(name)
    if number is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if number != broker_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker_id}, but received {name}")


def _check_size(settings: Mapping[str, str]) -> None:
    """Raise KafkaError for more than a resource may have of its own, or for values longer than Kafka's may be."""
    if len(settings) > MAX_SETTINGS:
        reason = f"A resource may have {MAX_SETTINGS} settings of its own."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, reason)
    if any(len(value) > MAX_VALUE_BYTES for value in settings.values()):
        reason = "The configuration value cannot be added because it exceeds the maximum value size of "
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{reason}{MAX_VALUE_BYTES} bytes.")


def _warn_of_duplicates(settings: Mapping[str, str], keys: Mapping[str, ConfigKey]) -> None:
    for name, raw in settings.items():
        if name in keys and (duplicates := keys[name].duplicates(raw)):
            logger.warning("%s: duplicates are removed from the list: %s", name, ", ".join(duplicates))


def _check_keys(configs: Sequence[NamedConfig], without_value: Sequence[str]) -> None:
    if len({config.name for config in configs}) < len(configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if without_value:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(without_value)}")


def _unknown_type(resource: Resource) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _operation(operation: AlterableConfig) -> ConfigOperation:
    try:
        return ConfigOperation(operation.config_operation)
    except ValueError:
        reason = f"Unknown operations type {operation.config_operation}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason) from None


def _edited(
    current: Mapping[str, str],
    operations: Sequence[AlterableConfig],
    keys: Mapping[str, ConfigKey],
) -> dict[str, str]:
    """Settings after the operations. A list that is not set is appended to, or taken from, at its default."""
    settings = dict(current)
    for operation in operations:
        kind, name, value = _operation(operation), operation.name, operation.value or ""
        if kind is ConfigOperation.SET:
            settings[name] = value
        elif kind is ConfigOperation.DELETE:
            settings.pop(name, None)
        else:
            key = keys.get(name)
            if key is None or key.type is not ConfigType.LIST:
                reason = f"Can't {kind.name} to key {name} because its type is not LIST."
                raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
            before = _parts(settings[name]) if name in settings else _parts(key.format(key.default) or "")
            settings[name] = ",".join(_combined(kind, before, _parts(value)))
    return settings


def _parts(text: str) -> list[str]:
    return [stripped for part in text.split(",") if (stripped := part.strip())]


def _combined(kind: ConfigOperation, before: list[str], entries: Sequence[str]) -> list[str]:
    if kind is ConfigOperation.APPEND:
        present = frozenset(before)
        return before + [entry for entry in dict.fromkeys(entries) if entry not in present]
    gone = frozenset(entries)
    return [entry for entry in before if entry not in gone]
