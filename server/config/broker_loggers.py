"""Levels of the broker's loggers, described and altered by clients under log4j's names (KIP-412).

The names of Kafka's loggers are aliases: `kafka.controller.KafkaController` sets the level of `barnabas.controller`.
Descriptions have only the names of Barnabas's own loggers.

Loggers belong to the process: brokers in one interpreter share them, and a restart resets the levels.
"""

from __future__ import annotations

import logging
from types import MappingProxyType

from ...protocol.errors import ErrorCode, KafkaError

ROOT = "root"
_PACKAGE = "barnabas"
_TRACE = 5
_LEVELS = MappingProxyType(
    {
        "FATAL": logging.CRITICAL,
        "ERROR": logging.ERROR,
        "WARN": logging.WARNING,
        "INFO": logging.INFO,
        "DEBUG": logging.DEBUG,
        "TRACE": _TRACE,
    }
)
# Prefix of the names of Kafka's loggers -> logger of Barnabas. The longest prefix of a name applies.
_ALIASES = MappingProxyType(
    {
        "kafka": "barnabas",
        "kafka.authorizer": "barnabas.authorizer",
        "kafka.cluster": "barnabas.replication",
        "kafka.controller": "barnabas.controller",
        "kafka.coordinator.group": "barnabas.groups",
        "kafka.coordinator.transaction": "barnabas.transactions",
        "kafka.log": "barnabas.storage",
        "kafka.log.LogCleaner": "barnabas.cleaner",
        "kafka.network": "barnabas.network",
        "kafka.network.RequestChannel$": "barnabas.apis",
        "kafka.request.logger": "barnabas.apis",
        "kafka.server": "barnabas.broker",
        "kafka.server.ClientQuotaManager": "barnabas.quotas",
        "kafka.server.DynamicBrokerConfig": "barnabas.config",
        "kafka.server.KafkaApis": "barnabas.apis",
        "kafka.server.ReplicaAlterLogDirsThread": "barnabas.replication",
        "kafka.server.ReplicaFetcherManager": "barnabas.replication",
        "kafka.server.ReplicaFetcherThread": "barnabas.replication",
        "kafka.server.ReplicaManager": "barnabas.replication",
        "kafka.server.metadata": "barnabas.metadata",
        "kafka.server.share": "barnabas.share",
        "kafka.zk": "barnabas.zookeeper",
        "kafka.zookeeper": "barnabas.zookeeper",
        "org.apache.kafka": "barnabas",
        "org.apache.kafka.clients": "barnabas.clients",
        "org.apache.kafka.common.network": "barnabas.network",
        "org.apache.kafka.common.security": "barnabas.security",
        "org.apache.kafka.controller": "barnabas.controller",
        "org.apache.kafka.coordinator.group": "barnabas.groups",
        "org.apache.kafka.coordinator.share": "barnabas.share",
        "org.apache.kafka.coordinator.transaction": "barnabas.transactions",
        "org.apache.kafka.metadata": "barnabas.metadata",
        "org.apache.kafka.metadata.authorizer": "barnabas.authorizer",
        "org.apache.kafka.server.config": "barnabas.config",
        "org.apache.kafka.server.quota": "barnabas.quotas",
        "org.apache.kafka.server.share": "barnabas.share",
        "org.apache.kafka.storage": "barnabas.storage",
        "org.apache.kafka.storage.internals.log.Cleaner": "barnabas.cleaner",
        "org.apache.kafka.storage.internals.log.LogCleaner": "barnabas.cleaner",
        "org.apache.kafka.storage.internals.log.LogCleanerManager": "barnabas.cleaner",
        "org.apache.zookeeper": "barnabas.zookeeper",
        "state.change.logger": "barnabas.controller",
    }
)
_MAX_PARTS = 20
"""Names with more parts are not searched for aliases; the class names of Kafka have fewer."""


def logger_levels() -> dict[str, str]:
    """Return the effective levels of the root logger and of every logger of Barnabas, by name."""
    names = sorted(name for name in logging.root.manager.loggerDict if name.split(".")[0] == _PACKAGE)
    levels = {ROOT: _level_name(logging.root.getEffectiveLevel())}
    levels.update({name: _level_name(logging.getLogger(name).getEffectiveLevel()) for name in names})
    return levels


def _resolve(name: str) -> str:
    """Return the logger that Kafka's name is an alias for; any other name as it is."""
    parts = name.split(".", _MAX_PARTS)
    for count in range(len(parts), 0, -1):
        alias = _ALIASES.get(".".join(parts[:count]))
        if alias is not None:
            return alias
    return name


def check_level(name: str, level: str | None) -> None:
    """Raise KafkaError unless a logger has this name and, if `level` is given, a level has that name."""
    if _resolve(name) == name and name not in logger_levels():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if level is not None and level not in _LEVELS:
        reason = f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{reason}Valid log levels are {', '.join(_LEVELS)}")


def set_level(name: str, level: str | None) -> None:
    """Set a checked level; None takes it back, so that the logger follows its parent again."""
    name = _resolve(name)
    if name != ROOT:
        logging.getLogger(name).setLevel(logging.NOTSET if level is None else _LEVELS[level])
    elif level is not None:
        logging.root.setLevel(_LEVELS[level])


def _level_name(level: int) -> str:
    return next((name for name, number in _LEVELS.items() if level >= number), "TRACE")
