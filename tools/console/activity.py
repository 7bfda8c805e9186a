"""Rates of records and bytes, measured while a page is open.

Any Kafka cluster reports log end offsets and sizes, whose growth is the incoming rate. A standalone broker in the same
process reports its incoming and outgoing bytes, which is cheaper and exact.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...clients.host import now_ms
from ...protocol.errors import KafkaError
from ...protocol.special_timestamps import LATEST
from ...protocol.topic_partition import TopicPartition
from .cluster import WatchedCluster

POINTS = 150
SECONDS = 2.0
IDLE_SECONDS = 15.0
"""Seconds without a request after which measurements end; the next request starts them again."""
_SHARE = 8
"""Minimum pause as a multiple of the duration of a measurement, which is long in a large cluster."""
_BUSIEST = 8


class ActivitySample(NamedTuple):
    """A measurement of the cluster (seconds, monotonic)."""

    at: float
    ends: Mapping[TopicPartition, int]
    sizes: Mapping[TopicPartition, int]
    totals: Mapping[str, float]


class Point(NamedTuple):
    """Rates per second; None if unknown."""

    time_ms: int
    messages: float
    bytes_in: float | None
    bytes_out: float | None


class ActivityHistory:
    """The measurements, on one event loop."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster
        self._points: deque[Point] = deque(maxlen=POINTS)
        self._busiest: list[dict[str, Any]] = []
        self._asked = 0.0
        self._task: asyncio.Task[None] | None = None

    def read(self) -> dict[str, Any]:
        """Return the points so far, and the topics with the highest last rate. Continues the measurements."""
        loop = asyncio.get_running_loop()
        self._asked = loop.time()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._measure())
        return {"points": list(self._points), "busiest": self._busiest, "seconds": SECONDS}

    async def close(self) -> None:
        """Stop the measurements."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _measure(self) -> None:
        loop, before = asyncio.get_running_loop(), None
        self._points.clear()
        while loop.time() - self._asked < IDLE_SECONDS:
            began = loop.time()
            try:
                now = await self._look()
            except (KafkaError, TimeoutError, OSError):
                before = None  # the page shows that the cluster does not respond; plots stop
            else:
                if before is not None:
                    self._add(before, now)
                before = now
            took = loop.time() - began
            await asyncio.sleep(max(SECONDS - took, _SHARE * took if took > SECONDS / _SHARE else 0.0))

    async def _look(self) -> ActivitySample:
        topics = [topic for topic in await self._cluster.topics.get() if not topic.is_internal]
        led = [TopicPartition(t.name, p.index) for t in topics for p in t.partitions.values() if p.leader_id >= 0]
        ends = await self._cluster.admin.list_offsets(dict.fromkeys(led, LATEST))
        totals: Mapping[str, float] = {}
        sizes: dict[TopicPartition, int] = {}
        cluster = await self._cluster.description.get()
        live = sum(not broker.is_fenced for broker in cluster.brokers)
        if self._cluster.own is not None and live == 1:
            totals = await self._cluster.own.totals()
        else:
            for one in await self._cluster.log_dirs.get():
                for tp, size in one.sizes.items():
                    sizes[tp] = max(size, sizes.get(tp, 0))
        at = asyncio.get_running_loop().time()
        return ActivitySample(at, {tp: found.offset for tp, found in ends.items()}, sizes, totals)

    def _add(self, before: ActivitySample, now: ActivitySample) -> None:
        seconds = max(now.at - before.at, 0.001)
        came: dict[str, int] = {}
        for tp, end in now.ends.items():
            came[tp.topic] = came.get(tp.topic, 0) + max(0, end - before.ends.get(tp, end))
        bytes_in: float | None
        bytes_out: float | None = None
        if now.totals and before.totals:
            bytes_in, bytes_out = (
                max(0.0, now.totals[name] - before.totals[name]) / seconds for name in ("bytes_in", "bytes_out")
            )
        elif now.sizes:
            # A log that shrinks was cleaned or has expired; the incoming bytes of that time are unknown.
            bytes_in = sum(max(0, size - before.sizes.get(tp, size)) for tp, size in now.sizes.items()) / seconds
        else:
            bytes_in = None
        self._points.append(Point(now_ms(), sum(came.values()) / seconds, bytes_in, bytes_out))
        order = sorted(came, key=lambda topic: (-came[topic], topic))[:_BUSIEST]
        self._busiest = [{"topic": topic, "messages": came[topic] / seconds} for topic in order]
