"""Rules between keys, checked after every single value is valid (KafkaConfig.validateValues)."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import cast

from .keys.catalogue import BROKER_KEYS
from .keys.definition import ConfigValue
from .keys.validators import ConfigError
from .message_format import INTER_BROKER_PROTOCOL, heeds_message_format, needed_protocol

WAYS_IN = ("max.connections", "max.connection.creation.rate")
"""Limits that reject all clients at 0, of the whole broker or of a listener."""
_MEBIBYTE = 1 << 20
_INT_MAX = 2**31 - 1

# Kafka has no minimum for the last three, but such values make it unusable.
_MINIMA = (
    ("log.roll.ms", 1),
    ("log.roll.jitter.ms", 0),
    ("log.flush.interval.ms", 0),
    ("log.flush.scheduler.interval.ms", 0),
    ("log.retention.bytes", -1),
)
# Kafka: GroupCoordinatorConfig and ShareGroupConfig.
_AT_MOST = (
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    ("group.streams.num.warmup.replicas", "group.streams.max.warmup.replicas"),
    ("group.streams.min.task.offset.interval.ms", "group.streams.task.offset.interval.ms"),
    ("group.share.max.size", "group.share.max.share.sessions"),
)


ALL_LOG_DIRS = "*"
"""The value of `cordoned.log.dirs` for all log directories."""


def check_together(values: Mapping[str, ConfigValue]) -> None:
    """Raise ConfigError, naming one key, if values contradict each other. `values` has every broker key."""
    for check in (_check_logs, _check_cleaner, _check_replication, _check_connections, _check_groups):
        check(values)


def _number(values: Mapping[str, ConfigValue], name: str) -> int:
    return cast("int", values[name])


def _refuse_unless(accepted: bool, values: Mapping[str, ConfigValue], name: str, reason: str) -> None:
    if not accepted:
        raise ConfigError(name, values[name], reason)


def _check_logs(values: Mapping[str, ConfigValue]) -> None:
    for name, minimum in _MINIMA:
        enough = values[name] is None or _number(values, name) >= minimum
        _refuse_unless(enough, values, name, f"Value must be at least {minimum}")
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        value = values[name]
        allowed = value is None or value == -1 or _number(values, name) >= 1
        _refuse_unless(allowed, values, name, "Value must be -1 for unlimited, or at least 1")
    _check_message_format(values)
    _check_cordoned_log_dirs(values)


def _check_cordoned_log_dirs(values: Mapping[str, ConfigValue]) -> None:
    """Kafka: KafkaConfig.validateValues, with its messages."""
    name = "cordoned.log.dirs"
    cordoned = cast("tuple[str, ...]", values[name] or ())
    log_dirs = cast("tuple[str, ...]", values["log.dirs"] or values["log.dir"])
    missing = [one for one in cordoned if one not in log_dirs and one != ALL_LOG_DIRS]
    if ALL_LOG_DIRS in cordoned and len(cordoned) > 1:
        sentence = f"requirement failed: When {name} is set to *, it must not contain other values"
        raise ConfigError(name, values[name], "", sentence=sentence)
    if missing:
        sentence = f"requirement failed: All entries in {name} must be present in log.dirs or log.dir. "
        raise ConfigError(name, values[name], "", sentence=f"{sentence}Missing entries : {', '.join(missing)}")


def _check_message_format(values: Mapping[str, ConfigValue]) -> None:
    name, protocol = "log.message.format.version", str(values[INTER_BROKER_PROTOCOL])
    if heeds_message_format(protocol):
        needed = needed_protocol(protocol, str(values[name]))
        reason = f"It can only be used when {INTER_BROKER_PROTOCOL} is set to version {needed} or higher"
        _refuse_unless(needed is None, values, name, reason)


def _check_cleaner(values: Mapping[str, ConfigValue]) -> None:
    if not values["log.cleaner.enable"]:
        return
    name = "log.cleaner.dedupe.buffer.size"
    per_thread = _number(values, name) // max(_number(values, "log.cleaner.threads"), 1)
    _refuse_unless(per_thread >= _MEBIBYTE, values, name, "Value must be at least 1 MiB for each cleaner thread")


def _check_replication(values: Mapping[str, ConfigValue]) -> None:
    name = "replica.fetch.wait.max.ms"
    for bound in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        within = _number(values, name) <= _number(values, bound)
        _refuse_unless(within, values, name, f"Value must be at most {bound} = {values[bound]}")


def _check_connections(values: Mapping[str, ConfigValue]) -> None:
    overrides = parse_overrides(str(values["max.connections.per.ip.overrides"]))
    none_at_all = values["max.connections.per.ip"] == 0 and not any(overrides.values())
    reason = "Value can be 0 only if max.connections.per.ip.overrides lets some address in"
    _refuse_unless(not none_at_all, values, "max.connections.per.ip", reason)
    name = "queued.max.request.bytes"
    queued = _number(values, name)
    enough = queued <= 0 or queued >= _number(values, "socket.request.max.bytes")
    _refuse_unless(enough, values, name, "Value must be at least socket.request.max.bytes, or at most 0 for no limit")


def _check_groups(values: Mapping[str, ConfigValue]) -> None:
    for prefix in ("group.consumer.", "group.share.", "group.streams."):
        for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            _check_between(values, prefix, what)
        heartbeat, session = f"{prefix}heartbeat.interval.ms", f"{prefix}session.timeout.ms"
        below = _number(values, heartbeat) < _number(values, session)
        _refuse_unless(below, values, heartbeat, f"Value must be less than {session} = {values[session]}")
    for what in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"):
        _check_between(values, "group.share.", what)
    for low, high in _AT_MOST:
        within = _number(values, low) <= _number(values, high)
        _refuse_unless(within, values, low, f"Value must be at most {high} = {values[high]}")
    name = "group.share.assignors"
    one = len(cast("tuple[str, ...]", values[name])) == 1
    _refuse_unless(one, values, name, "Value must contain exactly one assignor")


def _check_between(values: Mapping[str, ConfigValue], prefix: str, what: str) -> None:
    name, low, high = f"{prefix}{what}", f"{prefix}min.{what}", f"{prefix}max.{what}"
    within = _number(values, low) <= _number(values, name) <= _number(values, high)
    reason = f"Value must be between {low} = {values[low]} and {high} = {values[high]}"
    _refuse_unless(within, values, name, reason)


def parse_overrides(text: str) -> dict[str, int]:
    """Address or host name to its number of connections, of `max.connections.per.ip.overrides`. Raises ConfigError."""
    name = "max.connections.per.ip.overrides"
    limits = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        address, separator, count = entry.rpartition(":")
        if not separator or not address or not count.strip().isdigit() or int(count) > _INT_MAX:
            raise ConfigError(name, text, f"{entry} must be address:count")
        limits[_address(address.strip())] = int(count)
    return limits


def is_zero(key: str, raw: str | None) -> bool:
    """Return whether a text is a number equal to 0. Other code rejects text that is not a number."""
    try:
        return raw is not None and BROKER_KEYS[key].parse(raw) == 0
    except ConfigError:
        return False


def _address(text: str) -> str:
    """Return an address as connections report it, and a host name unchanged."""
    try:
        return str(ip_address(text.removeprefix("[").removesuffix("]")))
    except ValueError:
        return text
