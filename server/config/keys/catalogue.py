"""The tables of all keys by resource, and the synonyms of keys."""

from __future__ import annotations

from types import MappingProxyType

from .client_metrics_keys import CLIENT_METRICS_KEYS as _CLIENT_METRICS
from .cluster_keys import CLUSTER_KEYS
from .cluster_keys import DYNAMIC_ONLY_KEYS as _DYNAMIC_ONLY
from .coordinator_keys import COORDINATOR_KEYS
from .definition import ConfigTable
from .group_keys import GROUP_KEYS as _GROUP
from .group_type_keys import SHARE_KEYS, STREAMS_KEYS
from .log_keys import LOG_KEYS
from .network_keys import NETWORK_KEYS
from .own_keys import OWN_KEYS
from .quorum_keys import QUORUM_KEYS
from .remote_keys import REMOTE_KEYS
from .security_keys import SECURITY_KEYS
from .topic_keys import TOPIC_KEYS as _TOPIC

BROKER_KEYS = ConfigTable(
    (
        *LOG_KEYS,
        *NETWORK_KEYS,
        *CLUSTER_KEYS,
        *COORDINATOR_KEYS,
        *SHARE_KEYS,
        *STREAMS_KEYS,
        *SECURITY_KEYS,
        *QUORUM_KEYS,
        *REMOTE_KEYS,
        *OWN_KEYS,
    )
)
TOPIC_KEYS = ConfigTable(_TOPIC)
DYNAMIC_ONLY_KEYS = ConfigTable(_DYNAMIC_ONLY)
GROUP_KEYS = ConfigTable(_GROUP)
CLIENT_METRICS_KEYS = ConfigTable(_CLIENT_METRICS)

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000

# Broker keys for one value in different units, by descending precedence, with the factor to the unit of the first.
_SAME_SETTING: tuple[tuple[tuple[str, int], ...], ...] = (
    (("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
)

# First key of a chain -> its keys, by descending precedence.
UNIT_CHAINS = MappingProxyType({chain[0][0]: chain for chain in _SAME_SETTING})

# All keys of a chain are synonyms, except that the scheduler's interval only replaces a missing flush interval.
_STAND_IN_ONLY = "log.flush.scheduler.interval.ms"
BROKER_SYNONYMS = MappingProxyType(
    {
        name: tuple(member for member, _ in chain)
        for chain in _SAME_SETTING
        for name, _ in chain
        if name != _STAND_IN_ONLY
    }
)

# Topic key -> the broker key that it takes its default from.
TOPIC_SYNONYMS = MappingProxyType(
    {
        "cleanup.policy": "log.cleanup.policy",
        "compression.gzip.level": "compression.gzip.level",
        "compression.lz4.level": "compression.lz4.level",
        "compression.type": "compression.type",
        "compression.zstd.level": "compression.zstd.level",
        "delete.retention.ms": "log.cleaner.delete.retention.ms",
        "file.delete.delay.ms": "log.segment.delete.delay.ms",
        "flush.messages": "log.flush.interval.messages",
        "flush.ms": "log.flush.interval.ms",
        "index.interval.bytes": "log.index.interval.bytes",
        "local.retention.bytes": "log.local.retention.bytes",
        "local.retention.ms": "log.local.retention.ms",
        "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
        "max.decompressed.message.bytes": "max.decompressed.message.bytes",
        "max.message.bytes": "message.max.bytes",
        "message.downconversion.enable": "log.message.downconversion.enable",
        "message.format.version": "log.message.format.version",
        "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms": "log.message.timestamp.difference.max.ms",
        "message.timestamp.type": "log.message.timestamp.type",
        "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
        "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
        "min.insync.replicas": "min.insync.replicas",
        "preallocate": "log.preallocate",
        "remote.copy.lag.bytes": "log.remote.copy.lag.bytes",
        "remote.copy.lag.ms": "log.remote.copy.lag.ms",
        "retention.bytes": "log.retention.bytes",
        "retention.ms": "log.retention.ms",
        "segment.bytes": "log.segment.bytes",
        "segment.index.bytes": "log.index.size.max.bytes",
        "segment.jitter.ms": "log.roll.jitter.ms",
        "segment.ms": "log.roll.ms",
        "unclean.leader.election.enable": "unclean.leader.election.enable",
    }
)

# Group key -> the broker key that it takes its default from.
GROUP_SYNONYMS = MappingProxyType(
    {
        **{name: f"group.{name}" for name in GROUP_KEYS if f"group.{name}" in BROKER_KEYS},
        "streams.assignor.name": "group.streams.assignors",
    }
)


def synonyms(broker_key: str) -> tuple[str, ...]:
    """Return the names under which a broker key may be set, by descending precedence (Kafka: DynamicBrokerConfig)."""
    return BROKER_SYNONYMS.get(broker_key, (broker_key,))


def group_documentation(name: str) -> str | None:
    """Return the description of a group's key, its own or that of the broker key that it overrides."""
    own = GROUP_KEYS[name].doc
    if own is None and name in GROUP_SYNONYMS:
        own = BROKER_KEYS[GROUP_SYNONYMS[name]].doc
    return None if own is None else own.replace(" A group can override it.", "")
