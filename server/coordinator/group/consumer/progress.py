"""What follows from a member being, or being no longer: epochs, the target assignment, the member's own next step.

Kafka's GroupMetadataManager. Everything happens to a `Change`, which knows the way back; no I/O, no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING
from uuid import UUID

from .....protocol.errors import KafkaError
from .assignment import NOTHING, Assignment
from .assignor import ASSIGNORS
from .change import Change
from .group import ConsumerGroup, ResolvedRegex, WantedTopics
from .member import ConsumerMember
from .reconciler import reconcile
from .subscriber import Subscriber
from .topic_pattern import topics_of

if TYPE_CHECKING:
    from ....metadata.metadata_cache import MetadataCache, PartitionImage
    from .beat import MaySee

REGEX_REFRESH_MS = 10_000
"""How long topics may come and go before regular expressions are looked at again."""
REGEX_LONGEST_MS = 600_000
"""After so long they are in any case, as somebody may see other topics by now."""


class GroupProgress:
    """The rules, for one cluster and one choice of assignors."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def is_up_to_date(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> bool:
        """Whether topics are still as they were when the group last looked for this member."""
        version = self._metadata.version
        is_fresh = group.regexes_version == version and now_ms - group.regexes_resolved_ms < REGEX_LONGEST_MS
        return group.checked_version == version and (is_fresh or not member.regex)

    def advance(
        self,
        change: Change,
        member: ConsumerMember,
        owned: Assignment | None,
        assignors: Sequence[str],
        now_ms: int,
        *,
        may_see: MaySee | None = None,
    ) -> ConsumerMember:
        """Take the member in as it is now and bring it as far as it can come.

        Regular expressions are looked at when a member comes that has one, and mean what it `may_see`, as in Kafka.
        Raises KafkaError FENCED_MEMBER_EPOCH.
        """
        group = change.group
        former = group.members.get(member.member_id)
        wishes_differ = former is None or (former.topics, former.regex) != (member.topics, member.regex)
        change.put_member(member)
        regexes_differ = self._resolve_regexes(change, now_ms, may_see if member.regex else None)
        self._compare_topics(change, must_raise=wishes_differ or regexes_differ or not group.epoch)
        if group.epoch > group.assignment_epoch:
            self._assign(change, assignors)
        target = group.targets.get(member.member_id, NOTHING)
        member = reconcile(member, group.assignment_epoch, target, owned, group.is_free)
        change.put_member(member)
        return member

    def replace_member(self, change: Change, former: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member has restarted under another id: it gets the place of the one it was, and has to begin."""
        group = change.group
        member = replace(former, member_id=member_id, epoch=0, previous_epoch=0)
        if former.member_id != member_id:
            target = group.targets.get(former.member_id)
            change.remove_member(former.member_id)
            change.put_member(member)
            change.set_target(member_id, target)
        else:
            change.put_member(member)
        return member

    def remove(self, change: Change, member_ids: Iterable[str]) -> None:
        """Members are gone. The next heartbeat of another member makes the new target assignment."""
        for member_id in member_ids:
            change.remove_member(member_id)
        self._drop_regexes(change)
        change.raise_epoch(self._hash(change))

    # -- topics ----------------------------------------------------------------------------------------------------

    def _compare_topics(self, change: Change, *, must_raise: bool) -> None:
        """Raise the group's epoch if it must be, or its topics are not what they were."""
        group = change.group
        if not must_raise and group.checked_version == self._metadata.version:
            return
        metadata_hash = self._hash(change)
        if must_raise or metadata_hash != group.metadata_hash:
            change.raise_epoch(metadata_hash)
        group.checked_version = self._metadata.version

    def _hash(self, change: Change) -> int:
        """A number that is another one when topics, their partitions or the places of their replicas are others."""
        digest, found = blake2b(digest_size=8), False
        for name in sorted(change.group.subscribed_topics):
            topic = self._metadata.topic(name)
            if topic is None:
                continue
            found = True
            digest.update(b"%b\0%b%d" % (name.encode(), topic.topic_id.bytes, len(topic.partitions)))
            digest.update(self._racks(topic.partitions.values()))
        return int.from_bytes(digest.digest(), "big", signed=True) if found else 0

    def _racks(self, partitions: Iterable[PartitionImage]) -> bytes:
        brokers = self._metadata.brokers
        if not any(broker.rack for broker in brokers.values()):
            return b""
        racks = (
            sorted({brokers[replica].rack or "" for replica in image.replicas if replica in brokers})
            for image in partitions
        )
        return repr(list(racks)).encode()

    def _resolve_regexes(self, change: Change, now_ms: int, may_see: MaySee | None) -> bool:
        """Find the topics of regular expressions that are new, or of all if topics came or went; none if nobody asks
        for them.
        """
        group, version = change.group, self._metadata.version
        used = group.used_regexes
        if not used and not group.regexes:
            return False
        differs = self._drop_regexes(change)
        if may_see is None:
            return differs
        age_ms = now_ms - group.regexes_resolved_ms
        stale = age_ms >= (REGEX_REFRESH_MS if group.regexes_version != version else REGEX_LONGEST_MS)
        for regex in used:
            known = group.regexes.get(regex)
            if known is not None and not stale:
                continue
            topics = self._matching(regex, None if known is None else known.topics, may_see)
            if known is None or known.topics != topics:
                change.set_regex(regex, ResolvedRegex(topics, version, now_ms))
                differs = True
        if stale:
            group.regexes_version, group.regexes_resolved_ms = version, now_ms
        return differs

    def _matching(self, regex: str, known: frozenset[str] | None, may_see: MaySee) -> frozenset[str]:
        """The topics that match. An expression that has become too much work keeps what is `known` of it.

        Raises KafkaError INVALID_REGULAR_EXPRESSION.
        """
        try:
            return frozenset(filter(may_see, topics_of(regex, self._metadata.topic_names)))
        except KafkaError:
            if known is None:
                raise
            return known

    @staticmethod
    def _drop_regexes(change: Change) -> bool:
        group = change.group
        unused = group.regexes.keys() - group.used_regexes
        for regex in unused:
            change.set_regex(regex, None)
        return bool(unused)

    # -- the target assignment -------------------------------------------------------------------------------------

    def _assign(self, change: Change, assignors: Sequence[str]) -> None:
        group, counts = change.group, {}
        topics: dict[WantedTopics, frozenset[UUID]] = {}
        for subscription in group.subscriptions:
            images = [self._metadata.topic(name) for name in group.topics_of(subscription)]
            found = {image.topic_id: len(image.partitions) for image in images if image is not None}
            counts.update(found)
            topics[subscription] = frozenset(found)
        subscribers = [
            Subscriber(
                member.member_id,
                member.instance_id,
                topics[WantedTopics(member.topics, member.regex)],
                group.targets.get(member.member_id, NOTHING),
            )
            for member in group.members.values()
        ]
        preferred = group.preferred_assignor
        name = preferred if preferred is not None and preferred in assignors else assignors[0]
        for member_id, target in ASSIGNORS[name](subscribers, counts).items():
            change.set_target(member_id, target)
        group.assignment_epoch = group.epoch
