"""Kafka's MetadataCache: brokers, topics by name and id, and cached parts of Metadata responses.

A topic's image is immutable; an update replaces it. Responses are built once for each topic, listener and family of
versions, and built again when the topic or any broker has changed: they are shared, so callers must not change them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple
from uuid import UUID

from ...protocol.errors import ErrorCode
from ...protocol.messages.metadata import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from ...protocol.schema import ZERO_UUID
from ...protocol.topic_partition import TopicPartition
from .topic_names import collision_key, has_collision_chars, is_internal
from .znodes import NO_LEADER, BrokerEndpoint, BrokerInfo


class PartitionImage(NamedTuple):
    """One partition as the controller last announced it."""

    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    """Replicas on live brokers whose log directory has failed."""
    eligible_leader_replicas: tuple[int, ...] = ()
    """Replicas outside of the ISR that have all committed records (KIP-966); only in KRaft clusters."""
    last_known_elr: tuple[int, ...] = ()


@dataclass(frozen=True)
class TopicImage:
    """One topic with all its partitions, ordered by index."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionImage]

    @cached_property
    def is_internal(self) -> bool:
        """Whether the topic is one of Kafka's own."""
        return is_internal(self.name)


class MetadataResponseFormat(IntEnum):
    """Families of Metadata versions with the same description of a partition."""

    LIVE_REPLICAS_ONLY = 0
    """v0 leaves dead brokers out of the replica lists and reports them as error 9."""
    ALL_REPLICAS = 1
    """v1 to v5."""
    MISSING_LISTENERS = 2
    """v6+ distinguishes a leader without the client's listener (72) from no leader (5)."""

    @classmethod
    def of(cls, version: int) -> MetadataResponseFormat:
        if version == 0:
            return cls.LIVE_REPLICAS_ONLY
        return cls.ALL_REPLICAS if version < 6 else cls.MISSING_LISTENERS


class RemovedTopics(NamedTuple):
    """Topics that were deleted. `ids` also has topics whose names have been created again."""

    names: list[str]
    ids: list[UUID]


