"""The test kit: a real broker in a test's process, its contents, and injected faults.

All names that a test needs: `Broker`, `Cluster`, `Clock`, `Fault`, and from the protocol `ErrorCode` and `KafkaError`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..protocol.errors import ErrorCode, KafkaError
    from .broker import Broker
    from .clock import Clock
    from .cluster import Cluster
    from .faults import Fault, Faults, MetRequest

__all__ = ["Broker", "Clock", "Cluster", "ErrorCode", "Fault", "Faults", "KafkaError", "MetRequest"]

_HOMES = {
    "Broker": "barnabas.testing.broker",
    "Clock": "barnabas.testing.clock",
    "Cluster": "barnabas.testing.cluster",
    "ErrorCode": "barnabas.protocol.errors",
    "Fault": "barnabas.testing.faults",
    "Faults": "barnabas.testing.faults",
    "KafkaError": "barnabas.protocol.errors",
    "MetRequest": "barnabas.testing.faults",
}


def __getattr__(name: str) -> Any:
    """Import the kit on first use: pytest loads the plugin in every run, and few runs need a broker."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
