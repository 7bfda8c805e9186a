"""Kafka's TargetAssignmentBuilder: the target assignment of a group's present epoch. No I/O, no time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from .assignment import NOTHING
from .assignors import ASSIGNORS, MemberSpec
from .consumer_group import ConsumerGroup, TopicSubscription
from .consumer_group_change import ConsumerGroupChange
from .consumer_group_member import ConsumerGroupMember

if TYPE_CHECKING:
    from ...metadata.metadata_cache import MetadataCache


class TargetAssignmentBuilder:
    """The computation of target assignments from subscriptions and topics.

    Owned by the manager of a group type and used on the loop's thread only.
    """

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def build(self, change: ConsumerGroupChange, assignors: Sequence[str], now_ms: int) -> None:
        """Set the target assignment of the group's epoch, by the assignor that most members prefer.

        A preferred assignor that is not in `assignors` is replaced by the first of them.
        """
        group, counts = change.group, dict[UUID, int]()
        topics: dict[TopicSubscription, frozenset[UUID]] = {}
        for subscription in group.subscriptions:
            images = [self._metadata.topic(name) for name in group.topics_of(subscription)]
            found = {image.topic_id: len(image.partitions) for image in images if image is not None}
            counts.update(found)
            topics[subscription] = frozenset(found)
        members = [
            MemberSpec(
                member.member_id,
                member.instance_id,
                topics[TopicSubscription(member.topics, member.regex)],
                group.targets.get(member.member_id, NOTHING),
            )
            for member in group.members.values()
        ]
        preferred = group.preferred_assignor
        name = preferred if preferred is not None and preferred in assignors else assignors[0]
        for member_id, target in ASSIGNORS[name](members, counts).items():
            change.set_target(member_id, target)
        change.set_assignment_epoch(now_ms)

    def subscribed_topic_ids(self, group: ConsumerGroup, member: ConsumerGroupMember) -> frozenset[UUID]:
        """Return the ids of the existing topics to which a member subscribes."""
        images = [
            self._metadata.topic(name) for name in group.topics_of(TopicSubscription(member.topics, member.regex))
        ]
        return frozenset(image.topic_id for image in images if image is not None)
