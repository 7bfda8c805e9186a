"""Kafka's CurrentAssignmentBuilder: the next step of one member towards its target assignment. Pure functions.

A member first revokes the partitions that are not in its target assignment, then adopts the target's epoch, then gets
each partition when its former owner has released it. So a partition never has two owners, and a member waits only for
the partitions that are not free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from ....protocol.errors import ErrorCode, KafkaError
from .assignment import NOTHING, Assignment, PartitionEpochs, difference, intersection, overlap, union
from .consumer_group_member import ConsumerGroupMember, MemberState

IsFree = Callable[[UUID, int], bool]
"""Returns whether a partition has no owner."""


def build_current_assignment(
    member: ConsumerGroupMember,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: IsFree,
    *,
    subscribed: frozenset[UUID] | None = None,
) -> ConsumerGroupMember:
    """Return the state of a member after a heartbeat; the same object if nothing changes.

    `owned` has the partitions in the heartbeat, None if it has none. `subscribed` has the ids of the member's topics
    if the target assignment is older than its subscription. Raises KafkaError FENCED_MEMBER_EPOCH.
    """
    if subscribed is not None:
        target = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in subscribed}
    if member.has_reached(target_epoch) and (subscribed is None or member.assigned.keys() <= subscribed):
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _may_still_own(member.revoking, owned):
        return member
    if member.state is MemberState.UNKNOWN and owned != NOTHING:
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "The member's state is unknown; it has to join again.")
    kept = intersection(member.assigned, target)
    revoking = difference(member.assigned, kept)
    if revoking and _may_still_own(revoking, owned):
        return _with_assignment(member, MemberState.UNREVOKED_PARTITIONS, member.epoch, kept, revoking)
    missing = difference(target, kept)
    free = _filter_free(missing, is_free)
    state = MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS
    return _with_assignment(member, state, target_epoch, union(kept, free), NOTHING)


def _may_still_own(partitions: Assignment, owned: Assignment | None) -> bool:
    return owned is None or overlap(partitions, owned)


def _filter_free(partitions: Assignment, is_free: IsFree) -> Assignment:
    found = {
        topic: frozenset(index for index in indexes if is_free(topic, index)) for topic, indexes in partitions.items()
    }
    return {topic: indexes for topic, indexes in found.items() if indexes}


def _with_assignment(
    member: ConsumerGroupMember, state: MemberState, epoch: int, assigned: Assignment, revoking: Assignment
) -> ConsumerGroupMember:
    assert not revoking or state is MemberState.UNREVOKED_PARTITIONS
    updated = (state, epoch, assigned, revoking)
    if updated == (member.state, member.epoch, member.assigned, member.revoking):
        return member
    return replace(
        member,
        state=state,
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=revoking,
        assignment_epochs=_assignment_epochs(member, epoch, assigned, revoking),
    )


def _assignment_epochs(
    member: ConsumerGroupMember, epoch: int, assigned: Assignment, revoking: Assignment
) -> PartitionEpochs:
    """Return the epochs of the partitions: a partition that the member has already keeps its epoch."""
    if assigned == member.assigned and not revoking:
        return member.assignment_epochs
    epochs: dict[UUID, dict[int, int]] = {}
    for assignment in (assigned, revoking):
        for topic_id, partitions in assignment.items():
            present, of_topic = member.assigned.get(topic_id, frozenset()), epochs.setdefault(topic_id, {})
            former = member.assignment_epochs.get(topic_id, {})
            for partition in partitions:
                of_topic[partition] = former.get(partition, 0) if partition in present else epoch
    return epochs
