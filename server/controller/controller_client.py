"""The interface of a broker to the controller, in this process or in another."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ..quotas.request_quota_usage import ControllerMutationQuota, unbounded_controller_mutation_quota

if TYPE_CHECKING:
    from ...protocol.errors import KafkaError
    from ...protocol.topic_partition import TopicPartition
    from .admin_manager import TopicCreation
    from .auto_topic_creation_manager import AutoTopicCreationManager


class ControllerClient(Protocol):
    """Creates topics for the broker and reports lost replicas.

    A Protocol with two implementations: `KafkaController` of a single broker or a ZooKeeper cluster, which also finds
    the controller on another broker, and `kraft.KRaftControllerClient` for the controllers of a quorum.
    """

    auto_topic_creation_manager: AutoTopicCreationManager

    @property
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

    async def create_topics_automatically(
        self,
        creations: Sequence[TopicCreation],
        *,
        timeout_ms: float | None = None,
        mutation_quota: ControllerMutationQuota = unbounded_controller_mutation_quota,
    ) -> Mapping[str, KafkaError | None]:
        """Create topics that the broker itself requires; None for each success. Raises KafkaError."""

    def on_replicas_offline(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        """Report replicas in a failed log directory of this broker."""

    async def retry_replicas(self, broker_id: int, lost: Container[TopicPartition]) -> None:
        """Create replicas that did not fit on the disk, except the lost replicas."""

    async def close(self) -> None:
        """Stop the creations in progress."""
