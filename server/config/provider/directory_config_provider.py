"""Kafka's DirectoryConfigProvider: values from the files of a directory, such as a mounted Kubernetes secret."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ....common.room_logger import room_logger
from ..keys.validators import ConfigError
from .allowed_paths import ALLOWED_PATHS, AllowedPaths
from .config_provider import ConfigProvider

logger = room_logger("config")


class DirectoryConfigProvider(ConfigProvider):
    """The contents of files, with the name of the file as the key: `${directory:<path>:<file name>}`.

    A value is the whole file in UTF-8, with a newline at its end if the file has one.
    """

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._allowed_paths = AllowedPaths(parameters.get(ALLOWED_PATHS))

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        if not path:
            return {}
        directory = self._allowed_paths.parse_untrusted_path(path)
        if directory is None:
            logger.warning("The path %s is not allowed to be accessed", path)
            return {}
        if not directory.is_dir():
            logger.warning("The path %s is not a directory", path)
            return {}
        values = {}
        for key in keys:
            file = directory / key
            # As in Kafka, a key is the name of a file in the directory itself, not a path.
            if file.parent != directory or file.name != key or not file.is_file():
                continue
            try:
                # Java keeps the ends of lines, which `read_text` would convert.
                values[key] = file.read_bytes().decode()
            except (OSError, UnicodeDecodeError) as error:
                sentence = f"Could not read file {file} for property {key}"
                raise ConfigError("config.providers", path, str(error), sentence=sentence) from error
        return values
