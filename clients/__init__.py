"""asyncio clients of any Kafka broker (0.10 and later), and the `barnabas` command."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .admin import Admin
    from .consumer import Consumer
    from .group.listener import RebalanceListener
    from .group.offset_requests import OffsetAndMetadata
    from .producer import Producer

__all__ = ["Admin", "Consumer", "OffsetAndMetadata", "Producer", "RebalanceListener"]

_MODULES = {
    "Admin": ".admin",
    "Consumer": ".consumer",
    "OffsetAndMetadata": ".group.offset_requests",
    "Producer": ".producer",
    "RebalanceListener": ".group.listener",
}


def __getattr__(name: str) -> Any:
    """Load a client when it is asked for, so that `barnabas start` does not load them all."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