class MetadataSnapshot:
    """Brokers and topics at one moment, and the parts of Metadata responses that describe them.

    Kafka's MetadataSnapshot. A request that is handled in several turns of the loop uses one snapshot for its whole
    response. In a KRaft cluster a snapshot in the cache does not change: the next image replaces it. Otherwise the
    controller and UpdateMetadata change it in parts.
    """

    __slots__ = (
        "_broker_answers",
        "_described_topics",
        "_reachable",
        "_topics_with_collision_chars",
        "brokers",
        "fenced_brokers",
        "names",
        "topics",
        "version",
    )

    def __init__(self) -> None:
        self.version = 0
        """Changes when topics or partitions are added or deleted, and when brokers move to other racks."""
        self.brokers: Mapping[int, BrokerInfo] = {}
        """Live brokers by id."""
        self.fenced_brokers: Mapping[int, BrokerInfo] = {}
        """Registered brokers of a KRaft cluster that are not alive, by id."""
        self.topics: dict[str, TopicImage] = {}
        self.names: dict[bytes, str] = {}
        """The names of topics by the 16 bytes of their ids, the form in Produce requests. Controllers of old releases
        announce topics without ids, which are not in it."""
        self._topics_with_collision_chars: dict[str, tuple[str, ...]] = {}
        """The names with `.` or `_` by collision key; several if one request or an earlier broker created them."""
        self._broker_answers: dict[str, list[MetadataResponseBroker]] = {}
        self._reachable: dict[str, frozenset[int]] = {}
        """The brokers with an endpoint on a listener."""
        self._described_topics: dict[tuple[str, MetadataResponseFormat], dict[str, _DescribedTopic]] = {}

    def copy(self) -> MetadataSnapshot:
        """Return a snapshot that can be changed without an effect on this one."""
        copy = MetadataSnapshot()
        copy.version = self.version
        copy.brokers, copy.fenced_brokers = self.brokers, self.fenced_brokers
        copy.topics, copy.names = dict(self.topics), dict(self.names)
        copy._topics_with_collision_chars = dict(self._topics_with_collision_chars)
        copy._broker_answers, copy._reachable = dict(self._broker_answers), dict(self._reachable)
        copy._described_topics = {key: dict(answers) for key, answers in self._described_topics.items()}
        return copy

    # Brokers

    def set_brokers(self, brokers: Mapping[int, BrokerInfo], fenced: Mapping[int, BrokerInfo] | None = None) -> None:
        """Replace the live brokers, and the fenced ones if they are given."""
        if any(self.rack(broker_id) != broker.rack for broker_id, broker in brokers.items()):
            self.version += 1
        self.brokers = {broker_id: brokers[broker_id] for broker_id in sorted(brokers)}
        if fenced is not None:
            self.fenced_brokers = fenced
        self._broker_answers.clear()
        self._reachable.clear()
        self._described_topics.clear()

    def rack(self, broker_id: int) -> str | None:
        """Return a live broker's rack, if it has one."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.rack

    def endpoint(self, broker_id: int, listener_name: str) -> BrokerEndpoint | None:
        """Return the endpoint of a live broker for clients of a listener."""
        broker = self.brokers.get(broker_id)
        if broker is None:
            return None
        return next((e for e in broker.endpoints if e.listener_name == listener_name), None)

    def response_brokers(self, listener_name: str) -> list[MetadataResponseBroker]:
        """Return the brokers reachable on a listener, as a Metadata response lists them. Shared: do not alter."""
        answer = self._broker_answers.get(listener_name)
        if answer is None:
            answer = self._broker_answers[listener_name] = [
                MetadataResponseBroker(node_id=broker.broker_id, host=e.host, port=e.port, rack=broker.rack)
                for broker in self.brokers.values()
                for e in broker.endpoints
                if e.listener_name == listener_name
            ]
        return answer

    # Topics

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with an id."""
        return self.names.get(topic_id.bytes)

    def colliding_topics(self, name: str) -> Iterable[str]:
        """Return the existing topics of other names with the same metric names as a topic `name`."""
        return (other for other in self._topics_with_collision_chars.get(collision_key(name), ()) if other != name)

    def put_topics(self, topics: Iterable[TopicImage]) -> list[UUID]:
        """Add topics, or replace their images. Return the ids of other topics that had these names."""
        removed_ids = []
        for topic in topics:
            former = self.topics.get(topic.name)
            if former is not None and former.topic_id != topic.topic_id:
                self.names.pop(former.topic_id.bytes, None)
                removed_ids.append(former.topic_id)
            if former is None or not _looks_the_same(former, topic):
                self.version += 1
            self.topics[topic.name] = topic
            if topic.topic_id != ZERO_UUID:
                self.names[topic.topic_id.bytes] = topic.name
            if former is None and has_collision_chars(topic.name):
                key = collision_key(topic.name)
                self._topics_with_collision_chars[key] = (*self._topics_with_collision_chars.get(key, ()), topic.name)
        return removed_ids

    def remove_topics(self, names: Iterable[str]) -> RemovedTopics:
        """Remove topics and return the removed ones; unknown names are ignored."""
        removed = RemovedTopics([], [])
        for name in names:
            topic = self.topics.pop(name, None)
            if topic is not None:
                removed.names.append(name)
                removed.ids.append(topic.topic_id)
                self.names.pop(topic.topic_id.bytes, None)
                if has_collision_chars(name):
                    self._remove_from_collisions(name)
                for answers in self._described_topics.values():
                    answers.pop(name, None)
        if removed.names:
            self.version += 1
        return removed

    def _remove_from_collisions(self, name: str) -> None:
        key = collision_key(name)
        others = tuple(other for other in self._topics_with_collision_chars[key] if other != name)
        if others:
            self._topics_with_collision_chars[key] = others
        else:
            del self._topics_with_collision_chars[key]

    def response_topic(self, name: str, listener_name: str, version: int) -> MetadataResponseTopic | None:
        """Return a topic as a Metadata response of that version describes it. Shared: do not alter."""
        topic = self.topics.get(name)
        if topic is None:
            return None
        family = MetadataResponseFormat.of(version)
        answers = self._described_topics.get((listener_name, family))
        if answers is None:
            answers = self._described_topics[listener_name, family] = {}
        former = answers.get(name)
        if former is not None and former.topic is topic:
            return former.response
        answer = answers[name] = _DescribedTopic(topic, self._describe(topic, listener_name, family, former))
        return answer.response

    def _describe(
        self, topic: TopicImage, listener_name: str, family: MetadataResponseFormat, former: _DescribedTopic | None
    ) -> MetadataResponseTopic:
        """Return the description of a topic. Unchanged partitions keep their descriptions of the `former` answer."""
        reachable = self._reachable.get(listener_name)
        if reachable is None:
            found = (broker for broker in self.brokers if self.endpoint(broker, listener_name) is not None)
            reachable = self._reachable[listener_name] = frozenset(found)
        known: dict[int, MetadataResponsePartition] = {}
        if former is not None:
            images = former.topic.partitions
            known = {
                one.partition_index: one
                for one in former.response.partitions
                if topic.partitions.get(one.partition_index) is images[one.partition_index]
            }
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[
                known.get(index) or self._describe_partition(partition, reachable, family)
                for index, partition in topic.partitions.items()
            ],
        )

    def _describe_partition(
        self, image: PartitionImage, reachable: frozenset[int], family: MetadataResponseFormat
    ) -> MetadataResponsePartition:
        replicas, isr = list(image.replicas), list(image.isr)
        error, leader = ErrorCode.NONE, image.leader
        if family is MetadataResponseFormat.LIVE_REPLICAS_ONLY:
            replicas, isr = [r for r in replicas if r in reachable], [r for r in isr if r in reachable]
            if len(replicas) < len(image.replicas) or len(isr) < len(image.isr):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        if leader not in reachable:
            lacks_listener = family is MetadataResponseFormat.MISSING_LISTENERS and leader in self.brokers
            error = ErrorCode.LISTENER_NOT_FOUND if lacks_listener else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_LEADER
        return MetadataResponsePartition(
            error_code=error,
            partition_index=image.partition,
            leader_id=leader,
            leader_epoch=image.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=[
                replica for replica in image.replicas if replica not in reachable or replica in image.offline_replicas
            ],
        )


