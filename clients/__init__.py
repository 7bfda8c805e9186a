"""asyncio clients of any Kafka broker (0.10 and later), and the `barnabas` command."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..protocol.errors import KafkaError
    from ..protocol.topic_partition import TopicPartition
    from .admin import Admin, NewTopic, raise_first
    from .consumer import Consumer
    from .group.listener import RebalanceListener
    from .group.offset_requests import OffsetAndMetadata
    from .producer import Producer
    from .security import Security, security_of
    from .share.acknowledgements import AcknowledgeType
    from .share.share_in_flight_batch import ShareRecord
    from .share_consumer import ShareConsumer

__all__ = [
    "AcknowledgeType",
    "Admin",
    "Consumer",
    "KafkaError",
    "NewTopic",
    "OffsetAndMetadata",
    "Producer",
    "RebalanceListener",
    "Security",
    "ShareConsumer",
    "ShareRecord",
    "TopicPartition",
    "raise_first",
    "security_of",
]

_MODULES = {
    "AcknowledgeType": ".share.acknowledgements",
    "Admin": ".admin",
    "Consumer": ".consumer",
    "KafkaError": "..protocol.errors",
    "NewTopic": ".admin",
    "OffsetAndMetadata": ".group.offset_requests",
    "Producer": ".producer",
    "RebalanceListener": ".group.listener",
    "Security": ".security",
    "ShareConsumer": ".share_consumer",
    "ShareRecord": ".share.share_in_flight_batch",
    "TopicPartition": "..protocol.topic_partition",
    "raise_first": ".admin",
    "security_of": ".security",
}


def __getattr__(name: str) -> Any:
    """Import a client when it is first used, so that `barnabas start` does not import them all."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names that are imported on first use, too."""
    return sorted({*globals(), *__all__})
