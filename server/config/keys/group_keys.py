"""Keys of a group (KIP-848, KIP-932, KIP-1071)."""

from __future__ import annotations

from .builders import MEDIUM, integer, string
from .definition import ConfigKey
from .validators import OffsetReset, OneOf, Range

GROUP_KEYS: tuple[ConfigKey, ...] = (
    integer("consumer.heartbeat.interval.ms", 5000, MEDIUM, Range(1)),
    integer("consumer.session.timeout.ms", 45000, MEDIUM, Range(1)),
    string("share.auto.offset.reset", "latest", MEDIUM, OffsetReset()),
    integer("share.heartbeat.interval.ms", 5000, MEDIUM, Range(1)),
    string("share.isolation.level", "read_uncommitted", MEDIUM, OneOf("read_committed", "read_uncommitted")),
    integer("share.record.lock.duration.ms", 30000, MEDIUM, Range(1000)),
    integer("share.session.timeout.ms", 45000, MEDIUM, Range(1)),
    integer("streams.heartbeat.interval.ms", 5000, MEDIUM, Range(1)),
    integer("streams.num.standby.replicas", 0, MEDIUM, Range(0)),
    integer("streams.session.timeout.ms", 45000, MEDIUM, Range(1)),
)
