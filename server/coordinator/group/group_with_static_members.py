"""A group with member epochs and static members (KIP-345). State without I/O or time."""

from __future__ import annotations

from typing import TypeVar

from ....protocol.errors import ErrorCode, KafkaError
from .modern_group import ModernGroup, T
from .modern_group_member import StaticGroupMember
from .offsets import OffsetExpirationCondition

S = TypeVar("S", bound=StaticGroupMember)

FIRST_COMMIT_VERSION = 9
"""The first version of OffsetCommit and OffsetFetch with an error code for a stale member epoch."""


class GroupWithStaticMembers(ModernGroup[S, T]):
    """The state that consumer groups and streams groups have in common. Invariant: an instance id has one member."""

    __slots__ = ("_static",)

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self._static: dict[str, str] = {}
        """The ids of the static members by instance id."""

    def add_instance(self, member: StaticGroupMember) -> None:
        """Make a member the present one of its instance id; `put_member` calls this."""
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id

    def remove_instance(self, member: StaticGroupMember) -> None:
        """Remove the instance id of a member, unless another member has replaced it."""
        if member.instance_id is not None and self._static.get(member.instance_id) == member.member_id:
            del self._static[member.instance_id]

    def static_member(self, instance_id: str | None) -> S | None:
        """Return the member with an instance id."""
        member_id = None if instance_id is None else self._static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def get_valid_member(self, member_id: str, instance_id: str | None) -> S:
        """Return a member by its id; with an instance id, the id must be the present one of the static member.

        Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        if instance_id is None:
            return self.get_member(member_id)
        member = self.static_member(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            reason = f"Static member {member_id} with instance id {instance_id} is fenced by member {member.member_id}."
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, reason)
        return member

    # -- offsets ---------------------------------------------------------------------------------------------------

    @property
    def offset_expiration_condition(self) -> OffsetExpirationCondition:
        """The retention begins with each commit, for topics that no member reads."""
        return OffsetExpirationCondition(keep=self.subscribed_topics)

    def find_committing_member(self, member_id: str, instance_id: str | None) -> S:
        """Return the member that commits offsets. Raises KafkaError UNKNOWN_MEMBER_ID."""
        return self.get_member(member_id)

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, version: int
    ) -> ErrorCode:
        if self.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and not self.members:
            return ErrorCode.NONE  # a consumer with manual assignment, or an operator
        try:
            member = self.find_committing_member(member_id, group_instance_id)
        except KafkaError as error:
            return error.code
        if not member.is_classic and version < FIRST_COMMIT_VERSION:
            return ErrorCode.UNSUPPORTED_VERSION
        return ErrorCode.NONE if generation <= member.epoch else member.stale_epoch_error

    def validate_transactional_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        if self.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and (not self.members or (not member_id and group_instance_id is None)):
            return ErrorCode.NONE
        try:
            member = self.find_committing_member(member_id, group_instance_id)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE if generation <= member.epoch else member.stale_epoch_error

    def validate_offset_fetch(self, member_id: str | None, generation: int) -> ErrorCode:
        """Return NONE for present members, and for clients without a member id."""
        if member_id is None and generation < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation == member.epoch else member.stale_epoch_error
