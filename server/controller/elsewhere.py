"""What a controller asks of the others: the controller itself where it is another broker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ...protocol.errors import KafkaError
from .topic_rules import TopicCreation


class Elsewhere(Protocol):
    """The controller of a cluster when it is another broker."""

    async def create_topics(self, wishes: Sequence[TopicCreation]) -> dict[str, KafkaError | None]:
        """Has topics made; None where that went well. Raises KafkaError."""
        ...

    async def tell_of_failed_log_dir(self, broker_id: int) -> None:
        """Leaves word that a log directory of this broker has failed."""
        ...


async def nothing_unheard(topics: Iterable[str]) -> None:
    """A broker alone was there when each of its topics was made."""
