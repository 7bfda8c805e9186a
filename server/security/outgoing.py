"""How this broker authenticates to other brokers, and how it checks theirs.

It says what clients say, by the settings of the listener that it goes to (`listener.name.NAME.…`): the key that is
shown to clients is shown to brokers too, and `sasl.jaas.config` has a `username` and `password` beside the users' own.
Kafka's ChannelBuilders.clientChannelBuilder.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from ...clients.security import Security, security_of
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ..config.keys.validators import ConfigError
from .tls_listener import STORE_KEYS, choose_protocols

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig
    from ..config.listeners import ListenerConfig

logger = room_logger("security")

MECHANISM = "sasl.mechanism.inter.broker.protocol"
_TLS_KEYS = (*STORE_KEYS, "ssl.endpoint.identification.algorithm")
_LOGIN_KEYS = ("sasl.kerberos.service.name", *(
    f"sasl.oauthbearer.{name}"
    for name in (
        "client.credentials.client.id", "client.credentials.client.secret", "scope", "token.endpoint.url",
    )
))  # fmt: skip
_NOT_LET_IN = frozenset(
    {ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_SASL_MECHANISM, ErrorCode.ILLEGAL_SASL_STATE}
)


class OutgoingSecurity:
    """To one listener of all other brokers. `build` may be called on any thread, the rest on the loop's."""

    def __init__(self, config: BrokerConfig, listener: ListenerConfig) -> None:
        """Raises ConfigError if nobody could be reached so."""
        self._config = config
        self.listener = listener.name
        self._protocol = listener.security_protocol
        self._told: dict[int, str] = {}
        self.security = self.build()
        """For the next connection."""

    def build(self) -> Security:
        """By the settings and files as they are now. Raises ConfigError."""
        settings = {"security.protocol": self._protocol}
        if self._protocol.endswith("SSL"):
            settings |= {key: str(value) for key in _TLS_KEYS if (value := self._value(key)) is not None}
        if self._protocol.startswith("SASL_"):
            settings |= self._sasl()
        try:
            security = security_of(settings)
        except (OSError, ValueError) as error:
            raise ConfigError("inter.broker.listener.name", self.listener, str(error)) from error
        if security.tls is not None:
            choose_protocols(security.tls, self._config, self.listener)
        return security

    def take(self, built: Security) -> None:
        """Use this from now on; connections that are open stay as they are."""
        self.security = built

    def admitted(self, broker_id: int) -> None:
        """A broker has let this one in."""
        self._told.pop(broker_id, None)

    def refused(self, broker_id: int, error: KafkaError) -> None:
        """No connection to a broker comes about. Tried again and again it is worth one line, until the reason differs.

        Nothing is said of brokers that are merely away.
        """
        if error.code not in _NOT_LET_IN and not isinstance(error.__cause__, ssl.SSLError):
            return
        reason = str(error)
        if self._told.get(broker_id) != reason:
            self._told[broker_id] = reason
            logger.error(
                "broker %d and this one do not come together on listener %s: %s", broker_id, self.listener, reason
            )

    def _sasl(self) -> dict[str, str]:
        mechanism = str(self._config.get(MECHANISM)).upper()
        offered = self._value("sasl.enabled.mechanisms")
        if mechanism not in (offered if isinstance(offered, tuple) else ()):
            reason = f"it must be one of sasl.enabled.mechanisms of listener {self.listener}"
            raise ConfigError(MECHANISM, mechanism, reason)
        key = f"listener.name.{self.listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
        login = {name: str(value) for name in _LOGIN_KEYS if (value := self._value(name)) is not None}
        return {"sasl.mechanism": mechanism, "sasl.jaas.config": self._config.free_value(key) or "", **login}

    def _value(self, key: str) -> object:
        return self._config.listener_value(self.listener, key)
