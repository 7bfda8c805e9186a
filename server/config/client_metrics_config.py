"""The settings of a client metrics subscription (Kafka: ClientMetricsConfigs, KIP-714)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from ...protocol.errors import ErrorCode, KafkaError
from ..patterns.java_regex import is_java_regex
from .keys.catalogue import CLIENT_METRICS_KEYS
from .keys.validators import ConfigError

if TYPE_CHECKING:
    from .broker_config import BrokerConfig

_LEAST_INTERVAL_MS = 100
_MOST_INTERVAL_MS = 3_600_000
_LONGEST_VALUE = 2**15 - 1
"""In characters: Java's clients and brokers put no more into a string, and longer ones would hold others up."""
_SELECTORS = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def check_client_metrics_config(_: BrokerConfig, settings: Mapping[str, str]) -> None:
    """Raises KafkaError INVALID_REQUEST or INVALID_CONFIG unless a subscription may have these settings."""
    for name, raw in settings.items():
        if name not in CLIENT_METRICS_KEYS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        if len(raw) > _LONGEST_VALUE:
            reason = f"The value of {name} has {len(raw)} characters, {_LONGEST_VALUE} at most are allowed"
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
    try:
        values = {name: CLIENT_METRICS_KEYS[name].parse(raw) for name, raw in settings.items()}
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    interval_ms = cast("int", values.get("interval.ms", _MOST_INTERVAL_MS))
    if not _LEAST_INTERVAL_MS <= interval_ms <= _MOST_INTERVAL_MS:
        reason = f"Invalid value {interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    for pattern in cast("tuple[str, ...]", values.get("match", ())):
        if not _is_client_pattern(pattern):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")


def _is_client_pattern(text: str) -> bool:
    """Whether the text is a selector, `=` and a regular expression. Java drops empty parts at the end of a split."""
    parts = text.rstrip("=").split("=")
    return len(parts) == 2 and parts[0].strip() in _SELECTORS and is_java_regex(parts[1].strip())
