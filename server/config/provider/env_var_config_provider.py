"""Kafka's EnvVarConfigProvider: values from environment variables."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from ..keys.validators import ConfigError
from .config_provider import ConfigProvider

ALLOWLIST_PATTERN = "allowlist.pattern"


class EnvVarConfigProvider(ConfigProvider):
    """Values of environment variables: `${env:<name>}`.

    The parameter `allowlist.pattern` has to match the whole name of a variable.
    """

    def __init__(self, parameters: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Raises ConfigError for a pattern that Java or Python would not accept, or not interpret equally."""
        from ...patterns.java_regex import is_java_regex, is_read_alike

        pattern = parameters.get(ALLOWLIST_PATTERN, ".*")
        if not is_java_regex(pattern) or not is_read_alike(pattern):
            raise ConfigError(ALLOWLIST_PATTERN, pattern, "Invalid regular expression")
        self._pattern = re.compile(pattern)
        self._environment = environment

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        if path:
            sentence = f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'"
            raise ConfigError("config.providers", path, "", sentence=sentence)
        environment = self._environment
        return {key: environment[key] for key in keys if key in environment and self._pattern.fullmatch(key)}
