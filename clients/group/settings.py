"""The settings of a group's member, with the names and defaults of Kafka's Java consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Literal, TypedDict, get_args

from .assignor import Assignor

GroupProtocol = Literal["classic", "consumer"]
Strategies = Sequence[str | Assignor]

_FOREIGN: Mapping[GroupProtocol, tuple[str, ...]] = MappingProxyType(
    {
        "classic": ("group_remote_assignor",),
        "consumer": ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms"),
    }
)
"""Settings without effect in the consumer protocol, in which the coordinator assigns and sets the times."""


class GroupOptions(TypedDict, total=False):
    """Optional settings of `Consumer` in addition to `group_id`."""

    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    partition_assignment_strategy: Strategies
    exclude_internal_topics: bool
    group_protocol: GroupProtocol
    group_remote_assignor: str | None


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of a member. Raises ValueError for values that Kafka rejects."""

    group_id: str
    group_instance_id: str | None = None
    """Makes a static member, which may be absent for a session without a rebalance (KIP-345)."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """Maximum time between two reads before the member's partitions are reassigned."""
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    partition_assignment_strategy: Strategies = ("range", "cooperative-sticky")
    exclude_internal_topics: bool = True
    group_protocol: GroupProtocol = "classic"
    """`consumer` is KIP-848: the coordinator assigns and sets the heartbeat interval; brokers since 4.0."""
    group_remote_assignor: str | None = None
    """The coordinator's assignor (`uniform`, `range`); None selects the coordinator's default."""
    rack: str = ""

    def __post_init__(self) -> None:
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError("heartbeat_interval_ms must be less than session_timeout_ms")
        if self.group_protocol not in get_args(GroupProtocol):
            raise ValueError(f"group_protocol: invalid value {self.group_protocol!r}. Expected classic or consumer")
        if self.group_instance_id == "":
            raise ValueError("group_instance_id must not be empty")
        for field in fields(self):
            if field.name in _FOREIGN[self.group_protocol] and getattr(self, field.name) != field.default:
                raise ValueError(f"{field.name} cannot be set with group_protocol={self.group_protocol!r}")
