"""A ShareGroupHeartbeat, apart from its encoding. The values of its response are in `HeartbeatResult`."""

from __future__ import annotations

from dataclasses import dataclass

from ..consumer_heartbeat import MAX_TOPICS
from ..modern_group_heartbeat import ModernGroupHeartbeat, refuse_if
from ..modern_group_member import LEAVE_EPOCH

LONGEST_MEMBER_ID = 36
"""The number of characters of a UUID: clients generate their member ids."""


@dataclass(frozen=True, slots=True)
class ShareHeartbeat(ModernGroupHeartbeat):
    """The values of a heartbeat; None for a value that the member has not changed since its last heartbeat."""

    rack_id: str | None
    topics: frozenset[str] | None
    client_id: str
    client_host: str

    @property
    def is_full(self) -> bool:
        """Whether the response must have the assignment."""
        return self.is_joining or self.topics is not None

    def check(self) -> None:
        """Raise KafkaError INVALID_REQUEST for missing and invalid values."""
        refuse_if(not 0 < len(self.member_id) <= LONGEST_MEMBER_ID, "Invalid member id in the request.")
        for name, text in (("MemberId", self.member_id), ("GroupId", self.group_id), ("RackId", self.rack_id)):
            refuse_if(text is not None and not text.strip(), f"{name} can't be empty.")
        refuse_if(self.is_joining and not self.topics, "SubscribedTopicNames must be set in first request.")
        refuse_if(self.epoch < LEAVE_EPOCH, "MemberEpoch is invalid.")
        too_many = f"A member can subscribe to at most {MAX_TOPICS} topics."
        refuse_if(self.topics is not None and len(self.topics) > MAX_TOPICS, too_many)
