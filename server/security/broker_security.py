"""The security of a broker: its authorizer, credentials, delegation tokens, and the TLS and SASL of its listeners."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from ...common.jaas import check_jaas
from ...common.room_logger import room_logger
from ...protocol.sasl_server import new_credentials
from ..config.keys.definition import SENSITIVE_MASK
from ..config.keys.validators import ConfigError
from ..metadata.scram_store import ScramStore
from .acl_authorizer import AclAuthorizer
from .authorizer import create_authorizer
from .delegation_token_manager import DelegationTokenManager
from .inter_broker_security import InterBrokerSecurity
from .listener_security import listener_security
from .sasl_listener import CredentialSources, SaslListener
from .tls_listener import TlsListener, handshake_failure, tls_client

if TYPE_CHECKING:
    import asyncio

    from ..config.broker_config import BrokerConfig
    from ..config.listeners import ListenerConfig
    from ..metadata.acl_store import AclStore
    from ..metadata.config_store import ConfigStore
    from ..metadata.token_store import TokenStore
    from ..runtime.ports import Ports
    from .authorizer import Authorizer

logger = room_logger("security")


LANE, CERTIFICATES = "passwords", "certificates"
SALT_BYTES = 20
EXPIRY_WARNING_DAYS = 30
SECONDS_PER_DAY = 86_400


T = TypeVar("T")


class Reconfigurable(Protocol[T]):
    """An object that is built from settings and files, and can be rebuilt (`TlsListener`, `InterBrokerSecurity`)."""

    def build(self) -> T:
        """Build from the current settings and files, on any thread."""

    def take(self, built: T) -> None:
        """Use the result from now on. Called on the loop's thread."""


def _concern(names: Collection[str], listener: str) -> bool:
    """Return whether one of these settings is about TLS or SASL of a listener."""
    prefix = f"listener.name.{listener.lower()}."
    return any(
        name.startswith((f"{prefix}ssl.", "ssl.", "sasl.")) or (name.startswith(prefix) and "sasl." in name)
        for name in names
    )


def _is_inter_broker(config: BrokerConfig, listener: ListenerConfig) -> bool:
    try:
        return config.inter_broker_listener.name == listener.name
    except ConfigError:
        return False


