"""Scripted brokers with one share group: the rules of share sessions and of acquired records, as the KIP states them.

The model checks what a client must not do: a wrong session epoch, an acknowledgement of a record that the member has
not acquired, acknowledgements with the first request of a session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.clients.scripted_broker import ScriptedCluster

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import share_acknowledge, share_fetch, share_group_heartbeat
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from barnabas.protocol.record_batch import RecordBatchBuilder, iter_batches
from barnabas.simulation.loop import SimLoop, run

SERVED = {
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
    ApiKey.SHARE_FETCH: (1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
}
HEARTBEAT_MS = 500


@dataclass
class SharedPartition:
    """Records of one partition: acquired ones by offset with member, end of the lock and delivery count."""

    acquired: dict[int, tuple[str, float]] = field(default_factory=dict)
    deliveries: dict[int, int] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)
    """The final acknowledge type by offset."""


class ScriptedShareGroup(ScriptedCluster):
    """One share group over the scripted logs; broker 1 is the coordinator."""

    def __init__(self, loop: SimLoop, *, brokers: int, topics: dict[str, int]) -> None:
        super().__init__(loop, brokers=brokers, topics=topics)
        self.versions |= SERVED
        self.lock_ms = 30_000
        self.shared = {key: SharedPartition() for key in self.partitions}
        self.sessions: dict[tuple[int, str], int] = {}
        """The expected epoch of the next request, by broker and member."""
        self.members: dict[str, list[str]] = {}
        self.epoch = 0
        self.acknowledge_error: dict[tuple[str, int], ErrorCode] = {}

    def fill(self, count: int, *, topic: str = "t", partition: int = 0, each: int = 10) -> None:
        """Append records with their offset as value."""
        stored = self.partitions[topic, partition]
        end = stored.end + count
        while stored.end < end:
            builder = RecordBatchBuilder()
            for offset in range(stored.end, min(end, stored.end + each)):
                builder.append(None, b"%d" % offset)
            stored.store(builder.build(), len(builder))

    def done(self, kind: int, *, topic: str = "t", partition: int = 0) -> list[int]:
        """The offsets with this final acknowledge type."""
        return sorted(o for o, k in self.shared[topic, partition].done.items() if k == kind)

    # Group membership

    def _find_coordinator(self, node: int, version: int, request: Any) -> Any:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=1, host=self.nodes[1], port=9092) for key in request.coordinator_keys
            ]
        )

    def _share_group_heartbeat(self, node: int, version: int, request: Any) -> Any:
        response = share_group_heartbeat.ShareGroupHeartbeatResponse(
            member_id=request.member_id, heartbeat_interval_ms=HEARTBEAT_MS
        )
        if request.member_epoch == -1:
            self.members.pop(request.member_id, None)
            response.member_epoch = -1
            return response
        if request.member_epoch > 0 and request.member_id not in self.members:
            response.error_code = ErrorCode.UNKNOWN_MEMBER_ID
            return response
        if request.subscribed_topic_names is not None:
            self.members[request.member_id] = request.subscribed_topic_names
            self.epoch += 1
            response.assignment = share_group_heartbeat.Assignment(
                topic_partitions=[
                    share_group_heartbeat.TopicPartitions(
                        topic_id=self.topic_ids[name], partitions=[p for t, p in self.partitions if t == name]
                    )
                    for name in request.subscribed_topic_names
                    if name in self.topic_ids
                ]
            )
        response.member_epoch = self.epoch
        return response

    # Share sessions and records

    def _session_error(self, node: int, request: Any) -> ErrorCode:
        key = (node, request.member_id)
        epoch = request.share_session_epoch
        if epoch == 0:
            self.sessions[key] = 1
            return ErrorCode.NONE
        if key not in self.sessions:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == -1:
            del self.sessions[key]
            return ErrorCode.NONE
        if epoch != self.sessions[key]:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        self.sessions[key] += 1
        return ErrorCode.NONE

    def _share_fetch(self, node: int, version: int, request: Any) -> Any:
        response = share_fetch.ShareFetchResponse(acquisition_lock_timeout_ms=self.lock_ms)
        response.error_code = self._session_error(node, request)
        if response.error_code:
            return response
        acknowledged = self._apply_all(node, request)
        assert not (request.share_session_epoch == 0 and acknowledged), "acknowledgements with the first request"
        room = 0 if request.is_renew_ack else request.max_records
        for (name, index), stored in self.partitions.items():
            data = share_fetch.PartitionData(partition_index=index)
            if stored.leader != node:
                if (name, index) not in acknowledged:
                    continue
                data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            error = acknowledged.get((name, index), ErrorCode.NONE)
            data.acknowledge_error_code = error
            if stored.leader == node and room > 0:
                offsets = self._acquire(name, index, request.member_id, room)
                room -= len(offsets)
                if offsets:
                    data.records = b"".join(d for _, last, d in stored.batches if last >= offsets[0])
                    data.acquired_records = [
                        share_fetch.AcquiredRecords(
                            first_offset=o, last_offset=o, delivery_count=self.shared[name, index].deliveries[o]
                        )
                        for o in offsets
                    ]
            if data.records or data.error_code or (name, index) in acknowledged:
                response.responses.append(
                    share_fetch.ShareFetchableTopicResponse(topic_id=self.topic_ids[name], partitions=[data])
                )
        if request.share_session_epoch == -1:
            self._release(node, request.member_id)
        return response

    def _share_acknowledge(self, node: int, version: int, request: Any) -> Any:
        response = share_acknowledge.ShareAcknowledgeResponse(acquisition_lock_timeout_ms=self.lock_ms)
        response.error_code = self._session_error(node, request)
        if response.error_code:
            return response
        for (name, index), error in self._apply_all(node, request).items():
            data = share_acknowledge.PartitionData(partition_index=index, error_code=error)
            if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                stored = self.partitions[name, index]
                data.current_leader.leader_id, data.current_leader.leader_epoch = stored.leader, stored.leader_epoch
            response.responses.append(
                share_acknowledge.ShareAcknowledgeTopicResponse(topic_id=self.topic_ids[name], partitions=[data])
            )
        if request.share_session_epoch == -1:
            self._release(node, request.member_id)
        return response

    def _apply_all(self, node: int, request: Any) -> dict[tuple[str, int], ErrorCode]:
        results = {}
        for topic in request.topics:
            name = self._name("", topic.topic_id)
            for partition in topic.partitions:
                if partition.acknowledgement_batches:
                    key = (name, partition.partition_index)
                    results[key] = self._apply(node, key, partition, request.member_id)
        return results

    def _apply(self, node: int, key: tuple[str, int], partition: Any, member: str) -> ErrorCode:
        """All acknowledgements of a partition, or none."""
        if self.partitions[key].leader != node:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if key in self.acknowledge_error:
            return self.acknowledge_error.pop(key)
        shared, changes = self.shared[key], dict[int, int]()
        for batch in partition.acknowledgement_batches:
            types = batch.acknowledge_types
            for offset in range(batch.first_offset, batch.last_offset + 1):
                changes[offset] = types[0] if len(types) == 1 else types[offset - batch.first_offset]
        for offset in changes:
            owner, until = shared.acquired.get(offset, ("", 0.0))
            if owner != member or until <= self.loop.time():
                return ErrorCode.INVALID_RECORD_STATE
        for offset, kind in changes.items():
            if kind == 4:
                shared.acquired[offset] = (member, self.loop.time() + self.lock_ms / 1000)
                continue
            del shared.acquired[offset]
            if kind != 2:
                shared.done[offset] = kind
        return ErrorCode.NONE

    def _acquire(self, name: str, index: int, member: str, room: int) -> list[int]:
        shared, now = self.shared[name, index], self.loop.time()
        offsets = [
            record.offset
            for _, _, data in self.partitions[name, index].batches
            for batch in iter_batches(data)
            for record in batch.records()
            if record.offset not in shared.done and shared.acquired.get(record.offset, ("", 0.0))[1] <= now
        ][:room]
        for offset in offsets:
            shared.acquired[offset] = (member, now + self.lock_ms / 1000)
            shared.deliveries[offset] = shared.deliveries.get(offset, 0) + 1
        return offsets

    def _release(self, node: int, member: str) -> None:
        for key, shared in self.shared.items():
            if self.partitions[key].leader == node:
                shared.acquired = {o: held for o, held in shared.acquired.items() if held[0] != member}


def play(
    story: Callable[[ScriptedShareGroup], Awaitable[None]], *, brokers: int = 1, partitions: int = 1, seed: int = 1
) -> None:
    """Run a test's story against fresh brokers, in virtual time."""

    async def main(loop: SimLoop) -> None:
        group = ScriptedShareGroup(loop, brokers=brokers, topics={"t": partitions})
        await group.start()
        await story(group)

    run(main, seed)