class _DescribedTopic(NamedTuple):
    """The description of a topic in Metadata responses, and the image that it describes."""

    topic: TopicImage
    response: MetadataResponseTopic


class MetadataCache:
    """Kafka's MetadataCache: the present snapshot of brokers and topics. It is used on the loop thread.

    In a KRaft cluster `set_snapshot` replaces brokers and topics together, as KRaftMetadataCache.setImage. Otherwise
    the controller or UpdateMetadata change them in parts.
    """

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = -1
        self.on_topics_removed: list[Callable[[list[str]], None]] = []
        """Called with the names of deleted topics."""
        self.on_topic_ids_removed: list[Callable[[list[UUID]], None]] = []
        """Called with the ids of deleted topics, including topics whose names have been created again."""
        self.snapshot = MetadataSnapshot()
        """The present brokers and topics. A response that is built in several turns of the loop uses one snapshot."""

    def set_snapshot(self, snapshot: MetadataSnapshot) -> None:
        """Replace all brokers and topics. The caller then calls `notify_removed` with the topics that were deleted."""
        self.snapshot = snapshot

    @property
    def version(self) -> int:
        """Changes when topics or partitions are added or deleted, and when brokers move to other racks."""
        return self.snapshot.version

    # Brokers

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """Live brokers by id."""
        return self.snapshot.brokers

    @property
    def fenced_brokers(self) -> Mapping[int, BrokerInfo]:
        """Registered brokers of a KRaft cluster that are not alive, by id."""
        return self.snapshot.fenced_brokers

    def set_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Replace the set of live brokers."""
        self.snapshot.set_brokers(brokers)

    def rack(self, broker_id: int) -> str | None:
        """Return a live broker's rack, if it has one."""
        return self.snapshot.rack(broker_id)

    def endpoint(self, broker_id: int, listener_name: str) -> BrokerEndpoint | None:
        """Return the endpoint of a live broker for clients of a listener."""
        return self.snapshot.endpoint(broker_id, listener_name)

    def response_brokers(self, listener_name: str) -> list[MetadataResponseBroker]:
        """Return the brokers reachable on a listener, as a Metadata response lists them. Shared: do not alter."""
        return self.snapshot.response_brokers(listener_name)

    # Topics

    def __contains__(self, name: str) -> bool:
        return name in self.snapshot.topics

    @property
    def names(self) -> Mapping[bytes, str]:
        """The names of topics by the 16 bytes of their ids."""
        return self.snapshot.names

    @property
    def topic_names(self) -> Iterable[str]:
        """All topics' names."""
        return self.snapshot.topics.keys()

    @property
    def topics(self) -> Iterable[TopicImage]:
        return self.snapshot.topics.values()

    def topic(self, name: str) -> TopicImage | None:
        return self.snapshot.topics.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        return self.snapshot.names.get(topic_id.bytes)

    def topic_id(self, name: str) -> UUID | None:
        topic = self.snapshot.topics.get(name)
        return None if topic is None else topic.topic_id

    def has_partition(self, topic: str, index: int) -> bool:
        """Return whether the partition exists, on any brokers."""
        image = self.snapshot.topics.get(topic)
        return image is not None and index in image.partitions

    def colliding_topics(self, name: str) -> Iterable[str]:
        """Return the existing topics of other names with the same metric names as a topic `name`."""
        return self.snapshot.colliding_topics(name)

    def partition(self, partition: TopicPartition) -> PartitionImage | None:
        topic = self.snapshot.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def partitions(self) -> Iterator[TopicPartition]:
        for topic in self.snapshot.topics.values():
            for index in topic.partitions:
                yield TopicPartition(topic.name, index)

    def put_topics(self, topics: Iterable[TopicImage]) -> None:
        """Add topics, or replace their images."""
        self.notify_removed(RemovedTopics([], self.snapshot.put_topics(topics)))

    def remove_topics(self, names: Iterable[str]) -> None:
        """Forget topics; unknown ones are ignored."""
        self.notify_removed(self.snapshot.remove_topics(names))

    def notify_removed(self, removed: RemovedTopics) -> None:
        """Call `on_topics_removed` and `on_topic_ids_removed`."""
        for listener in self.on_topics_removed if removed.names else ():
            listener(removed.names)
        ids = [topic_id for topic_id in removed.ids if topic_id != ZERO_UUID]
        for id_listener in self.on_topic_ids_removed if ids else ():
            id_listener(ids)

    def response_topic(self, name: str, listener_name: str, version: int) -> MetadataResponseTopic | None:
        """Return a topic as a Metadata response of that version describes it. Shared: do not alter."""
        return self.snapshot.response_topic(name, listener_name, version)


def _looks_the_same(former: TopicImage, topic: TopicImage) -> bool:
    """Whether consumers of both images would be assigned the same."""
    return (
        former.topic_id == topic.topic_id
        and former.partitions.keys() == topic.partitions.keys()
        and all(former.partitions[index].replicas == image.replicas for index, image in topic.partitions.items())
    )
