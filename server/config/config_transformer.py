"""Kafka's ConfigTransformer: replaces variables such as `${file:/path:key}` in settings (KIP-297, KIP-421)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from .keys.validators import ConfigError
from .provider.config_provider import ConfigProvider
from .provider.directory_config_provider import DirectoryConfigProvider
from .provider.env_var_config_provider import EnvVarConfigProvider
from .provider.file_config_provider import FileConfigProvider

CONFIG_PROVIDERS = "config.providers"
_PACKAGE = "org.apache.kafka.common.config.provider."
_VARIABLE = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")


class ConfigTransformer:
    """The config providers of one configuration, by their names."""

    def __init__(self, providers: Mapping[str, ConfigProvider]) -> None:
        self._providers = providers

    @property
    def provider_names(self) -> Collection[str]:
        """The names of the providers."""
        return self._providers.keys()

    def only(self, names: Collection[str]) -> ConfigTransformer:
        """Return a transformer with the providers of these names; unknown names are ignored."""
        return ConfigTransformer({name: one for name, one in self._providers.items() if name in names})

    def transform(self, configs: Mapping[str, str]) -> dict[str, str]:
        """Return the settings with the values of variables. Raises ConfigError for a source that cannot be read.

        A variable without a value, or of an unknown provider, remains as it is. Values are not transformed again.
        """
        wanted: dict[tuple[str, str], set[str]] = {}
        for text in configs.values():
            for variable in _VARIABLE.finditer(text):
                wanted.setdefault((variable[1], variable[3] or ""), set()).add(variable[4])
        found = {
            (name, path): self._providers[name].get(path, keys)
            for (name, path), keys in wanted.items()
            if name in self._providers
        }

        def value_of(variable: re.Match[str]) -> str:
            return found.get((variable[1], variable[3] or ""), {}).get(variable[4], variable[0])

        return {key: _VARIABLE.sub(value_of, text) for key, text in configs.items()}


def new_config_transformer(properties: Mapping[str, str], environment: Mapping[str, str]) -> ConfigTransformer:
    """Return the providers in `config.providers`.

    Kafka: AbstractConfig.instantiateConfigProviders. Only Kafka's built-in providers are supported; like Kafka, this
    ignores a name without `config.providers.<name>.class`. Raises ConfigError.
    """
    return ConfigTransformer(
        {
            name: _new_provider(name, properties, environment)
            for name in provider_names(properties)
            if class_key(name) in properties
        }
    )


def provider_names(settings: Mapping[str, str]) -> list[str]:
    """Return the names in `config.providers`."""
    names = settings.get(CONFIG_PROVIDERS)
    return names.split(",") if names else []


def class_key(name: str) -> str:
    """Return the key with the class of a provider."""
    return f"{CONFIG_PROVIDERS}.{name}.class"


def _new_provider(name: str, properties: Mapping[str, str], environment: Mapping[str, str]) -> ConfigProvider:
    key, prefix = class_key(name), f"{CONFIG_PROVIDERS}.{name}.param."
    parameters = {one.removeprefix(prefix): text for one, text in properties.items() if one.startswith(prefix)}
    match properties[key].removeprefix(_PACKAGE):
        case "FileConfigProvider":
            return FileConfigProvider(parameters)
        case "DirectoryConfigProvider":
            return DirectoryConfigProvider(parameters)
        case "EnvVarConfigProvider":
            return EnvVarConfigProvider(parameters, environment)
    reason = "Could not load config provider class or one of its dependencies"
    raise ConfigError(key, properties[key], reason)
