"""A ConsumerGroupHeartbeat and its answer, apart from their encoding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .....protocol.errors import ErrorCode, KafkaError
from .assignment import Assignment
from .member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH

NOT_GIVEN = -1
MOST_TOPICS = 20_000
"""More would be a record that no log takes."""
MaySee = Callable[[str], bool]
"""Whether somebody may know that there is a topic of that name."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a member says of itself; None for what has not changed since it said it last."""

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topics: frozenset[str] | None
    regex: str | None
    assignor: str | None
    owned: Assignment | None
    client_id: str
    client_host: str
    names_itself: bool
    """It makes its own id (KIP-1082, version 1); before that the first answer brings one."""
    may_see: MaySee
    """What its expression may mean."""

    @property
    def is_joining(self) -> bool:
        """Whether it begins, or begins anew."""
        return self.epoch == JOIN_EPOCH

    @property
    def is_leaving(self) -> bool:
        """Whether it goes, for ever or for now."""
        return self.epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)

    @property
    def is_full(self) -> bool:
        """Whether it says everything, and so wants to hear everything."""
        has_topics = self.topics is not None or self.regex is not None
        return self.is_joining or (self.rebalance_timeout_ms != NOT_GIVEN and has_topics and self.owned is not None)

    @property
    def says_nothing_new(self) -> bool:
        """Whether it is a mere sign of life."""
        return (
            self.epoch > JOIN_EPOCH
            and self.topics is None
            and self.regex is None
            and self.owned is None
            and self.assignor is None
            and self.rebalance_timeout_ms == NOT_GIVEN
        )

    def check(self) -> None:
        """Raises KafkaError INVALID_REQUEST for a request that contradicts itself."""
        for name, text in (("GroupId", self.group_id), ("InstanceId", self.instance_id), ("RackId", self.rack_id)):
            _refuse_if(text is not None and not text.strip(), f"{name} can't be empty.")
        if self.epoch != JOIN_EPOCH or self.names_itself:
            _refuse_if(not self.member_id.strip(), "MemberId can't be empty.")
        if self.is_joining:
            _refuse_if(self.rebalance_timeout_ms == NOT_GIVEN, "RebalanceTimeoutMs must be provided in first request.")
            _refuse_if(self.owned is None or bool(self.owned), "TopicPartitions must be empty when (re-)joining.")
            _refuse_if(
                self.topics is None and self.regex is None,
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            )
        too_many = f"A member subscribes to {MOST_TOPICS} topics by name at most."
        _refuse_if(self.topics is not None and len(self.topics) > MOST_TOPICS, too_many)
        _refuse_if(self.epoch < STATIC_LEAVE_EPOCH, f"MemberEpoch is {self.epoch}, but must be at least -2.")
        _refuse_if(self.epoch == STATIC_LEAVE_EPOCH and self.instance_id is None, "InstanceId can't be null.")


def _refuse_if(wrong: bool, reason: str) -> None:
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


@dataclass(frozen=True, slots=True)
class BeatResult:
    """The answer; an assignment only where it is news."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


BeatReply = Callable[[BeatResult], None]
