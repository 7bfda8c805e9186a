"""A schema registry next to a broker or a cluster, on its own thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..tools.registry.server import RegistryThread


class RegistryBeside:
    """The registry of one broker or cluster, if requested."""

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self._thread: RegistryThread | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """Return its URL. Raises RuntimeError if there is none."""
        if self._thread is None:
            raise RuntimeError("schema_registry=True is missing, or it is not running")
        return self._url

    async def start(self, settings: Mapping[str, str]) -> None:
        """Start with the settings of a client. Raises KafkaError, OSError, and ValueError if the extra is not
        installed.
        """
        if not self._is_wanted:
            return
        from ..clients.security import security_of

        try:
            from ..tools.connection_settings import ConnectionSettings
            from ..tools.http_server import ListenAddress
            from ..tools.registry.server import RegistryThread
        except ModuleNotFoundError as error:
            text = f"a schema registry requires {error.name}: pip install 'barnabas[schema-registry]'"
            raise ValueError(text) from None
        how = {"security": security_of(settings)}
        connection_settings = ConnectionSettings(settings["bootstrap.servers"], how, how, how)
        self._thread = RegistryThread(connection_settings, ListenAddress("127.0.0.1", 0))
        self._url = (await self._thread.start()).rstrip("/")

    async def stop(self) -> None:
        """Release all resources; a second call has no effect."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.stop()
