"""The client side of connections between brokers: authentication to other brokers, and checks of their certificates.

Kafka's ChannelBuilders.clientChannelBuilder. The settings are the listener's (`listener.name.NAME.…`): its key
store is the client certificate, too, and its `sasl.jaas.config` has a `username` and `password` in addition to users.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from ...clients.security import Security, security_of
from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from ..config.keys.validators import ConfigError
from .tls_listener import STORE_KEYS, restrict_tls

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
_AUTHENTICATION_ERRORS = frozenset(
    {ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_SASL_MECHANISM, ErrorCode.ILLEGAL_SASL_STATE}
)


class InterBrokerSecurity:
    """The client side of TLS and SASL for one listener of the other brokers.

    `build` may be called on any thread, all other methods on the loop's.
    """

    def __init__(self, config: BrokerConfig, listener: ListenerConfig, *, mechanism_key: str = MECHANISM) -> None:
        """`mechanism_key` is the setting with the SASL mechanism.

        Raises ConfigError for settings that no connection can use.
        """
        self._config = config
        self._mechanism_key = mechanism_key
        self._listener_key = "inter.broker.listener.name" if mechanism_key == MECHANISM else "controller.listener.names"
        self.listener = listener.name
        self._protocol = listener.security_protocol
        self._logged_reasons: dict[int, str] = {}
        self.security = self.build()
        """The security of the next connection."""

    def build(self) -> Security:
        """Return the security by the current settings and files. Raises ConfigError."""
        settings = {"security.protocol": self._protocol}
        if self._protocol.endswith("SSL"):
            settings |= {key: str(value) for key in _TLS_KEYS if (value := self._value(key)) is not None}
        if self._protocol.startswith("SASL_"):
            settings |= self._sasl()
        try:
            security = security_of(settings)
        except (OSError, ValueError) as error:
            raise ConfigError(self._listener_key, self.listener, str(error)) from error
        if security.tls is not None:
            restrict_tls(security.tls, self._config, self.listener)
        return security

    def take(self, built: Security) -> None:
        """Use this for new connections."""
        self.security = built

    def record_success(self, broker_id: int) -> None:
        """Forget the logged failure of a broker after a connection to it."""
        self._logged_reasons.pop(broker_id, None)

    def record_failure(self, broker_id: int, error: KafkaError) -> None:
        """Log a failed authentication or TLS handshake with a broker, once until the reason changes.

        Brokers that cannot be reached are not logged here.
        """
        if error.code not in _AUTHENTICATION_ERRORS and not isinstance(error.__cause__, ssl.SSLError):
            return
        reason = str(error)
        if self._logged_reasons.get(broker_id) != reason:
            self._logged_reasons[broker_id] = reason
            logger.error("cannot connect to broker %d on listener %s: %s", broker_id, self.listener, reason)

    def _sasl(self) -> dict[str, str]:
        mechanism = str(self._config.get(self._mechanism_key)).upper()
        offered = self._value("sasl.enabled.mechanisms")
        # The settings of the controllers, and not of the broker, enable the mechanism of their listener.
        if self._mechanism_key == MECHANISM and mechanism not in (offered if isinstance(offered, tuple) else ()):
            reason = f"it must be one of sasl.enabled.mechanisms of listener {self.listener}"
            raise ConfigError(self._mechanism_key, mechanism, reason)
        key = f"listener.name.{self.listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
        login = {name: str(value) for name in _LOGIN_KEYS if (value := self._value(name)) is not None}
        return {"sasl.mechanism": mechanism, "sasl.jaas.config": self._config.free_value(key) or "", **login}

    def _value(self, key: str) -> object:
        return self._config.listener_value(self.listener, key)
