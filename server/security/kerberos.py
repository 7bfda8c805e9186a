"""SASL GSSAPI with Kerberos on a listener (RFC 4752).

It uses the MIT library (`pip install barnabas[gssapi]`), whose calls read the keytab and write a replay cache: they run
on a lane. As in Kafka, there is no security layer; TLS encrypts.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

import gssapi

from ...common.jaas import jaas_options, kerberos_service
from ...common.room_logger import room_logger
from ...protocol.sasl_server import failed
from ..config.keys.validators import ConfigError
from ..runtime.log_limit import LimitedLog
from .kerberos_short_namer import KEY as RULES
from .kerberos_short_namer import KerberosShortNamer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..config.broker_config import BrokerConfig
    from ..runtime.ports import Work

logger = room_logger("security")

LANE = "kerberos"
NO_LAYER = b"\x01\0\0\0"
"""No integrity and no confidentiality, and therefore no maximum size of messages."""
_SERVICE = "sasl.kerberos.service.name"
_REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"


class KerberosAcceptor:
    """The Kerberos credentials of one listener, used on the loop's thread."""

    def __init__(self, config: BrokerConfig, listener: str, work: Work, now: Callable[[], float]) -> None:
        """Raises ConfigError without a service, a principal or a keytab that has its key."""
        key = f"listener.name.{listener.lower()}.gssapi.sasl.jaas.config"
        options = jaas_options(config.free_value(key) or "")
        configured = cast("str | None", config.listener_value(listener, _SERVICE))
        try:
            service = kerberos_service(options, configured)
        except ValueError as error:
            raise ConfigError(_SERVICE, configured, f"listener {listener}: {error}") from None
        principal, keytab = options.get("principal", ""), options.get("keyTab", "").removeprefix("file:")
        if not service:
            raise ConfigError(_SERVICE, None, f"listener {listener}: no service name, and none in the JAAS string")
        name, _, realm = principal.partition("@")
        if not realm or not keytab or name.split("/")[0] != service:
            reason = f'GSSAPI needs keyTab="…" and principal="{service}/host@REALM"'
            raise ConfigError(key, None, reason)
        rules = cast("tuple[str, ...]", config.listener_value(listener, RULES))
        self.names = KerberosShortNamer(rules, realm)
        self.work = work
        self._own = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        self._keytab = keytab
        self._refusals = LimitedLog(logger, now)
        try:
            self.credentials = self._load()
        except gssapi.exceptions.GSSError as error:
            raise ConfigError(key, None, f"{keytab} has no key of {principal}: {error}") from error

    def _load(self) -> gssapi.Credentials:
        kerberos = [gssapi.MechType.kerberos]
        return gssapi.Credentials(name=self._own, mechs=kerberos, usage="accept", store={"keytab": self._keytab})

    def log_failure(self, error: gssapi.exceptions.GSSError) -> None:
        """Log the reason of a failed authentication: the keytab, if it cannot be used any more, or the ticket.

        Called on the lane's thread.
        """
        try:
            self._load()
        except gssapi.exceptions.GSSError as own:
            self._refusals.write(logging.ERROR, "all GSSAPI authentications fail: the keytab cannot be used: %s", own)
        else:
            self._refusals.write(logging.WARNING, "a Kerberos ticket was rejected: %s", error)

    def begin_exchange(self) -> GssapiExchange:
        """Return the exchange of a new client."""
        return GssapiExchange(self)


class GssapiExchange:
    """The authentication of one client."""

    def __init__(self, acceptor: KerberosAcceptor) -> None:
        self._acceptor = acceptor
        self._context = gssapi.SecurityContext(creds=acceptor.credentials, usage="accept")
        self._has_offered_layer = False

    async def evaluate_response(self, message: bytes) -> tuple[bytes, str | None]:
        """Return the challenge for a client's message, and its name after the last one.

        Raises KafkaError SASL_AUTHENTICATION_FAILED.
        """
        return await self._acceptor.work.run(LANE, lambda: self._evaluate(message))

    def _evaluate(self, message: bytes) -> tuple[bytes, str | None]:
        try:
            return self._step(message)
        except gssapi.exceptions.GSSError as error:
            self._acceptor.log_failure(error)
            raise failed(_REFUSED) from error

    def _step(self, message: bytes) -> tuple[bytes, str | None]:
        if not self._context.complete:
            token = self._context.step(message)
            # A failed step with a token for the client returns the token, and the next step raises the error.
            if not self._context.complete or token:
                return token or b"", None
        if not self._has_offered_layer:
            self._has_offered_layer = True
            return self._context.wrap(NO_LAYER, False).message, None
        chosen = self._context.unwrap(message).message
        if chosen[:1] != NO_LAYER[:1]:
            raise failed("Authentication failed: the client wants a security layer")
        principal = str(self._context.initiator_name)
        name = self._acceptor.names.name_of(principal)
        if name is None:
            raise failed(f"No rules apply to {principal}")
        return b"", name
