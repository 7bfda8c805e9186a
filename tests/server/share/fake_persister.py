"""A persister in memory with the epochs of a share coordinator, whose writes a test may delay or fail."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from uuid import UUID

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import read_share_group_state as read
from barnabas.protocol.messages import write_share_group_state as write
from barnabas.server.share.record_state import RecordState

SharePartitionKey = tuple[str, UUID, int]


@dataclass
class State:
    """The state of one share partition by offset."""

    state_epoch: int = 0
    leader_epoch: int = -1
    start_offset: int = -1
    complete_count: int = -1
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)


class FakePersister:
    """Has the two coroutines of the persister that a share partition uses."""

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, State] = {}
        self.writes: list[write.PartitionData] = []
        self.errors: list[ErrorCode] = []
        """The errors of the next writes."""
        self.read_error = ErrorCode.NONE
        self.gate: asyncio.Event | None = None
        """Writes wait for it."""

    def state(self, group_id: str, topic_id: UUID, index: int = 0) -> State:
        return self.states.setdefault((group_id, topic_id, index), State())

    def reset(self, group_id: str, topic_id: UUID, start_offset: int, index: int = 0) -> None:
        """An administrator's reset of offsets: the state begins again with a higher state epoch."""
        epoch = self.state(group_id, topic_id, index).state_epoch
        self.states[group_id, topic_id, index] = State(epoch + 1, -1, start_offset)

    async def read_state(self, request: read.ReadShareGroupStateRequest) -> read.ReadShareGroupStateResponse:
        await asyncio.sleep(0)
        ((topic_id, wanted),) = ((topic.topic_id, data) for topic in request.topics for data in topic.partitions)
        state = self.state(request.group_id, topic_id, wanted.partition)
        result = read.PartitionResult(partition=wanted.partition, error_code=self.read_error)
        if wanted.leader_epoch < state.leader_epoch:
            result.error_code = ErrorCode.FENCED_LEADER_EPOCH
        if not result.error_code:
            state.leader_epoch = wanted.leader_epoch
            result.state_epoch, result.start_offset = state.state_epoch, state.start_offset
            result.state_batches = [
                read.StateBatch(first_offset=offset, last_offset=offset, delivery_state=one, delivery_count=count)
                for offset, (one, count) in sorted(state.offsets.items())
            ]
        found = read.ReadStateResult(topic_id=topic_id, partitions=[result])
        return read.ReadShareGroupStateResponse(results=[found])

    async def write_state(self, request: write.WriteShareGroupStateRequest) -> write.WriteShareGroupStateResponse:
        await asyncio.sleep(0)
        if self.gate is not None:
            await self.gate.wait()
        ((topic_id, data),) = ((topic.topic_id, data) for topic in request.topics for data in topic.partitions)
        result = write.PartitionResult(
            partition=data.partition, error_code=self._write(request.group_id, topic_id, data)
        )
        found = write.WriteStateResult(topic_id=topic_id, partitions=[result])
        return write.WriteShareGroupStateResponse(results=[found])

    def _write(self, group_id: str, topic_id: UUID, data: write.PartitionData) -> ErrorCode:
        state = self.state(group_id, topic_id, data.partition)
        if self.errors:
            return self.errors.pop(0)
        if data.state_epoch < state.state_epoch:
            return ErrorCode.FENCED_STATE_EPOCH
        if data.leader_epoch < state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        assert data.start_offset >= state.start_offset, "the start offset fell"
        self.writes.append(data)
        state.start_offset, state.complete_count = data.start_offset, data.delivery_complete_count
        for batch in data.state_batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                former, count = state.offsets.get(offset, (0, 0))
                assert batch.delivery_count >= count, f"the delivery count of {offset} fell"
                assert former == batch.delivery_state or not RecordState(former).is_terminal, f"{offset} is back"
                state.offsets[offset] = (batch.delivery_state, batch.delivery_count)
        state.offsets = {offset: one for offset, one in state.offsets.items() if offset >= data.start_offset}
        return ErrorCode.NONE
