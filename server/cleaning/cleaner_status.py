"""The status of the cleaner: each compacted log, the running passes, and the metrics under Kafka's names."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...protocol.topic_partition import TopicPartition
    from ...storage.log import Log
    from .cleaning_pass import PassReport
    from .log_cleaner import LogCleaner


class CleanerStatus:
    """The status, computed for each request, on the loop thread."""

    def __init__(self, cleaner: LogCleaner) -> None:
        self._cleaner = cleaner

    def facts(self, topic: str | None = None) -> dict[str, object]:
        """Everything, as JSON takes it; of one topic or of all."""
        compacted = [
            (topic_partition, log)
            for topic_partition, log in sorted(self._cleaner.logs.items(), key=lambda item: item[0])
            if log.config.compact and topic in (None, topic_partition.topic)
        ]
        return {
            "running": self._cleaner.is_running,
            "partitions": [self.partition(topic_partition, log) for topic_partition, log in compacted],
            "metrics": self.metrics(),
        }

    def partition(self, topic_partition: TopicPartition, log: Log) -> dict[str, object]:
        """Return the status of one compacted log. Raises OSError."""
        cleaner = self._cleaner
        one = cleaner.manager.describe(topic_partition, log)
        going_on, report = cleaner.passes.get(topic_partition), cleaner.reports.get(topic_partition)
        phase, done, total = (None, 0, 0) if going_on is None else going_on.progress
        return {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "bytes": log.size,
            "segments": len(log.segments),
            "clean_bytes": one.clean_bytes,
            "cleanable_bytes": one.cleanable_bytes,
            "active_bytes": log.active_segment.size,
            "dirty_ratio": round(one.dirty_ratio, 4),
            "first_dirty_offset": one.first_dirty_offset,
            "first_uncleanable_offset": one.first_uncleanable_offset,
            "log_end_offset": log.log_end_offset,
            "phase": phase,
            "phase_done": done,
            "phase_total": total,
            "uncleanable": cleaner.manager.uncleanable.get(topic_partition),
            "reclaimed_bytes": cleaner.reclaimed.get(topic_partition, 0),
            "last_pass": None if report is None else pass_facts(report),
        }

    def metrics(self) -> dict[str, float]:
        """Kafka's LogCleaner and LogCleanerManager, by the names of their MBeans."""
        cleaner = "kafka.log:type=LogCleaner,name="
        manager = "kafka.log:type=LogCleanerManager,name="
        reports = list(self._cleaner.reports.values())
        read = sum(report.stats.bytes_read for report in reports)
        written = sum(report.stats.bytes_written for report in reports)
        values: dict[str, float] = {
            f"{cleaner}max-buffer-utilization-percent": int(
                100 * max((report.stats.map_utilization for report in reports), default=0.0)
            ),
            f"{cleaner}cleaner-recopy-percent": int(100 * written / max(read, 1)),
            f"{cleaner}max-clean-time-secs": int(max((report.seconds for report in reports), default=0.0)),
            f"{cleaner}max-compaction-delay-secs": max((r.compaction_delay_ms for r in reports), default=0) // 1000,
            f"{cleaner}DeadThreadCount": 0 if self._cleaner.is_running or not self._cleaner.is_enabled else 1,
        }
        dirtiest = max((one.dirty_ratio for one in self._cleaner.manager.last_look), default=0.0)
        values[f"{manager}max-dirty-percent"] = int(100 * dirtiest)
        values[f"{manager}time-since-last-run-ms"] = self._cleaner.since_last_look_ms
        for directory, logs in self._uncleanable().items():
            values[f"{manager}uncleanable-partitions-count,logDirectory={directory}"] = len(logs)
            values[f"{manager}uncleanable-bytes,logDirectory={directory}"] = sum(log.size for log in logs)
        return values

    def _uncleanable(self) -> dict[str, list[Log]]:
        """Return the logs that are left alone, by directory."""
        found: dict[str, list[Log]] = {log.directory: [] for log in self._cleaner.logs.values()}
        for topic_partition in self._cleaner.manager.uncleanable:
            log = self._cleaner.logs.get(topic_partition)
            if log is not None:
                found[log.directory].append(log)
        return found


def pass_facts(report: PassReport) -> dict[str, object]:
    """Return a pass as a JSON object."""
    return {**asdict(report), "reclaimed_bytes": report.reclaimed_bytes}
