"""How much goes on: records and bytes a second, measured while somebody looks.

Any Kafka cluster tells where its logs end and how large they are; what grew between two looks came in. A broker of ours
in the same process, if it is the only one, tells what it took in and gave out, which is cheaper and exact.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...protocol.errors import KafkaError
from ...protocol.special_timestamps import LATEST
from ...protocol.topic_partition import TopicPartition
from ..host import now_ms
from .cluster import WatchedCluster

POINTS = 150
SECONDS = 2.0
IDLE_SECONDS = 15.0
"""When nobody has asked for so long, measuring ends; the next question begins it again."""
_SHARE = 8
"""A look at a large cluster takes time: the pause is that many times as long, at least."""
_BUSIEST = 8


class PulseLook(NamedTuple):
    """What a cluster said at a time (seconds, monotonic)."""

    at: float
    ends: Mapping[TopicPartition, int]
    sizes: Mapping[TopicPartition, int]
    totals: Mapping[str, float]


class Point(NamedTuple):
    """Rates a second; None for what is not known."""

    time_ms: int
    messages: float
    bytes_in: float | None
    bytes_out: float | None


class Pulse:
    """One loop."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster
        self._points: deque[Point] = deque(maxlen=POINTS)
        self._busiest: list[dict[str, Any]] = []
        self._asked = 0.0
        self._task: asyncio.Task[None] | None = None

    def read(self) -> dict[str, Any]:
        """The points so far, and the topics into which most came at last. Keeps measuring going."""
        loop = asyncio.get_running_loop()
        self._asked = loop.time()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._measure())
        return {"points": list(self._points), "busiest": self._busiest, "seconds": SECONDS}

    async def close(self) -> None:
        """Measure no more."""
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
                before = None  # the page says that the cluster does not answer; plots stand still
            else:
                if before is not None:
                    self._add(before, now)
                before = now
            took = loop.time() - began
            await asyncio.sleep(max(SECONDS - took, _SHARE * took if took > SECONDS / _SHARE else 0.0))

    async def _look(self) -> PulseLook:
        topics = [topic for topic in await self._cluster.topics.get() if not topic.is_internal]
        led = [TopicPartition(t.name, p.index) for t in topics for p in t.partitions.values() if p.leader_id >= 0]
        ends = await self._cluster.admin.list_offsets(dict.fromkeys(led, LATEST))
        totals: Mapping[str, float] = {}
        sizes: dict[TopicPartition, int] = {}
        cluster = await self._cluster.description.get()
        if self._cluster.own is not None and len(cluster.brokers) == 1:
            totals = await self._cluster.own.totals()
        else:
            for one in await self._cluster.log_dirs.get():
                for tp, size in one.sizes.items():
                    sizes[tp] = max(size, sizes.get(tp, 0))
        at = asyncio.get_running_loop().time()
        return PulseLook(at, {tp: found.offset for tp, found in ends.items()}, sizes, totals)

    def _add(self, before: PulseLook, now: PulseLook) -> None:
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
            # A log that shrinks was cleaned or has expired; nobody tells how much came in meanwhile.
            bytes_in = sum(max(0, size - before.sizes.get(tp, size)) for tp, size in now.sizes.items()) / seconds
        else:
            bytes_in = None
        self._points.append(Point(now_ms(), sum(came.values()) / seconds, bytes_in, bytes_out))
        order = sorted(came, key=lambda topic: (-came[topic], topic))[:_BUSIEST]
        self._busiest = [{"topic": topic, "messages": came[topic] / seconds} for topic in order]
