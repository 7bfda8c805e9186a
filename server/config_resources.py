"""What can have a configuration: topics, brokers, loggers, client metrics, groups (Kafka: ConfigResource)."""

from __future__ import annotations

from enum import IntEnum

from ..protocol.errors import ErrorCode, KafkaError


class ResourceType(IntEnum):
    """Kind of a resource, by its number in requests."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def of(cls, number: int) -> ResourceType:
        """The kind with this number, UNKNOWN if there is none."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


class ConfigSource(IntEnum):
    """Where a value comes from, by its number in DescribeConfigs v1+ (KIP-226)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


LONGEST_NUMBER = 64
"""Characters of a broker id: Java ignores leading zeros, and Python refuses to parse thousands of them."""


def parse_broker_id(name: str) -> int | None:
    """Number that a resource's name is, None if it is no whole number of 32 bits."""
    digits = name[1:] if name[:1] in ("+", "-") else name
    if len(name) > LONGEST_NUMBER or not (digits.isascii() and digits.isdigit()):
        return None
    number = int(name)
    return number if -(2**31) <= number < 2**31 else None


def check_broker_name(name: str, broker_id: int) -> None:
    """Raise KafkaError INVALID_REQUEST unless `name` is the id of this broker: each changes only itself."""
    number = parse_broker_id(name)
    if number is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if number != broker_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker_id}, but received {name}")
