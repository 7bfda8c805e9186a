"""Kafka's ModernGroupMember: the part of a member that all groups with member epochs have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ....protocol.errors import ErrorCode

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""The epoch of a static member that leaves and will return before its session expires."""


@dataclass(frozen=True, slots=True)
class ModernGroupMember:
    """One state of a member; a change creates another object."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH


@dataclass(frozen=True, slots=True)
class StaticGroupMember(ModernGroupMember, ABC):
    """One state of a member of a group that supports static members (KIP-345)."""

    instance_id: str | None = None
    """The instance id of a static member; None for a dynamic member."""
    rebalance_timeout_ms: int = -1
    """The time in which the member has to revoke partitions that are assigned to other members."""

    @property
    def has_left_for_now(self) -> bool:
        """Whether the member is a static member that has left and will return."""
        return self.epoch == STATIC_LEAVE_EPOCH

    @property
    @abstractmethod
    def revoking(self) -> object:
        """The partitions or tasks that the member has to revoke."""

    @property
    @abstractmethod
    def is_revoking(self) -> bool:
        """Whether the member has to revoke partitions or tasks. It keeps its epoch until it confirms the revocation."""

    @property
    def is_classic(self) -> bool:
        """Whether the member uses the classic protocol."""
        return False

    @property
    def stale_epoch_error(self) -> ErrorCode:
        """The error code for a request with another epoch than the member's."""
        return ErrorCode.ILLEGAL_GENERATION if self.is_classic else ErrorCode.STALE_MEMBER_EPOCH
