"""What a broker has to tell friends from strangers, put together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from ...protocol.room_logger import room_logger
from ...protocol.sasl_server import new_credentials
from ..metadata.acl_store import AclStore
from ..metadata.scram_store import ScramStore
from ..metadata.token_store import TokenStore
from .acl_authorizer import AclAuthorizer
from .configured_authorizer import configured_authorizer
from .delegation_tokens import DelegationTokens
from .door import door_of
from .outgoing import OutgoingSecurity
from .sasl_listener import Knowledge

if TYPE_CHECKING:
    import asyncio

    from ..config.broker_config import BrokerConfig
    from ..config.listeners import ListenerConfig
    from ..metadata.config_store import ConfigStore
    from ..metadata.metadata_store import MetadataStore
    from ..runtime.ports import Ports
    from .authorizer import Authorizer

logger = room_logger("security")


LANE, CERTIFICATES = "passwords", "certificates"
SALT_BYTES = 20


T = TypeVar("T")


class Renewable(Protocol[T]):
    """What is made of settings and files, and may be made anew."""

    def build(self) -> T:
        """As they are now; on any thread."""

    def take(self, built: T) -> None:
        """Use it; on the loop's thread."""


class BrokerSecurity:
    """Built before anybody is let in. Loop-thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        *,
        config_store: ConfigStore,
        authorizer: Authorizer | None = None,
    ) -> None:
        """`authorizer` decides in place of the one that the configuration names. Raises ConfigError."""
        self.authorizer = authorizer or configured_authorizer(config, AclStore(store, now_ms=ports.now_ms), loop)
        self._config = config
        self._ports = ports
        self._scram_store = ScramStore(config_store)
        self.delegation_tokens = DelegationTokens(config, TokenStore(store, now_ms=ports.now_ms), ports)
        known = Knowledge(self._scram_store, self.delegation_tokens, ports, loop.time)
        self.doors = {one.name: door_of(one, config, known) for one in config.listeners}
        """By listener."""
        self._outgoing: list[OutgoingSecurity] = []

    @property
    def acls(self) -> AclAuthorizer | None:
        """Who decides, if it is by rules that clients can change."""
        return self.authorizer if isinstance(self.authorizer, AclAuthorizer) else None

    async def start(self) -> None:
        """Read what is kept in the metadata store. Raises StoreError, ValueError."""
        await self.delegation_tokens.start()
        if self.acls is not None:
            await self.acls.start()

    def outgoing(self, listener: ListenerConfig) -> OutgoingSecurity:
        """How other brokers are reached at their listener of that name. Raises ConfigError."""
        outgoing = OutgoingSecurity(self._config, listener)
        self._outgoing.append(outgoing)
        return outgoing

    def reload(self) -> None:
        """Read keys, certificates and this broker's own password again, for connections that come from now on.

        What is wrong is logged.
        """
        for name, door in self.doors.items():
            if door.tls is not None:
                self._build("certificates of listener", name, door.tls)
        for outgoing in self._outgoing:
            self._build("the way to other brokers by listener", outgoing.listener, outgoing)

    def _build(self, what: str, listener: str, built: Renewable[T]) -> None:
        def was_built(result: T | None, error: BaseException | None) -> None:
            if result is None:
                logger.error("%s %s stays as it was: %s", what, listener, error)
            else:
                built.take(result)
                logger.info("%s %s: all was read again", what, listener)

        self._ports.work.submit(CERTIFICATES, built.build, was_built)

    async def set_passwords(self, passwords: Mapping[str, str]) -> None:
        """Let these users in by SCRAM; their hashes are made beside the loop. Raises StoreError."""
        for user, password in passwords.items():
            salt = self._ports.token_bytes(SALT_BYTES)
            job = partial(new_credentials, password, salt)
            await self._scram_store.change(user, await self._ports.work.run(LANE, job))

    async def close(self) -> None:
        """Hear of no further changes."""
        for door in self.doors.values():
            if door.sasl is not None:
                await door.sasl.close()
        if self.acls is not None:
            await self.acls.close()
