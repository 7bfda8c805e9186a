"""The broker's side of a console in the same process: request metrics, logs on disk and the cleaner.

The console runs on its own loop so that its work does not delay requests. Each method runs on the broker's loop and
passes its result back. All results are JSON values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_partition import TopicPartition
from ..storage.cleaning.tombstones import count_tombstones
from ..storage.errors import CorruptSegmentError
from ..storage.file_records import FileRecords
from .cleaning.cleaner_status import CleanerStatus, pass_facts
from .runtime.loop_sharing import CountBudget

if TYPE_CHECKING:
    from ..storage.filesystem import FileSystem
    from ..storage.log import Log
    from .broker import BrokerServer
    from .metrics.readings import Reading

Facts = dict[str, Any]
T = TypeVar("T")
MAX_LOGS = 12
"""Logs of a topic in one result."""
MAX_SEGMENTS = 400
"""Segments of a log in one result: the newest."""
COUNT_SECONDS = 1.0
"""Time limit of one count of tombstones."""
_LANE = "console"
_MS = 1000
_BYTES = "kafka_server_brokertopicmetrics_bytes"
_REQUESTS = "kafka_network_requestmetrics_"
_PHASES = {"totaltimems": "total", "localtimems": "local", "remotetimems": "remote", "responsesendtimems": "send"}


class ConsoleBackend:
    """The data source of a console in the broker's process, awaited on any loop. Methods raise KafkaError."""

    def __init__(self, server: BrokerServer, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` is the loop of `server`."""
        self._server = server
        self._loop = loop

    async def totals(self) -> Facts:
        """Return the bytes in and out since the start, or an empty dict if the broker has no metrics."""
        reading = await self._reading()
        return {} if reading is None else {f"bytes_{end}": reading.total(_BYTES + end) for end in ("in", "out")}

    async def requests(self) -> list[Facts]:
        """Return a row for each API with milliseconds by phase and quantile, or none if the broker has no metrics."""
        rows: dict[str, Facts] = {}
        reading = await self._reading()
        for family, part, labels, value in () if reading is None else reading.samples:
            if not family.startswith(_REQUESTS):
                continue
            row = rows.setdefault(labels["request"], {"api": labels["request"], "count": 0})
            phase = _PHASES.get(family.removeprefix(_REQUESTS))
            if phase is None:
                row["count"] += int(value)
            elif not part:
                row.setdefault(phase, {})[labels["quantile"]] = value
        return list(rows.values())

    async def slow_requests(self) -> list[Facts]:
        """Return the slowest requests of the last minutes in descending order, with milliseconds by phase."""
        return await self._run_on_broker_loop(self._slow_requests())

    async def on_disk(self, topic: str, first: int) -> Facts:
        """Return up to `MAX_LOGS` logs of the topic on this broker, from partition `first` on."""
        return await self._run_on_broker_loop(self._on_disk(topic, first))

    async def compact(self, topic: str, partition: int) -> Facts:
        """Clean one log and return the reports of its passes."""
        return await self._run_on_broker_loop(self._compact(topic, partition))

    async def tombstones(self, topic: str, partition: int, first: int) -> Facts:
        """Count the tombstones of a log's segments from a base offset on, for at most `COUNT_SECONDS`."""
        return await self._run_on_broker_loop(self._tombstones(topic, partition, first))

    async def _run_on_broker_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _reading(self) -> Reading | None:
        """Return all metrics. The caller's loop filters them because there may be very many."""
        return None if self._server.metrics is None else await self._run_on_broker_loop(self._server.metrics.reading())

    async def _slow_requests(self) -> list[Facts]:
        metrics, ports = self._server.metrics, self._server.state.ports
        now_ms, now = ports.now_ms(), ports.stopwatch()
        return [
            {
                "api": api,
                "version": one.version,
                "time": now_ms - round(_MS * (now - one.at)),
                "client_id": one.client_id,
                "principal": one.principal,
                "host": one.host,
                "correlation_id": one.correlation_id,
                "slowness": _MS * one.slowness,
                "local": _MS * one.local,
                "remote": _MS * one.remote,
                "send": _MS * one.send,
            }
            for api, one in ([] if metrics is None else metrics.requests.slow.slowest())
        ]

    async def _on_disk(self, topic: str, first: int) -> Facts:
        state = self._server.state
        logs = state.log_manager.logs
        here = sorted(tp for tp in logs if tp.topic == topic and tp.partition >= first)
        budget, found = CountBudget(1), []
        for topic_partition in here[:MAX_LOGS]:
            log = logs.get(topic_partition)
            if log is not None:
                found.append(self._log_facts(topic_partition, log))
                await budget.step()
        measure = partial(_measure, state.ports.filesystem, found)
        await state.ports.work.run(_LANE, measure)
        after = here[MAX_LOGS].partition if len(here) > MAX_LOGS else None
        return {"broker": state.broker_id, "now": state.ports.now_ms(), "logs": found, "next": after}

    def _log_facts(self, topic_partition: TopicPartition, log: Log) -> Facts:
        config, segments = log.config, log.segments[-MAX_SEGMENTS:]
        expired = log.deletable_segments()
        status = CleanerStatus(self._server.state.cleaner)
        return {
            "partition": topic_partition.partition,
            "path": log.path,
            "size": log.size,
            "start": log.log_start_offset,
            "end": log.log_end_offset,
            "high_watermark": log.high_watermark,
            "retention_ms": config.retention_ms if config.delete else -1,
            "retention_bytes": config.retention_bytes if config.delete else -1,
            "expires_below": expired[-1].base_offset if expired else -1,
            "earlier": len(log.segments) - len(segments),
            "segments": [{"base": one.base_offset, "size": one.size, "paths": one.files.paths} for one in segments],
            "cleaner": status.partition(topic_partition, log) if config.compact else None,
        }

    async def _tombstones(self, topic: str, partition: int, first: int) -> Facts:
        state = self._server.state
        log = state.log_manager.logs.get(TopicPartition(topic, partition))
        if log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}")
        files = [(one.base_offset, one.records.path, one.size) for one in log.segments if one.base_offset >= first]
        count = partial(_count, state.ports.filesystem, files[:MAX_SEGMENTS], state.ports.stopwatch)
        counted = await state.ports.work.run(_LANE, count)
        after = files[len(counted)][0] if len(counted) < len(files) else None
        return {"segments": counted, "next": after}

    async def _compact(self, topic: str, partition: int) -> Facts:
        cleaner = self._server.state.cleaner
        if not cleaner.compacted(topic, partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}")
        return {"passes": [pass_facts(report) for report in await cleaner.compact(topic, partition)]}


def _count(filesystem: FileSystem, files: list[tuple[int, str, int]], stopwatch: Callable[[], float]) -> list[Facts]:
    """Count segment by segment for `COUNT_SECONDS`; of a large segment only its beginning. Runs on a lane."""
    until, counted = stopwatch() + COUNT_SECONDS, list[Facts]()
    for base, path, size in files:
        facts: Facts = {"base": base, "size": size, "records": 0, "tombstones": 0, "counted": 0}
        try:
            found = count_tombstones(FileRecords(path, filesystem, size), lambda: stopwatch() < until)
        except (OSError, CorruptSegmentError):
            counted.append({**facts, "trouble": "deleted or unreadable"})
        else:
            counted.append({**facts, "records": found.records, "tombstones": found.tombstones, "counted": found.size})
        if stopwatch() >= until:
            break
    return counted


def _measure(filesystem: FileSystem, logs: list[Facts]) -> None:
    """Replace the paths by sizes and times of the files; deleted files are skipped. Runs on a lane."""
    for segment in (segment for log in logs for segment in log["segments"]):
        paths = segment.pop("paths")
        sizes = {}
        modified = -1
        for path in paths:
            try:
                sizes[path.rpartition(".")[2]] = filesystem.size(path)
                modified = max(modified, filesystem.modified_ms(path) if path.endswith(".log") else -1)
            except OSError:
                continue  # deleted, or there is no such index
        segment["files"], segment["modified"] = sizes, modified
