"""The topics that the members of a group read: their metadata, and matches of regular expressions (KIP-848).

Kafka: the subscription metadata and `maybeUpdateRegularExpressions` of GroupMetadataManager. No I/O, no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ....common.room_logger import room_logger
from ....common.steps import run_to_end
from ....protocol.errors import ErrorCode, KafkaError
from ...runtime.loop_sharing import Steps
from .consumer_group import ConsumerGroup, ResolvedRegularExpression
from .consumer_group_change import ConsumerGroupChange
from .modern_group import NO_EPOCH, ModernGroup
from .modern_group_change import ModernGroupChange

if TYPE_CHECKING:
    from ...metadata.metadata_cache import MetadataCache, PartitionImage, TopicImage
    from .consumer_heartbeat import MaySee

logger = room_logger("groups")

REGEX_REFRESH_MS = 10_000
"""The shortest time between two resolutions of a group's regular expressions."""
REGEX_LONGEST_MS = 600_000
"""The longest time between two resolutions: ACLs may have changed. Kafka: group.consumer.regex.refresh.interval.ms."""


class RegexResolution(NamedTuple):
    """The topics that match each regular expression of a group, with the version of the metadata and the time."""

    topics: dict[str, frozenset[str]]
    version: int
    timestamp_ms: int


def check_regex(regex: str) -> None:
    """Raise KafkaError INVALID_REGULAR_EXPRESSION for an expression that is invalid or too large."""
    # Imported with the first expression: it loads Unicode's tables, and few groups use expressions.
    from ...patterns.linear_pattern import LinearPattern
    from ...patterns.regex_syntax import RegexSyntaxError

    try:
        LinearPattern(regex)
    except RegexSyntaxError as error:
        text = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from None


class SubscriptionMetadata:
    """The comparison of groups' subscriptions with the metadata of the cluster.

    Owned by the manager of a group type and used on the loop's thread only.
    """

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def is_up_to_date(self, group: ConsumerGroup) -> bool:
        """Return whether topics are as at the last comparison."""
        return group.checked_version == self._metadata.version

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
        return run_to_end(self.hash_topics({name: self._metadata.topic(name) for name in names}))

    def hash_topics(self, topics: Mapping[str, TopicImage | None]) -> Steps[int]:
        """Return the hash of `compute_topics_hash` for these topics by name, one topic per step."""
        digest, found = blake2b(digest_size=8), False
        for name, topic in sorted(topics.items(), key=itemgetter(0)):
            if topic is None:
                continue
            found = True
            digest.update(b"%b\0%b%d" % (name.encode(), topic.topic_id.bytes, len(topic.partitions)))
            digest.update(self._encode_racks(topic.partitions.values()))
            yield
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

    def must_resolve_regexes(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Return whether the regular expressions of a group have to be resolved now.

        As in Kafka, they are resolved at most once in `REGEX_REFRESH_MS`: an expression of a group with other results
        waits until then.
        """
        used = group.used_regexes
        if not used or group.is_resolving_regexes:
            return False
        age_ms = now_ms - group.regexes_resolved_ms
        if group.regexes and group.regexes_version != NO_EPOCH and age_ms < REGEX_REFRESH_MS:
            return False
        is_stale = group.regexes_version != self._metadata.version or age_ms >= REGEX_LONGEST_MS
        return is_stale or len(used) != len(group.regexes)

    def resolve_regexes(self, group: ConsumerGroup, now_ms: int, may_see: MaySee) -> Steps[RegexResolution]:
        """Find the topics that match the regular expressions of a group, one topic per step.

        Topics match if the member whose heartbeat began the resolution `may_see` them, as in Kafka.
        """
        # Before the first topic: a topic that is created in between has a later version.
        version, names = self._metadata.version, list(self._metadata.topic_names)
        resolved: dict[str, frozenset[str]] = {}
        for regex in list(group.used_regexes):
            known = group.regexes.get(regex)
            resolved[regex] = yield from _matching_topics(
                regex, names, frozenset() if known is None else known.topics, may_see
            )
        return RegexResolution(resolved, version, now_ms)

    def apply_resolution(self, change: ConsumerGroupChange, resolution: RegexResolution) -> None:
        """Set the results of a resolution, and bump the group epoch if topics or their metadata have changed."""
        group, must_bump = change.group, False
        for regex, topics in resolution.topics.items():
            if regex not in group.used_regexes:  # no member subscribes to it any more
                continue
            known = group.regexes.get(regex)
            must_bump = must_bump or topics != (frozenset() if known is None else known.topics)
            if known is None or topics != known.topics:
                result = ResolvedRegularExpression(topics, resolution.version, resolution.timestamp_ms)
                change.set_regex(regex, result)
        self.drop_unused_regexes(change)
        group.regexes_version, group.regexes_resolved_ms = resolution.version, resolution.timestamp_ms
        metadata_hash = self.compute_group_hash(group)
        if must_bump or metadata_hash != group.metadata_hash:
            change.bump_epoch(metadata_hash)

    @staticmethod
    def drop_unused_regexes(change: ConsumerGroupChange) -> None:
        """Remove the results of expressions to which no member subscribes."""
        group = change.group
        for regex in group.regexes.keys() - group.used_regexes:
            change.set_regex(regex, None)


def _matching_topics(
    regex: str, names: Iterable[str], former: frozenset[str], may_see: MaySee
) -> Steps[frozenset[str]]:
    """Return the topics that match. An expression that takes too much work keeps its former result."""
    from ...patterns.linear_pattern import LinearPattern
    from ...patterns.regex_syntax import RegexSyntaxError

    found = set()
    try:
        pattern = LinearPattern(regex)
        for name in names:
            if pattern.matches(name) and may_see(name):
                found.add(name)
            yield
    except RegexSyntaxError as error:
        logger.warning("cannot resolve regular expression %r of a subscription: %s", regex, error)
        return former
    return frozenset(found)
