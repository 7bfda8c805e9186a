"""The interface of a broker to the controller, in this process or in another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING

from ..quotas.request_quota_usage import ControllerMutationQuota, unbounded_controller_mutation_quota
from .automatic_topics import auto_creation

if TYPE_CHECKING:
    from ...protocol.errors import KafkaError
    from ...protocol.topic_partition import TopicPartition
    from ..config.broker_config import BrokerConfig
    from .admin_manager import TopicCreation
    from .auto_topic_creation_manager import AutoTopicCreationManager


class ControllerClient(ABC):
    """Creates topics for the broker and reports lost replicas.

    It has two implementations: `KafkaController` of a single broker or a ZooKeeper cluster, which also finds
    the controller on another broker, and `kraft.KRaftControllerClient` for the controllers of a quorum.
    """

    auto_topic_creation_manager: AutoTopicCreationManager
    _config: BrokerConfig

    @property
    @abstractmethod
    def is_active(self) -> bool:
        """Whether this process is the controller."""

    async def auto_create(
        self,
        names: Iterable[str],
        *,
        timeout_ms: float | None = None,
        mutation_quota: ControllerMutationQuota = unbounded_controller_mutation_quota,
    ) -> dict[str, KafkaError | None]:
        """Create topics with default settings because a client named them; None for each success.

        Raises KafkaError, REQUEST_TIMED_OUT among others (the creation continues).
        """
        creations = [auto_creation(self._config, name) for name in names]
        return await self.create_topics_automatically(creations, timeout_ms=timeout_ms, mutation_quota=mutation_quota)

    @abstractmethod
    async def create_topics_automatically(
        self,
        creations: Sequence[TopicCreation],
        *,
        timeout_ms: float | None = None,
        mutation_quota: ControllerMutationQuota = unbounded_controller_mutation_quota,
    ) -> dict[str, KafkaError | None]:
        """Create topics that the broker itself requires; None for each success. Raises KafkaError."""

    @abstractmethod
    def on_replicas_offline(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        """Report replicas in a failed log directory of this broker."""

    @abstractmethod
    async def retry_replicas(self, broker_id: int, lost: Container[TopicPartition]) -> None:
        """Create replicas that did not fit on the disk, except the lost replicas."""

    @abstractmethod
    async def close(self) -> None:
        """Stop the creations in progress."""
