"""A schema registry beside a broker or a cluster, on a thread of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..clients.registry.server import RegistryThread


class RegistryBeside:
    """Of one broker or cluster, if it is wanted."""

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self._thread: RegistryThread | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """Raises RuntimeError if there is none."""
        if self._thread is None:
            raise RuntimeError("schema_registry=True was not said, or it is not running")
        return self._url

    async def start(self, settings: Mapping[str, str]) -> None:
        """With what leads a client in. Raises KafkaError, OSError, and ValueError if the extra is not installed."""
        if not self._is_wanted:
            return
        from ..clients.security import security_of

        try:
            from ..clients.http_server import Listen
            from ..clients.reach import Reach
            from ..clients.registry.server import RegistryThread
        except ModuleNotFoundError as error:
            text = f"a schema registry needs {error.name}: pip install 'barnabas[schema-registry]'"
            raise ValueError(text) from None
        how = {"security": security_of(settings)}
        reach = Reach(settings["bootstrap.servers"], how, how, how)
        self._thread = RegistryThread(reach, Listen("127.0.0.1", 0))
        self._url = (await self._thread.start()).rstrip("/")

    async def stop(self) -> None:
        """Give everything back; stopping twice is fine."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.stop()
