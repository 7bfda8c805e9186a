"""A member of a streams group: its heartbeats, and the tasks that they assign (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bench.modern_group_member import JOIN_EPOCH, ModernGroupMember

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)

SUBTOPOLOGY = "0"
REBALANCE_MS = 300_000


class StreamsGroupMember(ModernGroupMember):
    """A process with one thread, of an application with one stateless subtopology that reads one topic."""

    active: frozenset[int] = frozenset()
    """The partitions of the active tasks."""
    _reported: frozenset[int] | None = None
    """The active tasks in the last heartbeat that listed them."""

    async def heartbeat(self) -> ErrorCode:
        """Send a heartbeat, and report a new assignment immediately with another one, as Kafka's client does."""
        error = await super().heartbeat()
        while error is ErrorCode.NONE and self._reported != self.active:
            error = await super().heartbeat()
        return error

    def _request(self) -> StreamsGroupHeartbeatRequest:
        fields: dict[str, Any] = {}
        if self.generation == JOIN_EPOCH:
            self.active = frozenset()
            subtopology = Subtopology(subtopology_id=SUBTOPOLOGY, source_topics=[self.topic])
            fields = {
                "rebalance_timeout_ms": REBALANCE_MS,
                "topology": Topology(epoch=0, subtopologies=[subtopology]),
                "process_id": self.member_id,
            }
        if self.generation == JOIN_EPOCH or self._reported != self.active:
            self._reported = self.active
            tasks = [TaskIds(subtopology_id=SUBTOPOLOGY, partitions=sorted(self.active))] if self.active else []
            fields |= {"active_tasks": tasks, "standby_tasks": [], "warmup_tasks": []}
        return StreamsGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.generation, **fields
        )

    def _take_assignment(self, response: StreamsGroupHeartbeatResponse) -> bool:
        if response.active_tasks is None:
            return False
        self.active = partitions_of(response.active_tasks)
        return bool(self.active)


def partitions_of(tasks: Iterable[TaskIds]) -> frozenset[int]:
    """Return the partitions of tasks of the only subtopology."""
    return frozenset(index for one in tasks for index in one.partitions)
