"""Kafka's FileConfigProvider: values from properties files."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ....common.properties import PropertiesError, parse_properties
from ....common.room_logger import room_logger
from ..keys.validators import ConfigError
from .allowed_paths import ALLOWED_PATHS, AllowedPaths
from .config_provider import ConfigProvider

logger = room_logger("config")


class FileConfigProvider(ConfigProvider):
    """Values of the keys of a properties file: `${file:<path>:<key>}`. The file is read as UTF-8."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._allowed_paths = AllowedPaths(parameters.get(ALLOWED_PATHS))

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        if not path:
            return {}
        file = self._allowed_paths.parse_untrusted_path(path)
        if file is None:
            logger.warning("The path %s is not allowed to be accessed", path)
            return {}
        try:
            if not file.is_file():
                # A client that may alter settings can name any path: a device or a pipe would block the event loop.
                raise OSError("not a regular file")
            properties = parse_properties(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, PropertiesError) as error:
            sentence = f"Could not read properties from file {path}"
            raise ConfigError("config.providers", path, str(error), sentence=sentence) from error
        return {key: properties[key] for key in keys if key in properties}
