"""Kafka's ConfigProvider: a source of values for variables such as `${file:/etc/secrets.properties:password}`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping


class ConfigProvider(ABC):
    """A source of values, created for one configuration with the settings `config.providers.<name>.param.*`."""

    @abstractmethod
    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        """Return the values of these keys at a path, without the missing ones. Raises ConfigError."""
