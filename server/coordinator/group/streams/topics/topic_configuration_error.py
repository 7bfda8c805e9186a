"""The status codes of StreamsGroupHeartbeat, and the errors of a topology's topics that members receive as a status."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """The status codes of StreamsGroupHeartbeat (Kafka: StreamsGroupHeartbeatResponse.Status)."""

    STALE_TOPOLOGY = 0
    """The member's topology is older than that of the group."""
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    """Topics that have to be copartitioned have different numbers of partitions."""
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    """A member has requested that all instances stop."""
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class TopicConfigurationError(Exception):
    """A state of the topics in which no task can be assigned; it ends when the topics change.

    Kafka: TopicConfigurationException.
    """

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