class BrokerSecurity:
    """Built before the listeners accept connections, and used on the loop's thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        *,
        acl_store: AclStore | None,
        token_store: TokenStore,
        config_store: ConfigStore,
        authorizer: Authorizer | None = None,
    ) -> None:
        """`authorizer` replaces the configured authorizer. Raises ConfigError.

        `acl_store` is None in a KRaft cluster, where `AclAuthorizer.replace` sets the ACLs.
        """
        self.authorizer = authorizer or create_authorizer(config, acl_store, loop)
        self._config = config
        self._ports = ports
        self._scram_store = ScramStore(config_store)
        self.delegation_tokens = DelegationTokenManager(config, token_store, ports)
        self._known = CredentialSources(self._scram_store, self.delegation_tokens, ports, loop.time)
        self.listener_security = {one.name: listener_security(one, config, self._known) for one in config.listeners}
        """The security of each listener, by name."""
        self._outgoing: list[InterBrokerSecurity] = []

    @property
    def acls(self) -> AclAuthorizer | None:
        """The authorizer, if clients can change its ACLs."""
        return self.authorizer if isinstance(self.authorizer, AclAuthorizer) else None

    async def start(self) -> None:
        """Read tokens and ACLs from the metadata store. Raises StoreError, ValueError."""
        await self.delegation_tokens.start()
        if self.acls is not None:
            await self.acls.start()

    def outgoing(self, listener: ListenerConfig) -> InterBrokerSecurity:
        """Return the security of connections to this listener of other brokers. Raises ConfigError."""
        outgoing = InterBrokerSecurity(self._config, listener)
        self.add_outgoing(outgoing)
        return outgoing

    def add_outgoing(self, outgoing: InterBrokerSecurity) -> None:
        """Include the security of other connections in `reload`."""
        self._outgoing.append(outgoing)

    async def validate_reconfiguration(self, candidate: BrokerConfig, names: Collection[str]) -> None:
        """Raise ConfigError unless the listeners can be served and the other brokers reached with `candidate`.

        Settings, key stores, trust stores and JAAS strings of the listeners that `names` concern are read as at a
        start, so that a broker never stores settings that prevent its start (Kafka: SslFactory, SaslChannelBuilder).
        """
        for name in names:
            text = candidate.free_value(name)
            if name.endswith("sasl.jaas.config") and text is not None:
                try:
                    check_jaas(text)
                except ValueError as error:
                    raise ConfigError(name, SENSITIVE_MASK, str(error)) from None
        for listener in candidate.listeners:
            if not _concern(names, listener.name):
                continue
            if listener.security_protocol.startswith("SASL_"):
                await SaslListener(candidate, listener.name, self._known).close()
            if any(outgoing.listener == listener.name for outgoing in self._outgoing):
                await self._ports.work.run(CERTIFICATES, partial(InterBrokerSecurity, candidate, listener))
            if listener.security_protocol.endswith("SSL"):
                await self._ports.work.run(CERTIFICATES, partial(self._validate_tls, candidate, listener))

    def _validate_tls(self, candidate: BrokerConfig, listener: ListenerConfig) -> None:
        """Check a change of TLS settings, on a lane: connected brokers have to trust the certificates."""
        server = TlsListener(candidate, listener.name, self._ports.now_ms).context
        in_use = self.listener_security[listener.name].tls
        assert in_use is not None, "the security protocol of a listener does not change"
        outgoing = next((one for one in self._outgoing if one.listener == listener.name), None)
        if outgoing is None:
            if not _is_inter_broker(candidate, listener):
                return
            # Alone, the broker connects to no other: its own clients' authority may be another than its certificate's.
            try:
                present = tls_client(self._config, listener.name)
            except (OSError, ValueError) as error:
                logger.debug("cannot read the files of listener %s: %s", listener.name, error)
                return
            if present is None or handshake_failure(present, in_use.context) is not None:
                return
            pairs = [("the new key store and the new trust store", tls_client(candidate, listener.name), server)]
        else:
            assert outgoing.security.tls is not None, "a listener with TLS"
            trusted = outgoing.security.tls.get_ca_certs(binary_form=True)
            new = tls_client(candidate, listener.name, or_default=True)
            pairs = [
                ("the new key store and the new trust store", new, server),
                ("the new key store and the trust store in use", tls_client(candidate, listener.name, trusted), server),
                ("the key store in use and the new trust store", new, in_use.context),
            ]
        for pair, client, acceptor in pairs:
            failure = None if client is None else handshake_failure(client, acceptor)
            if failure is not None:
                location = candidate.listener_value(listener.name, "ssl.keystore.location")
                reason = f"listener {listener.name}: brokers cannot connect with {pair}: {failure}"
                raise ConfigError("ssl.keystore.location", location, reason)

    def reload(self) -> None:
        """Read keys, certificates and the password of this broker again, for new connections.

        Errors are logged, and the previous values are kept.
        """
        for name, security in self.listener_security.items():
            if security.sasl is not None:
                try:
                    security.sasl.prepare_mechanisms()
                except ConfigError as error:
                    logger.error("SASL of listener %s is unchanged: %s", name, error)
            if security.tls is not None:
                self._build("certificates of listener", name, security.tls)
        for outgoing in self._outgoing:
            self._build("settings of connections to listener", outgoing.listener, outgoing)

    def _build(self, what: str, listener: str, built: Reconfigurable[T]) -> None:
        def on_built(result: T | None, error: BaseException | None) -> None:
            if result is None:
                logger.error("%s %s are unchanged: %s", what, listener, error)
            else:
                built.take(result)
                logger.info("%s %s were read again", what, listener)

        self._ports.work.submit(CERTIFICATES, built.build, on_built)

    def warn_of_expiring_certificates(self) -> None:
        """Log the certificates of listeners that expire within `EXPIRY_WARNING_DAYS` days, or have expired."""
        for name, security in self.listener_security.items():
            if security.tls is None or math.isinf(security.tls.expires_at):
                continue
            days = security.tls.seconds_until_expiry / SECONDS_PER_DAY
            date = datetime.fromtimestamp(security.tls.expires_at, UTC).isoformat(timespec="minutes")
            if days < 0:
                logger.error("the certificate of listener %s expired at %s: clients cannot connect", name, date)
            elif days < EXPIRY_WARNING_DAYS:
                logger.warning("the certificate of listener %s expires in %d days, at %s", name, days, date)

    async def set_passwords(self, passwords: Mapping[str, str]) -> None:
        """Store SCRAM credentials of these users; a lane computes the hashes. Raises StoreError."""
        for user, password in passwords.items():
            salt = self._ports.token_bytes(SALT_BYTES)
            job = partial(new_credentials, password, salt)
            await self._scram_store.change(user, await self._ports.work.run(LANE, job))

    async def close(self) -> None:
        """Stop following changes."""
        for security in self.listener_security.values():
            if security.sasl is not None:
                await security.sasl.close()
        if self.acls is not None:
            await self.acls.close()
