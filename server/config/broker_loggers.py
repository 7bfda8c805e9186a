"""Levels of the broker's loggers, seen and set from afar under log4j's names (KIP-412).

Loggers belong to the process: brokers in one interpreter share them, and a restart forgets what was set.
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


def logger_levels() -> dict[str, str]:
    """Level in force of the root logger and of every logger of this package, by name."""
    names = sorted(name for name in logging.root.manager.loggerDict if name.split(".")[0] == _PACKAGE)
    levels = {ROOT: _level_name(logging.root.getEffectiveLevel())}
    levels.update({name: _level_name(logging.getLogger(name).getEffectiveLevel()) for name in names})
    return levels


def check_level(name: str, level: str | None) -> None:
    """Raise KafkaError unless there is a logger of that name and, if one is given, a level of that name."""
    if name not in logger_levels():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if level is not None and level not in _LEVELS:
        reason = f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{reason}Valid log levels are {', '.join(_LEVELS)}")


def set_level(name: str, level: str | None) -> None:
    """Set a checked level; None takes it back, so that the logger follows its parent again."""
    if name != ROOT:
        logging.getLogger(name).setLevel(logging.NOTSET if level is None else _LEVELS[level])
    elif level is not None:
        logging.root.setLevel(_LEVELS[level])


def _level_name(level: int) -> str:
    return next((name for name, number in _LEVELS.items() if level >= number), "TRACE")
