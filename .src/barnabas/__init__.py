"""Barnabas: Kafka's broker and storage engine in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Broker", "__version__"]

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker


def __getattr__(name: str) -> Any:
    """Load the broker only when somebody asks for it, so that `import barnabas` stays cheap for clients."""
    if name == "Broker":
        from barnabas.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
