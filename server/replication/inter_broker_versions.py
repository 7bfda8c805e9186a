"""The request versions between brokers for each `inter.broker.protocol.version` (Kafka's MetadataVersion).

During an upgrade the brokers of a cluster are of different releases: until the setting is raised, each broker uses the
versions of the oldest release, even if the other broker supports newer ones.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache
from typing import TYPE_CHECKING

from ...protocol.apis import ApiKey

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig

Release = tuple[int, ...]
SINCE_TOPIC_IDS = "2.8-IV1"
"""The first `inter.broker.protocol.version` in which brokers send each other the ids of topics."""
LATEST_STEP = 99
"""The step of a release that is given without its -IV suffix: all steps of the release."""
_PARTS = re.compile(r"(?P<release>\d+(?:\.\d+)*)(?:-IV(?P<step>\d+))?")

STEPS: dict[ApiKey, tuple[tuple[Release, int], ...]] = {
    ApiKey.FETCH: (
        ((0, 8), 0), ((0, 9), 1), ((0, 10, 0, 0), 2), ((0, 10, 1, 1), 3), ((0, 11, 0), 4), ((0, 11, 1), 5),
        ((1, 1, 0), 7), ((2, 0, 1), 8), ((2, 1, 2), 10), ((2, 3, 1), 11), ((2, 7, 1), 12), ((3, 1, 0), 13),
        ((3, 5, 0), 14), ((3, 5, 1), 15), ((3, 7, 4), 16), ((3, 9, 0), 17),
    ),
    ApiKey.LIST_OFFSETS: (
        ((0, 8), 0), ((0, 10, 1, 2), 1), ((0, 11, 0), 2), ((2, 0, 1), 3), ((2, 1, 1), 4), ((2, 2, 1), 5),
        ((2, 8, 1), 6), ((3, 0, 1), 7), ((3, 5, 0), 8),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        ((0, 8), 0), ((2, 0, 0), 1), ((2, 1, 1), 2), ((2, 3, 1), 3), ((2, 8, 0), 4),
    ),
    ApiKey.LEADER_AND_ISR: (
        ((0, 8), 0), ((1, 0, 0), 1), ((2, 2, 0), 2), ((2, 4, 0), 3), ((2, 4, 1), 4), ((2, 8, 1), 5), ((3, 2, 0), 6),
        ((3, 4, 0), 7),
    ),
    ApiKey.STOP_REPLICA: (((0, 8), 0), ((2, 2, 0), 1), ((2, 4, 1), 2), ((2, 6, 0), 3), ((3, 4, 0), 4)),
    ApiKey.UPDATE_METADATA: (
        ((0, 8), 0), ((0, 9), 1), ((0, 10, 0, 1), 2), ((0, 10, 2, 0), 3), ((1, 0, 0), 4), ((2, 2, 0), 5),
        ((2, 4, 1), 6), ((2, 8, 1), 7), ((3, 4, 0), 8),
    ),
    ApiKey.CONTROLLED_SHUTDOWN: (((0, 8), 0), ((0, 9), 1), ((2, 2, 0), 2), ((2, 4, 1), 3)),
    ApiKey.ALTER_PARTITION: (((0, 8), 1), ((2, 8, 0), 3)),
}  # fmt: skip
"""The first release and step in which brokers send a version; old releases have four parts, as in 0.10.0-IV0."""


def _parsed(version: str) -> Release:
    match = _PARTS.match(version)
    if match is None:
        raise ValueError(f"{version}: unknown version of the inter-broker protocol")
    parts = tuple(int(part) for part in match["release"].split("."))
    significant = parts[:3] if parts[:2] == (0, 10) else parts[:2]
    return (*significant, LATEST_STEP if match["step"] is None else int(match["step"]))


def is_at_least(inter_broker_protocol: str, version: str) -> bool:
    """Return whether all brokers of a cluster support the features of a version."""
    return _parsed(inter_broker_protocol) >= _parsed(version)


def has_topic_ids(config: BrokerConfig) -> bool:
    """Return whether topics have ids. Brokers before 2.8, possible in a cluster with ZooKeeper, do not support them."""
    return not config.zookeeper_connect or is_at_least(config.inter_broker_protocol_version, SINCE_TOPIC_IDS)


@cache
def highest_version(api_key: ApiKey, inter_broker_protocol: str) -> int:
    """Return the newest version of a request that may be sent to another broker."""
    steps = STEPS[api_key]
    return steps[bisect_right(steps, _parsed(inter_broker_protocol), key=lambda step: step[0]) - 1][1]
