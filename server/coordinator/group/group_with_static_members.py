"""A group with member epochs and static members (KIP-345). State without I/O or time."""

from __future__ import annotations

from typing import TypeVar

from ....protocol.errors import ErrorCode, KafkaError
from .modern_group import ModernGroup, T
from .modern_group_member import StaticGroupMember

S = TypeVar("S", bound=StaticGroupMember)


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
