"""The numbers in requests about settings: types of resources, sources of values, operations on a key."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ConfigResourceType(IntEnum):
    """Types of resources with settings (Kafka: ConfigResource.Type)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, value: object) -> ConfigResourceType:
        return cls.UNKNOWN


class ConfigResource(NamedTuple):
    """A resource with settings: a topic by name, or a broker by id as text (empty: all brokers)."""

    type: ConfigResourceType
    name: str


class ConfigSource(IntEnum):
    """Sources of values, by descending precedence; in DescribeConfigs since v1 (KIP-226)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


class ConfigOperation(IntEnum):
    """Operations of IncrementalAlterConfigs (KIP-339); append and subtract are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
