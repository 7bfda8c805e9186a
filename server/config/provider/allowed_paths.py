"""Kafka's AllowedPaths: the files and directories to which a config provider is restricted."""

from __future__ import annotations

from pathlib import Path

from ..keys.validators import ConfigError

ALLOWED_PATHS = "allowed.paths"


class AllowedPaths:
    """The paths of the parameter `allowed.paths`, separated by commas; without it all paths are allowed."""

    def __init__(self, text: str | None) -> None:
        """Raises ConfigError for a path that is relative or does not exist."""
        self._allowed = [_real_path(Path(one)) for one in text.split(",")] if text else None

    def parse_untrusted_path(self, text: str) -> Path | None:
        """Return the path, or None if it is not allowed. Symbolic links are resolved before the comparison."""
        path = Path(text)
        if self._allowed is None:
            return path
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):
            return None
        return real if any(real.is_relative_to(allowed) for allowed in self._allowed) else None


def _real_path(path: Path) -> Path:
    if not path.is_absolute():
        raise ConfigError(ALLOWED_PATHS, path, "", sentence=f"Path {path} is not absolute")
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise ConfigError(ALLOWED_PATHS, path, "", sentence=f"Path {path} does not exist") from None
