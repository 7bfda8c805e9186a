"""The settings of one share group, or the broker's where the group has none."""

from __future__ import annotations

from typing import NamedTuple

from ...storage.log_values import FetchIsolation


class ShareGroupSettings(NamedTuple):
    """The settings that the data path of a share group uses. The names are Kafka's."""

    delivery_count_limit: int = 5
    """`share.delivery.count.limit`: deliveries after which a record is archived."""
    partition_max_record_locks: int = 2000
    """`share.partition.max.record.locks`: offsets in flight per partition."""
    record_lock_duration_ms: int = 30_000
    """`share.record.lock.duration.ms`: the duration of an acquisition lock."""
    renew_acknowledge_enable: bool = True
    """`share.renew.acknowledge.enable`: whether members may renew their acquisition locks (KIP-1222)."""
    auto_offset_reset: str = "latest"
    """`share.auto.offset.reset`: earliest, latest or by_duration:<ISO 8601 duration>."""
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK
    """`share.isolation.level`."""
    dlq_topic_name: str = ""
    """`errors.deadletterqueue.topic.name`: the topic for rejected records; empty without a dead-letter queue."""
    dlq_copy_record_enable: bool = False
    """`errors.deadletterqueue.copy.record.enable`: whether dead letters contain the key and value of the record."""
