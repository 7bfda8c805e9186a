"""Bringing one member nearer to its target assignment (Kafka: CurrentAssignmentBuilder). A pure function.

A member first lets go of what is not its own any more, then goes over to the target's epoch, then gets partitions as
the others let go of them. So a partition never has two owners, and nobody waits who need not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from .....protocol.errors import ErrorCode, KafkaError
from .assignment import NOTHING, Assignment, difference, intersection, overlap, union
from .member import ConsumerMember
from .states import MemberState

IsFree = Callable[[UUID, int], bool]
"""Whether nobody owns a partition."""


def reconcile(
    member: ConsumerMember, target_epoch: int, target: Assignment, owned: Assignment | None, is_free: IsFree
) -> ConsumerMember:
    """The member as it is to be after it was heard of; the same object if nothing has changed.

    `owned` is what it says it has, None if it does not say. Raises KafkaError FENCED_MEMBER_EPOCH.
    """
    if member.has_reached(target_epoch):
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_has(member.revoking, owned):
        return member
    if member.state is MemberState.UNKNOWN and owned != NOTHING:
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "The member's state is not known; it has to begin anew.")
    kept = intersection(member.assigned, target)
    revoking = difference(member.assigned, kept)
    if revoking and _still_has(revoking, owned):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.epoch, kept, revoking)
    missing = difference(target, kept)
    free = _only_free(missing, is_free)
    state = MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS
    return _moved(member, state, target_epoch, union(kept, free), NOTHING)


def _still_has(partitions: Assignment, owned: Assignment | None) -> bool:
    return owned is None or overlap(partitions, owned)


def _only_free(partitions: Assignment, is_free: IsFree) -> Assignment:
    found = {
        topic: frozenset(index for index in indexes if is_free(topic, index)) for topic, indexes in partitions.items()
    }
    return {topic: indexes for topic, indexes in found.items() if indexes}


def _moved(
    member: ConsumerMember, state: MemberState, epoch: int, assigned: Assignment, revoking: Assignment
) -> ConsumerMember:
    moved = (state, epoch, assigned, revoking)
    if moved == (member.state, member.epoch, member.assigned, member.revoking):
        return member
    return replace(member, state=state, epoch=epoch, previous_epoch=member.epoch, assigned=assigned, revoking=revoking)
