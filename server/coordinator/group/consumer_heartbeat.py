"""A ConsumerGroupHeartbeat and its response, apart from their encoding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....protocol.errors import ErrorCode
from .assignment import Assignment
from .modern_group_heartbeat import ModernGroupHeartbeat, refuse_if
from .modern_group_member import JOIN_EPOCH, STATIC_LEAVE_EPOCH

NOT_GIVEN = -1
MAX_TOPICS = 20_000
"""The limit on the topic names of a subscription: the record of a larger one would exceed the limit of the log."""
MaySee = Callable[[str], bool]
"""Returns whether the member's principal may describe a topic."""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat(ModernGroupHeartbeat):
    """The values of a heartbeat; None for a value that has not changed since the member's last heartbeat."""

    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topics: frozenset[str] | None
    regex: str | None
    assignor: str | None
    owned: Assignment | None
    client_id: str
    client_host: str
    generates_member_id: bool
    """Whether the client generates the member id (KIP-1082, version 1); in version 0 the first response has it."""
    may_see: MaySee
    """Filters the topics that match the regular expression."""

    @property
    def is_full(self) -> bool:
        """Whether the heartbeat has all values, so that the response must have the assignment."""
        has_topics = self.topics is not None or self.regex is not None
        return self.is_joining or (self.rebalance_timeout_ms != NOT_GIVEN and has_topics and self.owned is not None)

    @property
    def is_keepalive(self) -> bool:
        """Whether the heartbeat changes no value."""
        return (
            self.epoch > JOIN_EPOCH
            and self.topics is None
            and self.regex is None
            and self.owned is None
            and self.assignor is None
            and self.rebalance_timeout_ms == NOT_GIVEN
        )

    def check(self) -> None:
        """Raise KafkaError INVALID_REQUEST if values are missing or contradict each other."""
        for name, text in (("GroupId", self.group_id), ("InstanceId", self.instance_id), ("RackId", self.rack_id)):
            refuse_if(text is not None and not text.strip(), f"{name} can't be empty.")
        if self.epoch != JOIN_EPOCH or self.generates_member_id:
            refuse_if(not self.member_id.strip(), "MemberId can't be empty.")
        if self.is_joining:
            refuse_if(self.rebalance_timeout_ms == NOT_GIVEN, "RebalanceTimeoutMs must be provided in first request.")
            refuse_if(self.owned is None or bool(self.owned), "TopicPartitions must be empty when (re-)joining.")
            refuse_if(
                self.topics is None and self.regex is None,
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            )
        too_many = f"A member subscribes to {MAX_TOPICS} topics by name at most."
        refuse_if(self.topics is not None and len(self.topics) > MAX_TOPICS, too_many)
        refuse_if(self.epoch < STATIC_LEAVE_EPOCH, f"MemberEpoch is {self.epoch}, but must be at least -2.")
        refuse_if(self.epoch == STATIC_LEAVE_EPOCH and self.instance_id is None, "InstanceId can't be null.")


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The values of the response; `assignment` is None unless it has changed or the heartbeat `is_full`."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


HeartbeatReply = Callable[[HeartbeatResult], None]
