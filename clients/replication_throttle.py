"""Throttles of the replication of reassigned partitions, as kafka-reassign-partitions sets and removes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..protocol.config_resources import ConfigOperation, ConfigResourceType, ConfigSource
from ..protocol.topic_partition import TopicPartition
from .admin import Admin, ConfigChange, ConfigResource, raise_first

BROKER_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
OWN_SOURCES = (ConfigSource.TOPIC, ConfigSource.DYNAMIC_BROKER)


async def throttle_reassignment(
    admin: Admin,
    before: Mapping[TopicPartition, Sequence[int]],
    after: Mapping[TopicPartition, Sequence[int]],
    rate: int,
) -> None:
    """Limit the copies as kafka-reassign-partitions does: present replicas send, new replicas receive (KIP-73).

    `before` and `after` have the replicas of each partition. `rate` is in bytes per second, for each broker. As in
    Kafka, the throttled replicas of a topic include its partitions that are being reassigned already; other replicas
    are replaced. Raises KafkaError.
    """
    topics = {one.topic for one in after}
    moves = {
        one: (set(moving.replicas) - set(moving.adding_replicas), set(moving.adding_replicas))
        for one, moving in (await admin.list_partition_reassignments()).items()
        if one.topic in topics
    }
    for one, replicas in after.items():
        # A partition that is reassigned once more is copied from its former replicas.
        present = moves[one][0] if one in moves else set(before[one])
        moves[one] = present, set(replicas) - present
    changes: dict[ConfigResource, list[ConfigChange]] = {}
    brokers: set[int] = set()
    for topic in sorted(topics):
        senders, receivers = [], []
        for one in sorted(one for one in moves if one.topic == topic):
            present, added = moves[one]
            if added:
                senders += [f"{one.partition}:{broker}" for broker in sorted(present)]
                receivers += [f"{one.partition}:{broker}" for broker in sorted(added)]
                brokers |= present | added
        if receivers:
            changes[ConfigResource(ConfigResourceType.TOPIC, topic)] = [
                ConfigChange(LEADERS, ",".join(senders)),
                ConfigChange(FOLLOWERS, ",".join(receivers)),
            ]
    for broker in sorted(brokers):
        changes[ConfigResource(ConfigResourceType.BROKER, str(broker))] = [
            ConfigChange(key, str(rate)) for key in BROKER_RATES
        ]
    if changes:
        raise_first(await admin.alter_configs(changes))


async def remove_throttles(admin: Admin) -> None:
    """Remove the throttles of all brokers and topics. Raises KafkaError."""
    cluster = await admin.describe_cluster()
    resources = [ConfigResource(ConfigResourceType.BROKER, str(one.node_id)) for one in cluster.brokers]
    resources += [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in await admin.describe_topics()]
    keys = {ConfigResourceType.BROKER: BROKER_RATES, ConfigResourceType.TOPIC: (LEADERS, FOLLOWERS)}
    changes = {}
    for resource, entries in (await admin.describe_configs(resources)).items():
        present = {entry.name for entry in entries if entry.source in OWN_SOURCES}
        throttles = [key for key in keys[resource.type] if key in present]
        if throttles:
            changes[resource] = [ConfigChange(key, None, ConfigOperation.DELETE) for key in throttles]
    if changes:
        raise_first(await admin.alter_configs(changes))
