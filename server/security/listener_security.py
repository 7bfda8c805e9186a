"""Authentication and encryption of a listener, as its security protocol requires."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .sasl_listener import SaslListener
from .tls_listener import TlsListener

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig
    from ..config.listeners import ListenerConfig
    from .sasl_listener import CredentialSources


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """SASL and TLS of one listener; None if its security protocol does not include them."""

    sasl: SaslListener | None = None
    tls: TlsListener | None = None


PLAINTEXT = ListenerSecurity()
"""A listener without SASL and TLS."""


def listener_security(listener: ListenerConfig, config: BrokerConfig, sources: CredentialSources) -> ListenerSecurity:
    """Return the SASL and TLS parts that the listener's security protocol requires. Raises ConfigError."""
    protocol = listener.security_protocol
    return ListenerSecurity(
        SaslListener(config, listener.name, sources) if protocol.startswith("SASL_") else None,
        TlsListener(config, listener.name, sources.ports.now_ms) if protocol.endswith("SSL") else None,
    )
