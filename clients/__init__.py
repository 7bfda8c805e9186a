"""asyncio clients of any Kafka broker (0.10 and later), and the `barnabas` command."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .admin import Admin
    from .consumer import Consumer
    from .producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]


def __getattr__(name: str) -> Any:
    """Load a client when it is asked for, so that `barnabas start` does not load them all."""
    if name in __all__:
        return getattr(import_module(f".{name.lower()}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
