"""The topics that the members of a group read: their metadata, and matches of regular expressions (KIP-848).

Kafka: the subscription metadata and `maybeUpdateRegularExpressions` of GroupMetadataManager. No I/O, no time.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ....protocol.errors import ErrorCode, KafkaError
from .consumer_group import ConsumerGroup, ResolvedRegularExpression
from .consumer_group_change import ConsumerGroupChange
from .consumer_group_member import ConsumerGroupMember
from .modern_group import ModernGroup
from .modern_group_change import ModernGroupChange

if TYPE_CHECKING:
    from ...metadata.metadata_cache import MetadataCache, PartitionImage
    from .consumer_heartbeat import MaySee

REGEX_REFRESH_MS = 10_000
"""The time between two resolutions of a group's regular expressions while topics are created or deleted."""
REGEX_LONGEST_MS = 600_000
"""The longest time between two resolutions: ACLs may have changed."""


def match_topics(regex: str, names: Iterable[str]) -> frozenset[str]:
    """Return the topics that match. Raises KafkaError INVALID_REGULAR_EXPRESSION, also without topics."""
    # Imported with the first expression: it loads Unicode's tables, and few groups use expressions.
    from ...patterns.linear_pattern import LinearPattern
    from ...patterns.regex_syntax import RegexSyntaxError

    try:
        pattern = LinearPattern(regex)
        return frozenset(name for name in names if pattern.matches(name))
    except RegexSyntaxError as error:
        text = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from None


class SubscriptionMetadata:
    """The comparison of groups' subscriptions with the metadata of the cluster.

    Owned by the manager of a group type and used on the loop's thread only.
    """

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def is_up_to_date(self, group: ConsumerGroup, member: ConsumerGroupMember, now_ms: int) -> bool:
        """Return whether topics are as at the last comparison, and a member's regular expression as resolved."""
        version = self._metadata.version
        is_fresh = group.regexes_version == version and now_ms - group.regexes_resolved_ms < REGEX_LONGEST_MS
        return group.checked_version == version and (is_fresh or not member.regex)

    # -- topics --------------------------------------------------------------------------------------------------------

    def maybe_bump_epoch(self, change: ModernGroupChange[Any, Any, Any], *, must_bump: bool) -> None:
        """Bump the group epoch if required, or if the metadata of a subscribed topic has changed."""
        group = change.group
        if not must_bump and group.checked_version == self._metadata.version:
            return
        metadata_hash = self.compute_group_hash(group)
        if must_bump or metadata_hash != group.metadata_hash:
            change.bump_epoch(metadata_hash)
        group.checked_version = self._metadata.version

    def compute_group_hash(self, group: ModernGroup[Any, Any]) -> int:
        """Return a hash of the subscribed topics, their partitions and the racks of their replicas."""
        return self.compute_topics_hash(group.subscribed_topics)

    def compute_topics_hash(self, names: Iterable[str]) -> int:
        """Return a hash of these topics, their partitions and the racks of their replicas; 0 if none exists."""
        digest, found = blake2b(digest_size=8), False
        for name in sorted(names):
            topic = self._metadata.topic(name)
            if topic is None:
                continue
            found = True
            digest.update(b"%b\0%b%d" % (name.encode(), topic.topic_id.bytes, len(topic.partitions)))
            digest.update(self._encode_racks(topic.partitions.values()))
        return int.from_bytes(digest.digest(), "big", signed=True) if found else 0

    def _encode_racks(self, partitions: Iterable[PartitionImage]) -> bytes:
        brokers = self._metadata.brokers
        if not any(broker.rack for broker in brokers.values()):
            return b""
        racks = (
            sorted({brokers[replica].rack or "" for replica in image.replicas if replica in brokers})
            for image in partitions
        )
        return repr(list(racks)).encode()

    # -- regular expressions -------------------------------------------------------------------------------------------

    def resolve_regexes(self, change: ConsumerGroupChange, now_ms: int, may_see: MaySee | None) -> bool:
        """Resolve new regular expressions, or all of them if topics have changed; return whether a result has changed.

        Topics match if the member with the request `may_see` them, as in Kafka; None resolves nothing.
        """
        group, version = change.group, self._metadata.version
        used = group.used_regexes
        if not used and not group.regexes:
            return False
        has_changed = self.drop_unused_regexes(change)
        if may_see is None:
            return has_changed
        age_ms = now_ms - group.regexes_resolved_ms
        is_stale = age_ms >= (REGEX_REFRESH_MS if group.regexes_version != version else REGEX_LONGEST_MS)
        for regex in used:
            known = group.regexes.get(regex)
            if known is not None and not is_stale:
                continue
            topics = self._resolve_regex(regex, None if known is None else known.topics, may_see)
            if known is None or known.topics != topics:
                change.set_regex(regex, ResolvedRegularExpression(topics, version, now_ms))
                has_changed = True
        if is_stale:
            group.regexes_version, group.regexes_resolved_ms = version, now_ms
        return has_changed

    def _resolve_regex(self, regex: str, known: frozenset[str] | None, may_see: MaySee) -> frozenset[str]:
        """Return the topics that match. An expression that has become too expensive keeps its last result.

        Raises KafkaError INVALID_REGULAR_EXPRESSION.
        """
        try:
            return frozenset(filter(may_see, match_topics(regex, self._metadata.topic_names)))
        except KafkaError:
            if known is None:
                raise
            return known

    @staticmethod
    def drop_unused_regexes(change: ConsumerGroupChange) -> bool:
        """Remove the results of expressions to which no member subscribes; return whether there were any."""
        group = change.group
        unused = group.regexes.keys() - group.used_regexes
        for regex in unused:
            change.set_regex(regex, None)
        return bool(unused)
