"""How clients come in by a listener: what it asks of them before they may send requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .sasl_listener import SaslListener
from .tls_listener import TlsListener

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig
    from ..config.listeners import ListenerConfig
    from .sasl_listener import Knowledge


@dataclass(frozen=True, slots=True)
class Door:
    """Of one listener; None is what it does not ask for."""

    sasl: SaslListener | None = None
    tls: TlsListener | None = None


OPEN = Door()
"""Of a listener in the clear that asks nobody who they are."""


def door_of(listener: ListenerConfig, config: BrokerConfig, known: Knowledge) -> Door:
    """What the listener's security protocol asks for. Raises ConfigError."""
    protocol = listener.security_protocol
    return Door(
        SaslListener(config, listener.name, known) if protocol.startswith("SASL_") else None,
        TlsListener(config, listener.name, known.ports.now_ms) if protocol.endswith("SSL") else None,
    )
