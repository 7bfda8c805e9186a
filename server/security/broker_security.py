"""What a broker has to tell friends from strangers, put together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from ...protocol.room_logger import room_logger
from ...protocol.sasl_server import new_credentials
from ..metadata.acl_store import AclStore
from ..metadata.scram_store import ScramStore
from .acl_authorizer import AclAuthorizer
from .configured_authorizer import configured_authorizer
from .door import door_of

if TYPE_CHECKING:
    import asyncio
    import ssl

    from ..config.broker_config import BrokerConfig
    from ..metadata.config_store import ConfigStore
    from ..metadata.metadata_store import MetadataStore
    from ..runtime.ports import Ports
    from .authorizer import Authorizer
    from .tls_listener import TlsListener

logger = room_logger("security")


LANE, CERTIFICATES = "passwords", "certificates"
SALT_BYTES = 20


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
        self._store = store
        self._ports = ports
        self._scram_store = ScramStore(config_store)
        self.doors = {one.name: door_of(one, config, self._scram_store, ports.token_bytes) for one in config.listeners}
        """By listener."""

    @property
    def acls(self) -> AclAuthorizer | None:
        """Who decides, if it is by rules that clients can change."""
        return self.authorizer if isinstance(self.authorizer, AclAuthorizer) else None

    async def start(self) -> None:
        """Read what is kept in the metadata store. Raises StoreError, ValueError."""
        if self.acls is not None:
            await self.acls.start()
            self._store.on_state_change(self.acls.session_changed)

    def reload(self) -> None:
        """Read keys and certificates again, for connections that come from now on; what is wrong is logged."""
        for name, door in self.doors.items():
            if door.tls is not None:
                self._ports.work.submit(CERTIFICATES, door.tls.build, partial(self._was_read, name, door.tls))

    def _was_read(
        self, listener: str, tls: TlsListener, context: ssl.SSLContext | None, error: BaseException | None
    ) -> None:
        if context is None:
            logger.error("certificates of listener %s stay as they are: %s", listener, error)
        else:
            tls.context = context
            logger.info("certificates of listener %s were read", listener)

    async def set_passwords(self, passwords: Mapping[str, str]) -> None:
        """Let these users in by SCRAM; their hashes are made beside the loop. Raises StoreError."""
        for user, password in passwords.items():
            salt = self._ports.token_bytes(SALT_BYTES)
            job = partial(new_credentials, password, salt)
            await self._scram_store.change(user, await self._ports.work.run(LANE, job))

    async def close(self) -> None:
        """Hear of no further changes."""
        if self.acls is not None:
            await self.acls.close()
