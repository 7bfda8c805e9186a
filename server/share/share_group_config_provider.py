"""Kafka's ShareGroupConfigProvider: the settings of share groups, with the broker's as defaults."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...protocol.special_timestamps import EARLIEST, LATEST
from ...storage.log_values import FetchIsolation
from ..config.keys.validators import parse_duration_ms
from ..metadata.cluster_features import SINCE_DEAD_LETTERS
from .share_group_settings import ShareGroupSettings

if TYPE_CHECKING:
    from ..config.dynamic_config import DynamicConfig

MAX_CACHED_GROUPS = 10_000
"""Groups whose settings are cached; the cache is cleared at this size, and after each change of settings."""


class ShareGroupConfigProvider:
    """The current settings of share groups. Owned by the SharePartitionManager; used on the event loop."""

    def __init__(self, dynamic_config: DynamicConfig, share_version: Callable[[], int]) -> None:
        """`share_version` returns the finalized level of the feature share.version."""
        self._dynamic_config = dynamic_config
        self._share_version = share_version
        self._settings: dict[str, ShareGroupSettings] = {}
        self._changes = -1
        dynamic_config.on_broker_change(self._settings.clear)

    def settings(self, group_id: str) -> ShareGroupSettings:
        """Return the current settings of a group, within the broker's limits."""
        changes = self._dynamic_config.named_changes
        if changes != self._changes or len(self._settings) >= MAX_CACHED_GROUPS:
            self._settings.clear()
            self._changes = changes
        found = self._settings.get(group_id)
        if found is None:
            found = self._settings[group_id] = self._read(group_id)
        if found.dlq_topic_name and self._share_version() < SINCE_DEAD_LETTERS:
            found = found._replace(dlq_topic_name="")
        return found

    def _read(self, group_id: str) -> ShareGroupSettings:
        value: Callable[[str], Any] = partial(self._dynamic_config.group_config, group_id)
        is_committed = value("share.isolation.level") == "read_committed"
        return ShareGroupSettings(
            delivery_count_limit=value("share.delivery.count.limit"),
            partition_max_record_locks=value("share.partition.max.record.locks"),
            record_lock_duration_ms=value("share.record.lock.duration.ms"),
            renew_acknowledge_enable=value("share.renew.acknowledge.enable"),
            auto_offset_reset=value("share.auto.offset.reset"),
            isolation=FetchIsolation.TXN_COMMITTED if is_committed else FetchIsolation.HIGH_WATERMARK,
            dlq_topic_name=value("errors.deadletterqueue.topic.name"),
            dlq_copy_record_enable=value("errors.deadletterqueue.copy.record.enable"),
        )


def reset_timestamp(auto_offset_reset: str, now_ms: int) -> int:
    """Return the timestamp to search for the first offset of a group: EARLIEST, LATEST, or a time in the past in ms."""
    if auto_offset_reset in ("earliest", "latest"):
        return EARLIEST if auto_offset_reset == "earliest" else LATEST
    # The parser of the validator: with another one, a duration that the validator accepts could be read as `latest`,
    # and the group would skip records.
    duration_ms = parse_duration_ms(auto_offset_reset.removeprefix("by_duration:"))
    assert duration_ms is not None, f"{auto_offset_reset}: the validator accepts durations only"
    return max(0, now_ms - duration_ms)
