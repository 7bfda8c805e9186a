"""A ShareGroupHeartbeat, apart from its encoding. The values of its response are in `HeartbeatResult`."""

from __future__ import annotations

from dataclasses import dataclass

from .....protocol.errors import ErrorCode, KafkaError
from ..consumer_heartbeat import MAX_TOPICS
from ..modern_group_member import JOIN_EPOCH, LEAVE_EPOCH

LONGEST_MEMBER_ID = 36
"""The number of characters of a UUID: clients generate their member ids."""


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """The values of a heartbeat; None for a value that the member has not changed since its last heartbeat."""

    group_id: str
    member_id: str
    epoch: int
    rack_id: str | None
    topics: frozenset[str] | None
    client_id: str
    client_host: str

    @property
    def is_joining(self) -> bool:
        """Whether the member joins, for the first time or again."""
        return self.epoch == JOIN_EPOCH

    @property
    def is_leaving(self) -> bool:
        """Whether the member leaves."""
        return self.epoch == LEAVE_EPOCH

    @property
    def is_full(self) -> bool:
        """Whether the response must have the assignment."""
        return self.is_joining or self.topics is not None

    def check(self) -> None:
        """Raise KafkaError INVALID_REQUEST for missing and invalid values."""
        _refuse_if(not 0 < len(self.member_id) <= LONGEST_MEMBER_ID, "Invalid member id in the request.")
        for name, text in (("MemberId", self.member_id), ("GroupId", self.group_id), ("RackId", self.rack_id)):
            _refuse_if(text is not None and not text.strip(), f"{name} can't be empty.")
        _refuse_if(self.is_joining and not self.topics, "SubscribedTopicNames must be set in first request.")
        _refuse_if(self.epoch < LEAVE_EPOCH, "MemberEpoch is invalid.")
        too_many = f"A member can subscribe to at most {MAX_TOPICS} topics."
        _refuse_if(self.topics is not None and len(self.topics) > MAX_TOPICS, too_many)


def _refuse_if(wrong: bool, reason: str) -> None:
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
