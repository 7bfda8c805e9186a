"""What a broker has to tell friends from strangers, put together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..metadata.acl_store import AclStore
from .acl_authorizer import AclAuthorizer
from .configured_authorizer import configured_authorizer

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig
    from ..metadata.metadata_store import MetadataStore
    from ..runtime.ports import Ports
    from .authorizer import Authorizer


class BrokerSecurity:
    """Built before anybody is let in. Loop-thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        *,
        authorizer: Authorizer | None = None,
    ) -> None:
        """`authorizer` decides in place of the one that the configuration names. Raises ConfigError."""
        self.authorizer = authorizer or configured_authorizer(config, AclStore(store, now_ms=ports.now_ms), loop)
        self._store = store

    @property
    def acls(self) -> AclAuthorizer | None:
        """Who decides, if it is by rules that clients can change."""
        return self.authorizer if isinstance(self.authorizer, AclAuthorizer) else None

    async def start(self) -> None:
        """Read what is kept in the metadata store. Raises StoreError, ValueError."""
        if self.acls is not None:
            await self.acls.start()
            self._store.on_state_change(self.acls.session_changed)

    async def close(self) -> None:
        """Hear of no further changes."""
        if self.acls is not None:
            await self.acls.close()
